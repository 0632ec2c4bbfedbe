"""Compare two folders of saved batches, loaded with rounddiag."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rounddiag.loaders import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag import Batch


def differences(one: Batch, other: Batch) -> list[str]:
    """Return the names of the fields in which two batches differ; pixels included."""
    names = [
        entry.name for entry in fields(one) if entry.name not in {"meta", "images"}
    ]
    changed = [n for n in names if not _equal(getattr(one, n), getattr(other, n))]
    meta = [{**batch.meta, "source": ""} for batch in (one, other)]
    changed += [] if meta[0] == meta[1] else ["meta"]
    return changed + ([] if _equal(_pixels(one), _pixels(other)) else ["images"])


def _equal(one: object, other: object) -> bool:
    match one, other:
        case torch.Tensor(), torch.Tensor():
            alike = one.dtype == other.dtype and one.shape == other.shape
            return alike and bool(((one == other) | one.isnan() & other.isnan()).all())
        case np.ndarray(), np.ndarray():
            return one.dtype == other.dtype and np.array_equal(one, other)
        case dict(), dict():
            return one.keys() == other.keys() and all(
                _equal(one[key], other[key]) for key in one
            )
        case tuple(), tuple():
            return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _pixels(batch: Batch) -> tuple[object, ...]:
    rows = batch.images or ()
    return tuple(
        tuple((shot.round, shot.size, shot.png()) for shot in row) for row in rows
    )


def pairs(made: Path, kept: Path) -> Iterator[tuple[Path, Path]]:
    """Pair files of the same name, or else with the newest version that is kept."""
    for path in sorted(made.iterdir()):
        same = kept / path.name
        yield path, same if same.exists() else _newest(kept, path)


def _newest(kept: Path, path: Path) -> Path:
    kind = path.name.rpartition("_")[2]
    return max(kept.glob(f"*_{kind}"), key=_version)


def _version(path: Path) -> list[int]:
    return [int(part) for part in path.name.split("_")[1].split("-")[1].split(".")]


def main() -> int:
    """Print one line a file; 1 where any differs."""
    made, kept = map(Path, sys.argv[1:])
    failed = 0
    for new, old in pairs(made, kept):
        found = differences(load(new), load(old))
        print(f"{new.name}: {'differs in ' + ', '.join(found) if found else 'same'}")
        failed += bool(found)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
