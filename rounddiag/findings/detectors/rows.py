"""`swapped_rows`: a row has the log-probs of another row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import Array, View

# Tokens of a row that are compared, and how many must exist in the other row.
PROBES = 96
MIN_PROBES = 8
# Rows with a mean |diff| above this, in nats, are tried, and so many of them at most.
MIN_DIFF = 0.1
MAX_ROWS = 192
# The other row must leave less than this part of the row's own mean |diff|.
REST = 0.4
MIN_ROWS = 2


@register("swapped_rows", stage="exact")
def swapped_rows(view: View) -> Evidence | None:
    """Find rows whose `old` fits the `rollout` of another row."""
    own = view.per_sample(view.abs)
    tried = np.flatnonzero((own > MIN_DIFF) & (view.num_per_sample >= MIN_PROBES))
    if len(tried) < MIN_ROWS:
        return None
    tried = tried[np.argsort(-own[tried], kind="stable")][:MAX_ROWS]
    begins = np.searchsorted(view.sample, np.arange(view.batch.num_samples + 1))
    by_position = _Storage(view)
    partner = {}
    rest = {}
    for sample in tried:
        index = np.arange(begins[sample], begins[sample + 1])[:PROBES]
        o, here = view.o[index], float(view.abs[index].mean())
        for other, left in (
            by_position.nearest(o, view.position[index], sample),
            _nearest_in_order(view, o, begins, sample),
        ):
            if left < REST * here and left < rest.get(sample, np.inf):
                partner[sample], rest[sample] = other, left
    if len(partner) < MIN_ROWS:
        return None
    samples = np.array(sorted(partner))
    tokens = np.isin(view.sample, samples)
    left = float(np.mean(list(rest.values())))
    first = int(samples[0])
    return Evidence(
        score=0.97,
        tokens=tokens,
        where={
            "samples": samples,
            "partners": {int(k): int(v) for k, v in partner.items()},
        },
        measures=(
            Measure(name="rows", value=len(samples), unit="samples"),
            Measure(
                name="mean |diff| with their own row",
                value=float(own[samples].mean()),
                unit="nat",
            ),
            Measure(name="mean |diff| with the other row", value=left, unit="nat"),
        ),
        explanation=(
            f"{len(samples)} rows fit the `{view.b}` log-probs of another row: "
            f"{left:.3g} nat against {own[samples].mean():.3g} with their own. Sample "
            f"{first} has those of sample {int(partner[first])}."
        ),
        next_step=(
            "Join the sampler's results by request id, not by order; look for a sort or "
            "a balancing step that moves one column only."
        ),
    )


class _Storage:
    """The sampler's log-probs of all rows by position in the response."""

    def __init__(self, view: View) -> None:
        self.values = view.batch.log_probs(view.b).float().cpu().numpy()
        offsets = view.batch.offsets.cpu().numpy()
        self.start, self.size = offsets[:-1], np.diff(offsets)

    def nearest(self, o: Array, position: Array, sample: int) -> tuple[int, float]:
        inside = position[None, :] < self.size[:, None]
        index = np.minimum(self.start[:, None] + position, len(self.values) - 1)
        away = np.where(inside, np.abs(o - self.values[index]), np.nan)
        return _least(away, sample)


def _nearest_in_order(
    view: View, o: Array, begins: Array, sample: int
) -> tuple[int, float]:
    steps = np.arange(len(o))
    inside = steps < (begins[1:] - begins[:-1])[:, None]
    index = np.minimum(begins[:-1, None] + steps, len(view) - 1)
    return _least(np.where(inside, np.abs(o - view.r[index]), np.nan), sample)


def _least(away: Array, sample: int) -> tuple[int, float]:
    """Return the other row that is nearest, and how near it is."""
    known = np.isfinite(away).sum(axis=1)
    total = np.nansum(away, axis=1)
    mean = np.where(
        known >= max(MIN_PROBES, away.shape[1] // 2),
        total / np.maximum(known, 1),
        np.inf,
    )
    mean[sample] = np.inf
    other = int(mean.argmin())
    return other, float(mean[other])
