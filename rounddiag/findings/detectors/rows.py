"""`swapped_rows`: rows that have the log-probs of other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.detectors.masks import not_written
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# Number of tokens of a row to compare, and how many the other row must have.
PROBES = 96
MIN_PROBES = 8
# Rows with a mean |diff| above this, in nats, are tried: at most this many.
MIN_DIFF = 0.1
MAX_ROWS = 192
# The other row must leave less than this part of the row's own mean |diff|.
REST = 0.4
# And save this much over the row, in nats: a few certain tokens fit by chance.
MIN_GAIN = 2.0
MIN_ROWS = 2
MIN_ZEROS = 3
LARGE = 2.0


@register("swapped_rows", kind="reversal")
def swapped_rows(view: View) -> Evidence | None:
    """Find rows whose `old` fits the `rollout` of another row."""
    own = view.per_sample(view.abs_diff)
    tried = np.flatnonzero((own > MIN_DIFF) & (view.num_per_sample >= MIN_PROBES))
    if len(tried) < MIN_ROWS:
        return None
    tried = tried[np.argsort(-own[tried], kind="stable")][:MAX_ROWS]
    begins = np.searchsorted(view.sample, np.arange(view.batch.num_samples + 1))
    by_position = _Storage(view)
    partner: dict[int, int] = {}
    rest: dict[int, float] = {}
    for sample in tried.tolist():
        index = np.arange(begins[sample], begins[sample + 1])[:PROBES]
        o = view.log_prob_a[index]
        # A few extreme values must not decide: a filled tail fits any other row better.
        here = float(np.minimum(view.abs_diff[index], LARGE).mean())
        for other, left in (
            by_position.nearest(o, view.position[index], sample),
            _nearest_in_order(view, o, begins, sample),
        ):
            is_near = left < REST * here and (here - left) * len(index) > MIN_GAIN
            if is_near and left < rest.get(sample, np.inf):
                partner[sample], rest[sample] = other, left
    if len(partner) < MIN_ROWS:
        return None
    samples = np.union1d(sorted(partner), _short(view))
    tokens = np.isin(view.sample, samples)
    left = float(np.mean(list(rest.values())))
    first = min(partner)
    return Evidence(
        tokens=tokens,
        where={
            "samples": samples,
            "partners": {int(k): int(v) for k, v in partner.items()},
        },
        measures=(
            Measure(name="rows", value=len(partner), unit="samples"),
            Measure(
                name="mean |diff| with their own row",
                value=float(own[list(partner)].mean()),
                unit="nat",
            ),
            Measure(name="mean |diff| with the other row", value=left, unit="nat"),
        ),
        shown=(
            f"{len(partner)} rows fit the `{view.b}` log-probs of another row: "
            f"{left:.3g} nat against {own[list(partner)].mean():.3g} with their own. "
            f"Sample {first} has those of sample {partner[first]}."
        ),
        next_step=(
            "Join the sampler's results by request id, not by order; look for a sort "
            "or a balancing step that moves one column only."
        ),
    )


def _short(view: View) -> Array:
    """Return rows with wrong zeros at uncertain tokens.

    The row in their place was too short to be recognised.
    """
    wrong = (view.log_prob_b == 0) & (view.abs_diff > MIN_DIFF) & ~not_written(view)
    num = np.bincount(view.sample[wrong], minlength=view.batch.num_samples)
    rows: Array = np.flatnonzero(num >= MIN_ZEROS)
    return rows


class _Storage:
    """The sampler's log-probs of all rows by position in the response."""

    def __init__(self, view: View) -> None:
        self.values = view.batch.log_probs(view.b).float().cpu().numpy()
        offsets = view.batch.offsets.cpu().numpy()
        self.start, self.size = offsets[:-1], np.diff(offsets)

    def nearest(self, o: Array, position: Array, sample: int) -> tuple[int, float]:
        inside = position[None, :] < self.size[:, None]
        index = np.minimum(self.start[:, None] + position, len(self.values) - 1)
        away = np.where(
            inside, np.minimum(np.abs(o - self.values[index]), LARGE), np.nan
        )
        return _least(away, sample)


def _nearest_in_order(
    view: View, o: Array, begins: Array, sample: int
) -> tuple[int, float]:
    steps = np.arange(len(o))
    inside = steps < (begins[1:] - begins[:-1])[:, None]
    index = np.minimum(begins[:-1, None] + steps, len(view) - 1)
    return _least(
        np.where(inside, np.minimum(np.abs(o - view.log_prob_b[index]), LARGE), np.nan),
        sample,
    )


def _least(away: Array, sample: int) -> tuple[int, float]:
    """Return the nearest other row, and its distance."""
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
