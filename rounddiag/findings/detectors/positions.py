"""`position_ids`, exact: saved position ids repeat, as after a cast to bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

MIN_REPEATED = 3


@register("repeated_position_ids", stage="exact")
def repeated_position_ids(view: View) -> Evidence | None:
    """Find generated tokens whose position id is that of the token before."""
    batch = view.batch
    if batch.position_ids is None:
        return None
    tokens = np.zeros(len(view), dtype=bool)
    edges = np.searchsorted(view.sample, np.arange(batch.num_samples + 1))
    for sample, places in enumerate(batch.position_ids):
        begin, stop = edges[sample], edges[sample + 1]
        values = places.cpu().numpy()
        before = values.shape[-1] - int(batch.lengths[sample])
        at = before + view.position[begin:stop]
        if before < 0 or not len(at) or at.max() >= values.shape[-1]:
            continue
        tokens[begin:stop] = _repeats(np.atleast_2d(values), at)
    num = int(tokens.sum())
    if num < MIN_REPEATED:
        return None
    first = int(np.flatnonzero(tokens)[0])
    return Evidence(
        cause="position_ids",
        score=0.97,
        tokens=_from_first(view, tokens),
        measures=(Measure(name="tokens with a repeated id", value=num, unit="tokens"),),
        explanation=(
            f"{num} generated tokens have the position id of the token before, "
            "first at "
            f"position {int(view.position[first])} of sample "
            f"{int(view.sample[first])}: "
            "ids were rounded, as by a cast to bfloat16 above 256."
        ),
        next_step="Keep position ids in int64 from the processor to the model.",
    )


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
