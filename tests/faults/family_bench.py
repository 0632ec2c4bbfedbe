"""How often the true cause is in one of the families that a diagnosis lists.

    python -m tests.faults.family_bench            our own batches
    python -m tests.faults.family_bench FOLDER     a folder with truth.json and data

Counted over batches with a clear or gross fault. A family is right if a true cause is
in it; of a cause that is claimed, its family counts. The best constant choice of three
families knows the truth of all batches: it is what a list must beat.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import rounddiag as rd
from rounddiag.findings import CAUSES, FAMILIES, Diagnosis
from tests.faults import fixed, vllm_bench
from tests.faults.bench import SURE
from tests.faults.truth import alike

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NO_NAMES = ("unknown", "")


@dataclass(frozen=True)
class Listed:
    """The families of the true causes, and those that a diagnosis lists."""

    name: str
    truth: frozenset[str]
    families: tuple[str, ...]
    is_claimed: bool

    @property
    def is_right(self) -> bool:
        """Whether a listed family has a true cause."""
        return bool(self.truth & {*self.families})


def list_families(diagnosis: Diagnosis) -> tuple[tuple[str, ...], bool]:
    """Return the families of the first finding, and whether its cause is claimed."""
    bugs = [row for row in diagnosis if row.severity != "update"]
    claimed = [row.cause for row in bugs if row.cause not in _NO_NAMES]
    if claimed:
        return tuple(CAUSES[name].family for name in claimed[:1]), True
    return tuple(bugs[0].families) if bugs else (), False


def families_of(causes: Sequence[str]) -> frozenset[str]:
    """Return the families of causes that have one."""
    return frozenset(CAUSES[name].family for name in causes if name in CAUSES) - {""}


def ours() -> Iterator[Listed]:
    """Diagnose the batches of the repository."""
    for case in [*fixed.load(), *vllm_bench.load()]:
        truth = set(case.causes) - {"healthy"}
        if not truth or case.severity not in SURE:
            continue
        fault = case.name.split("/")[-1].split(".")[0]
        right = [
            name
            for name in CAUSES
            for true in truth
            if name == true
            or any(alike(true, name, part, case.columns) for part in fault.split("+"))
        ]
        found = list_families(rd.diagnose(case.batch(), **case.arguments()))
        yield Listed(case.name, families_of(right), *found)


def given(folder: Path) -> Iterator[Listed]:
    """Diagnose the batches of a folder."""
    for row in json.loads((folder / "truth.json").read_text()):
        if row["cause"] == "healthy" or row.get("severity") not in SURE:
            continue
        tokenizer = row.get("tokenizer")
        more = {"tokenizer": folder / "data" / tokenizer} if tokenizer else {}
        batch = rd.load(folder / "data" / row["case"], **more)
        truth = families_of([row["cause"], *row.get("also_acceptable", [])])
        yield Listed(row["case"], truth, *list_families(rd.diagnose(batch)))


def report(rows: Sequence[Listed]) -> str:
    """Return the shares that are right, of the lists and of the best constant one."""
    lines = []
    with_family = [row for row in rows if row.truth]
    open_rows = [row for row in with_family if not row.is_claimed and row.families]
    for name, chosen in (("of all", with_family), ("not claimed", open_rows)):
        if not chosen:
            continue
        right = sum(row.is_right for row in chosen) / len(chosen)
        listed = sum(len(row.families) for row in chosen) / len(chosen)
        best, three = max(
            (sum(bool(row.truth & {*three}) for row in chosen) / len(chosen), three)
            for three in combinations(FAMILIES, 3)
        )
        lines.append(
            f"families, {name} {len(chosen)}: right {right:.1%}, families listed on"
            f" average {listed:.2f}, best constant choice of three {best:.1%}"
            f" ({', '.join(three)})"
        )
    lines += [
        f"  {row.name}: {', '.join(sorted(row.truth))}; listed {list(row.families)}"
        for row in open_rows
        if not row.is_right
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    folders = [Path(name) for name in sys.argv[1:]]
    rows = [row for folder in folders for row in given(folder)] or [*ours()]
    print(report(rows))


if __name__ == "__main__":
    main()
