"""Runs `rd.diagnose` on the batches whose sampler is vLLM, and prints how it does.

    python -m tests.faults.vllm_bench

60 batches with a fault, 20 of each severity, and 40 sound ones, in `vllm/`; and a few
whose fault leaves no mismatch (`hidden`): tokens drawn from a truncated distribution,
log-probs of the whole one. `vllm_make.py` made them. Nothing is fitted on them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from tests.faults import fixed, tables
from tests.faults.bench import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.cases import Case

FOLDER = Path(__file__).parent / "vllm"
HIDDEN = "hidden"


def load() -> list[Case]:
    """Return all batches."""
    return [case for path in sorted(FOLDER.glob("*.npz")) for case in fixed.load(path)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", type=int, default=40, help="how many to print")
    options = parser.parse_args(arguments)
    outcomes = [run(case) for case in tqdm(load(), "diagnose", disable=None)]
    hidden = [one for one in outcomes if one.case.severity == HIDDEN]
    measured = [one for one in outcomes if one.case.severity != HIDDEN]
    print(tables.report(measured, options.misses))
    verdicts = ", ".join(f"{one.fault} {one.verdict}" for one in hidden)
    print(f"\nfaults without a mismatch: {verdicts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
