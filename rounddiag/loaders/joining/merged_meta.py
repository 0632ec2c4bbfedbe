"""`meta` of several batches in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.left_out import left_out_of, told_left_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch

# Entries of `meta` that are not told file by file.
_COUNTED = {"left_out", "not_measurable", "num_dropped_rows", "source"}


def sources(parts: Sequence[Batch]) -> list[str]:
    """Return where each came from, or a number."""
    return [str(p.meta.get("source", f"batch {i}")) for i, p in enumerate(parts)]


def merged_meta(
    parts: Sequence[Batch], num_copies: int, lost: Sequence[str]
) -> dict[str, Any]:
    """Merge what the batches say.

    Parameters
    ----------
    parts : sequence of Batch
    num_copies : int
        Rows dropped in joining them, to be counted with those of their own.
    lost : sequence of str
        Names left out in joining them.
    """
    names = dict.fromkeys(name for part in parts for name in part.meta)
    told = {name: _told(parts, name) for name in names if name not in _COUNTED}
    dropped = [part.meta.get("num_dropped_rows") for part in parts]
    counts = {"num_dropped_rows": sum(n for n in dropped if isinstance(n, int))}
    counts["num_dropped_rows"] += num_copies
    left_out = {*lost, *(name for part in parts for name in left_out_of(part))}
    return {
        "source": ", ".join(sources(parts)),
        **told,
        **(counts if any(counts.values()) else {}),
        **told_left_out(left_out),
    }


def _told(parts: Sequence[Batch], name: str) -> object:
    """Return what all say alike, or what each says, by its source."""
    named = zip(sources(parts), parts, strict=True)
    here = [(source, part.meta[name]) for source, part in named if name in part.meta]
    first = here[0][1]
    is_one = len(here) == len(parts) and all(value == first for _, value in here)
    return first if is_one else dict(here)
