"""The cache that `make` writes: where it is, and the rows of a fault in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.faults.rows import Rows

CACHE = Path(__file__).parent / "cache"
HALVES = {
    "tune": ("tune-0", "test-0", "test-1", "test-2", "test-3", "test-4"),
    "test": ("test-5",),
    "fresh": ("fresh-0",),
}
"""The agents of each part. The misses of all but `fresh` have been read; `fresh-0`, of
another shape, was made when the code was frozen, and run once."""


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
