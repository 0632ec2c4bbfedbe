"""Time and memory of the statistics of 16 M tokens: the summary of every metric first.

    python -m tests.benchmarks.summary

1024 samples of 40,000 positions, of which 40 % are generated in 8 rounds. Seconds are
the best of three, of a batch whose rounds nobody asked for yet; `mc` is the same in
copies of the mask and both log-probs, measured before each line, as other work on the
machine slows both; memory is what a call adds to the process at most. Reads /proc, so
it runs on Linux only.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag import round_summary, stats
from rounddiag.schema import METRICS
from tests.benchmarks.core import Inputs, best, make, peak_mb

if TYPE_CHECKING:
    from collections.abc import Callable

Options = dict[str, Any]

REPEATS = 3
OPTIONS: list[Options] = [
    *({"metric": metric} for metric in METRICS),
    {"weight": "sample"},
    {"last_aligned": True},
    {"by": "rank"},
]


OTHERS = ("survivors", "conditional_means", "position_means")


def seconds_of(
    inputs: Inputs, statistic: Callable[..., object], **options: Any
) -> float:
    """Return the seconds of one call."""
    batch = inputs.batch()
    ranks = {"rank": np.arange(len(batch)) % 8}
    batch = replace(batch, sample_columns=ranks, entropy=batch.old_log_probs)
    begin = time.perf_counter()
    statistic(batch, **options)
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each metric and option, and for other statistics."""
    inputs = make(1024, 40_000)
    num_tokens = int(inputs.mask.sum())
    print(f"{num_tokens:,} tokens, {torch.get_num_threads()} threads")
    print(f"{'':42} {'s':>6} {'mc':>6} {'MB':>6}")
    calls = [
        *((round_summary, options) for options in OPTIONS),
        *((getattr(stats, name), {}) for name in OTHERS),
    ]
    for statistic, options in calls:
        call = partial(seconds_of, inputs, statistic, **options)
        copy = best(lambda: [part.clone() for part in vars(inputs).values()], "cpu")
        seconds = min(call() for _ in range(REPEATS))
        name = ", ".join(f"{key} {value}" for key, value in options.items())
        name = name or statistic.__name__
        print(
            f"{name:42} {seconds:6.2f} {seconds / copy:6.1f} {peak_mb(call):6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
