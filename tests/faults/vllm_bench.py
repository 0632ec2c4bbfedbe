"""Runs `rd.diagnose` on the batches whose sampler is vLLM, and prints how it does.

    python -m tests.faults.vllm_bench

60 batches with a fault, 20 of each severity, and 40 sound ones, in `vllm/`; and a few
whose fault leaves no mismatch (`hidden`): tokens drawn from a truncated distribution,
log-probs of the whole one. Weights in 8 bits (`eight_bit`) are a fault unless the file
says that they are meant to be; both are run. `vllm_make.py` made the batches. Nothing
is fitted on them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from tests.faults import fixed, tables
from tests.faults.bench import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.bench import Outcome
    from tests.faults.cases import Case

FOLDER = Path(__file__).parent / "vllm"
HIDDEN, EIGHT_BIT = "hidden", "eight_bit"


def load() -> list[Case]:
    """Return all batches."""
    return [case for path in sorted(FOLDER.glob("*.npz")) for case in fixed.load(path)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--misses", type=int, default=40, help="how many to print")
    options = parser.parse_args(arguments)
    outcomes = [run(case) for case in tqdm(load(), "diagnose", disable=None)]
    apart: dict[str, list[Outcome]] = {HIDDEN: [], EIGHT_BIT: []}
    measured: list[Outcome] = []
    for one in outcomes:
        apart.get(one.case.severity, measured).append(one)
    print(tables.report(measured, options.misses))
    print(f"\nfaults without a mismatch: {verdicts(apart[HIDDEN])}")
    print(f"weights in 8 bits, not said: {verdicts(apart[EIGHT_BIT])}")
    said = [run(declared(one.case)) for one in apart[EIGHT_BIT]]
    print(f"weights in 8 bits, said: {verdicts(said)}")
    return 0


def verdicts(outcomes: Sequence[Outcome]) -> str:
    """List what was said of some batches."""
    return ", ".join(f"{one.case.name} {one.verdict}" for one in outcomes)


def declared(case: Case) -> Case:
    """Return a batch that says in which format its weights are."""
    quantization = case.name.rpartition(".")[2]
    sampling = {**case.meta["sampling"], "quantization": quantization}
    return replace(case, meta={**case.meta, "sampling": sampling})


if __name__ == "__main__":
    sys.exit(main())
