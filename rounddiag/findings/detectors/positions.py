"""`position_ids`, exact: saved position ids that no processor computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.findings.view import View

MIN_REPEATED = 3
# Rows of M-RoPE: time, height, width. Some files have the text position before them.
_AXES = 3


@register("repeated_position_ids", kind="fact")
def repeated_position_ids(view: View) -> Evidence | None:
    """Find generated tokens whose position id is that of the token before."""
    tokens = np.zeros(len(view), dtype=bool)
    for part, values, at in _iterate_samples(view):
        tokens[part] = _repeats(values, at)
    num = int(tokens.sum())
    if num < MIN_REPEATED:
        return None
    first = int(np.flatnonzero(tokens)[0])
    return Evidence(
        cause="position_ids",
        tokens=_from_first(view, tokens),
        measures=(Measure(name="tokens with a repeated id", value=num, unit="tokens"),),
        shown=(
            f"{num} generated tokens have the position id of the token before, first "
            f"at position {int(view.position[first])} of sample "
            f"{int(view.sample[first])}: ids were rounded, as by a cast to bfloat16 "
            "above 256."
        ),
        next_step="Keep position ids in int64 from the processor to the model.",
    )


@register("impossible_position_ids", kind="fact")
def impossible_position_ids(view: View) -> Evidence | None:
    """Find M-RoPE ids that differ at text, or do not differ in images."""
    text, plain = (np.zeros(len(view), dtype=bool) for _ in range(2))
    for part, values, at in _iterate_samples(view):
        axes = values[-_AXES:]
        if len(axes) < _AXES:
            return None
        differs = (axes != axes[0]).any(axis=0)
        text[part] = differs[at]
        plain[part] = not differs.any() and _num_images(view, part) > 0
    for tokens, fact in (
        (text, "have another position id on each axis of M-RoPE, though they are text"),
        (plain, "follow images whose position ids only count tokens"),
    ):
        num = int(tokens.sum())
        if num >= MIN_REPEATED:
            return Evidence(
                cause="position_ids",
                tokens=_from_first(view, tokens),
                measures=(Measure(name="such tokens", value=num, unit="tokens"),),
                shown=f"{num} generated tokens {fact}.",
                next_step=(
                    "Compute position ids with the model's own get_rope_index on the "
                    "ids and grids of the whole sequence, in both engines."
                ),
            )
    return None


def _num_images(view: View, part: slice) -> int:
    if view.images is None:
        return 0
    known = view.images[part][np.isfinite(view.images[part])]
    return int(known.max(initial=0))


def _iterate_samples(view: View) -> Iterator[tuple[slice, Array, Array]]:
    """Yield tokens of a sample, its position ids [axes, length], and their places."""
    batch = view.batch
    edges = np.searchsorted(view.sample, np.arange(batch.num_samples + 1))
    for sample, places in enumerate(batch.position_ids or ()):
        part = slice(int(edges[sample]), int(edges[sample + 1]))
        values = np.atleast_2d(places.cpu().numpy())
        before = values.shape[-1] - int(batch.lengths[sample])
        at = before + view.position[part]
        if before >= 0 and len(at) and at.max() < values.shape[-1]:
            yield part, values, at


def _repeats(values: Array, at: Array) -> Array:
    before = np.maximum(at - 1, 0)
    same: Array = (values[:, at] == values[:, before]).all(axis=0) & (at > 0)
    return same


def _from_first(view: View, tokens: Array) -> Array:
    """Return all tokens of each sample from its first marked one on."""
    first = np.full(view.batch.num_samples, np.iinfo(np.int64).max)
    np.minimum.at(first, view.sample[tokens], view.position[tokens])
    later: Array = view.position >= first[view.sample]
    return later
