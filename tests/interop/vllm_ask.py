"""Ask a served vLLM and transformers what the model would have written, and compare.

    python tests/interop/vllm_ask.py

in an environment with vLLM, with the checkout on PYTHONPATH. Both have
`sample_data/model`, vLLM in bfloat16, transformers in float32. The noise is the largest
difference of a log-prob that both list. Two tokens further apart than twice as much
must stand in the same order, and a drop of a token without its picture may differ by
as much.
"""

from __future__ import annotations

import os
from pathlib import Path

from vllm_rescore import (  # type: ignore[import-not-found]  # others have `tests`
    MODEL,
    PORT,
    running,
)

import rounddiag as rd

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
PLACES = ["task-04/2 / r3", "task-07/0 / r5", "task-02/0 / r3"]
KEYS = ["sample", "round", "token"]


def main() -> None:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    batch = rd.load(SAMPLE_DATA / "image_window.parquet")
    local = rd.ask(batch, MODEL, at=PLACES, budget_s=300)
    with running(MODEL):
        served = rd.ask(batch, f"http://127.0.0.1:{PORT}", at=PLACES, budget_s=300)
    print(served)
    both = local.alternatives.merge(
        served.alternatives, on=[*KEYS, "token_id"], suffixes=("", "_served")
    )
    noise = (both["log_prob"] - both["log_prob_served"]).abs().max()
    pairs = both.merge(both, on=KEYS, suffixes=("", "_of_other"))
    apart = pairs[pairs["log_prob"] - pairs["log_prob_of_other"] > 2 * noise]
    swapped = apart["log_prob_served"] <= apart["log_prob_served_of_other"]
    print(
        f"{len(both)} of {len(local.alternatives)} listed by both, within {noise:.2g}"
    )
    print(
        f"{len(apart)} pairs are further apart than twice that: {swapped.sum()} swapped"
    )
    assert len(apart)
    assert not swapped.any()
    sight = local.sight.merge(served.sight, on=KEYS, suffixes=("", "_served"))
    off = (sight["drop"] - sight["drop_served"]).abs()
    print(
        f"drops of {len(sight)} tokens: mean {off.mean():.2g}, max {off.max():.2g} off"
    )
    assert len(sight) == len(local.sight)
    assert off.max() < 2 * noise


if __name__ == "__main__":
    main()
