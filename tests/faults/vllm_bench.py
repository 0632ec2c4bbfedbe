"""The batches whose sampler is a real vLLM: `python -m tests.faults.bench` runs them.

60 batches with a fault, 20 of each severity, and 40 sound ones, in `vllm/`; and a few
whose fault leaves no mismatch (`hidden`): tokens drawn from a truncated distribution,
log-probs of the whole one. Weights in 8 bits (`eight_bit`) are a fault unless the file
says that they are meant to be. `vllm_make.py` made the batches. Nothing is fitted on
them.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults import fixed
from tests.faults.cases import Case

FOLDER = Path(__file__).parent / "vllm"
HIDDEN, EIGHT_BIT = "hidden", "eight_bit"


def load() -> list[Case]:
    """Return all batches."""
    return [case for path in sorted(FOLDER.glob("*.npz")) for case in fixed.load(path)]
