"""The cache that `make` writes: where it is, and the rows of a fault in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.faults.rows import Rows

CACHE = Path(__file__).parent / "cache"
HALVES = {
    "tune": ("tune-0", "test-0", "test-1", "test-2", "test-3", "test-4"),
    "test": ("test-5",),
}
"""The agents of each half. `test-0` to `test-4` were the test half until their misses
were read: thresholds may be set on them since, and `test-5` measures."""


def healthy_rows(folder: Path, name: str = "bf16") -> Rows:
    """Return sound rows of an agent."""
    return Rows.load(folder / f"healthy.{name}.npz")


def broken_rows(folder: Path, label: str) -> Rows:
    """Return the rows of `fault.severity`, with the screenshots of the healthy ones."""
    rows = Rows.load(folder / f"{label}.npz")
    if rows.places and not rows.shots:
        base = healthy_rows(folder)
        rows = replace(rows, shots=base.shots[: len(rows)])
    return rows
