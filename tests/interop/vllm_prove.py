"""Prove the causes of the sample data with a served vLLM, screenshots and all.

    python tests/interop/vllm_prove.py

in an environment with vLLM, with the checkout on PYTHONPATH. `vllm serve` has
`sample_data/model`. Its scores must be those that vLLM recorded as it sampled; the
window of screenshots must be proved for the training engine, and nothing for a sound
batch. The engine that sampled `stale` has weights that this server does not have: no
hypothesis may be proved for it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from vllm_rescore import (  # type: ignore[import-not-found]  # others have `tests`
    CLOSE,
    MODEL,
    PORT,
    running,
)

import rounddiag as rd

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
SAMPLES = slice(0, 24)
EXPECTED = {
    "healthy": ("nothing_to_prove", None, None),
    "image_window": ("proved", "old", "image_window"),
}


def main() -> None:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    url = f"http://127.0.0.1:{PORT}"
    with running(MODEL):
        batch = rd.load(SAMPLE_DATA / "healthy.parquet")[SAMPLES]
        served = rd.rescore(batch, url)
        diff = rd.token_frame(served, a="rescored", b="rollout")["diff"].abs()
        print(f"served against rollout: mean {diff.mean():.2g}, max {diff.max():.2g}")
        assert diff.mean() < CLOSE
        for name in ("healthy", "image_window", "stale"):
            batch = rd.load(SAMPLE_DATA / f"{name}.parquet")[SAMPLES]
            start = time.perf_counter()
            proof = rd.prove(batch, url)
            print(f"{name}: {time.perf_counter() - start:.1f} s\n{proof}\n", flush=True)
            found = proof.verdict, proof.side, proof.cause
            if name in EXPECTED:
                assert found == EXPECTED[name], found
            else:
                assert proof.verdict == "none_of_these", found


if __name__ == "__main__":
    main()
