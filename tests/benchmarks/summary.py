"""Time and memory of the summary of 16 M tokens, for every metric.

    python -m tests.benchmarks.summary

1024 samples of 40,000 positions, of which 40 % are generated in 8 rounds. Seconds are
the best of three, of a batch whose rounds nobody asked for yet; memory is what a call
adds to the process at most. Reads /proc, so it runs on Linux only.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from rounddiag import round_summary
from rounddiag.schema import METRICS
from tests.benchmarks.core import Inputs, make, peak_mb

Options = dict[str, Any]

REPEATS = 3
OPTIONS: list[Options] = [
    *({"metric": metric} for metric in METRICS),
    {"weight": "sample"},
    {"last_aligned": True},
    {"by": "rank"},
]


def summarise(inputs: Inputs, options: Options) -> float:
    """Return the seconds of one summary."""
    batch = inputs.batch()
    batch = replace(batch, sample_columns={"rank": np.arange(len(batch)) % 8})
    begin = time.perf_counter()
    round_summary(batch, **options)
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each metric and option."""
    inputs = make(1024, 40_000, alternating=False, device="cpu")
    num_tokens = int(inputs.mask.sum())
    print(f"{num_tokens:,} tokens, {torch.get_num_threads()} threads")
    print(f"{'':42} {'s':>6} {'MB':>6}")
    for options in OPTIONS:
        seconds = min(summarise(inputs, options) for _ in range(REPEATS))
        peak = peak_mb(partial(summarise, inputs, options))
        name = ", ".join(f"{key} {value}" for key, value in options.items())
        print(f"{name:42} {seconds:6.2f} {peak:6.0f}", flush=True)


if __name__ == "__main__":
    main()
