"""`swapped_rows`: rows that have the log-probs of other rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core.columns import to_numpy
from rounddiag.core.scores import select_scores
from rounddiag.findings.detectors.failed_checks import not_written
from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.noise import Noise
from rounddiag.findings.registry import register
from rounddiag.findings.view import LARGEST_DIFF

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# Most tokens of a row that are compared. Every other one chooses the row, and the rest
# judge it.
PROBES = 192
# Fewest of these, and fewest once a swap is established. Conventions: 2 or 8 change no
# answer of `tests.faults.bench --set`.
MIN_PROBES, MIN_FEW = 4, 2
# Rows with a mean |diff| above so many nats are tried, the worst first.
_MIN_DIFF = 0.1
MAX_ROWS = 192
# The best partner must leave less than this part of what the row's own log-probs leave,
# and of what the second best partner does: unrelated rows are all about equally far.
_REST = 0.5
MIN_ROWS = 2  # one row alone has nothing to be swapped with
# Wrong log-probs of exactly 0, of a row that got those of a shorter one. 2 or 6 change
# no answer.
_MIN_ZEROS = 3


@register("swapped_rows", kind="reversal")
def swapped_rows(view: View) -> Evidence | None:
    """Find rows whose `a` fits the `b` of other rows, which lost their own fit too."""
    if view.batch.response_ids is None:
        return None
    own = view.per_sample(np.minimum(view.abs_diff, LARGEST_DIFF))
    num = view.num_per_sample
    lost = np.flatnonzero((own > _MIN_DIFF) & (num >= 2 * MIN_PROBES))
    if len(lost) < MIN_ROWS:
        return None
    tried = lost[np.argsort(-own[lost], kind="stable")][:MAX_ROWS]
    table = _Table.from_view(view)
    sound = ~np.isin(view.sample, np.flatnonzero(own > _MIN_DIFF))
    noise = Noise(view=view, unchanged=sound)
    matches = {int(row): match for row in tried if (match := table.match(int(row)))}
    # Where a row is only better than its own, the values of both must have moved.
    matches = {
        row: match for row, match in matches.items() if own[match.partner] > _MIN_DIFF
    }
    if len(matches) < MIN_ROWS:
        return None
    rest = np.concatenate([match.rest for match in matches.values()])
    likely = np.concatenate([match.log_probs for match in matches.values()])
    if not noise.is_reached(rest, likely):
        return None
    # The swap is established: rows that lost their fit need fewer tokens.
    for row in [int(row) for row in tried if int(row) not in matches]:
        match = table.match(row, MIN_FEW)
        if match is not None and noise.is_reached(match.rest, match.log_probs):
            matches[row] = match
    samples = np.union1d(sorted(matches), _short(view))
    here, left = float(own[list(matches)].mean()), float(rest.mean())
    first = min(matches)
    return Evidence(
        tokens=np.isin(view.sample, samples),
        where={
            "samples": samples,
            "partners": {row: match.partner for row, match in sorted(matches.items())},
        },
        measures=(
            Measure("rows", len(matches), "samples"),
            Measure("mean |diff| with their own row", here, "nat"),
            Measure("mean |diff| with the other row", left, "nat"),
        ),
        shown=(
            f"With the `{view.b}` log-probs of another row, {here:.2g} nat become "
            f"{left:.2g} in {len(matches)} rows: sample {first} has those of sample "
            f"{matches[first].partner}. That is {noise.source}."
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
    num_wrong = np.zeros(view.batch.num_samples, dtype=np.int64)
    far = (view.abs_diff > _MIN_DIFF) & ~not_written(view)
    for values in (view.log_prob_a, view.log_prob_b):
        wrong = (values == 0) & far
        of_engine = np.bincount(view.sample[wrong], minlength=len(num_wrong))
        num_wrong = np.maximum(num_wrong, of_engine)
    return np.flatnonzero(num_wrong >= _MIN_ZEROS)


@dataclass(frozen=True, eq=False)
class _Match:
    """The row whose `b` fits a row's `a`, and what it leaves at other tokens."""

    partner: int
    rest: Array
    log_probs: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class _Table:
    """The generated tokens of all rows, by their place in the response."""

    view: View
    values: Array  # `b` of the batch, NaN where nothing was generated
    ids: Array
    start: Array
    size: Array
    begins: Array  # of each sample in the view

    @classmethod
    def from_view(cls, view: View) -> _Table:
        batch = select_scores(view.batch, view.a, view.b)
        values = batch.log_probs("rollout").double().cpu().numpy().copy()
        values[to_numpy(batch.response_mask) == 0] = np.nan
        offsets = to_numpy(batch.offsets)
        edges = np.arange(batch.num_samples + 1)
        return cls(
            view=view,
            values=values,
            ids=to_numpy(batch.require_ids()),
            start=offsets[:-1],
            size=np.diff(offsets),
            begins=np.searchsorted(view.sample, edges),
        )

    def match(self, row: int, min_probes: int = MIN_PROBES) -> _Match | None:
        """Return the row that fits clearly best, by place or by order."""
        view = self.view
        index = np.arange(self.begins[row], self.begins[row + 1])
        index = index[view.uncertain[index]][:PROBES]
        if len(index) < 2 * min_probes:
            return None
        for other, ids in (self._by_place(index), self._in_order(index, row)):
            away = np.minimum(np.abs(view.log_prob_a[index] - other), LARGEST_DIFF)
            # Equal texts prove nothing: the log-probs of the same ids may be alike.
            away[ids == view.token_id[index]] = np.nan
            best = self._best(away, index, row, min_probes)
            if best is not None:
                partner, rest = best
                likely = other[partner][1::2][np.isfinite(away[partner, 1::2])]
                return _Match(partner, rest, likely)
        return None

    def _best(
        self, away: Array, index: Array, row: int, min_probes: int
    ) -> tuple[int, Array] | None:
        fit, check = away[:, ::2], away[:, 1::2]
        known = np.isfinite(fit).sum(axis=1)
        mean = np.nansum(fit, axis=1) / np.maximum(known, 1)
        mean[(known < min_probes) | (np.arange(len(mean)) == row)] = np.inf
        first, *others = np.argsort(mean, kind="stable")[:2].tolist()
        own = np.minimum(self.view.abs_diff[index], LARGEST_DIFF)
        rest = check[first][np.isfinite(check[first])]
        if not np.isfinite(mean[first]) or len(rest) < min_probes:
            return None
        bar = min([float(own.mean()), *(mean[other] for other in others)])
        is_best = mean[first] < _REST * bar and rest.mean() < _REST * own.mean()
        return (int(first), rest) if is_best else None

    def _by_place(self, index: Array) -> tuple[Array, Array]:
        place = self.view.position[index]
        inside = place[None, :] < self.size[:, None]
        at = np.minimum(self.start[:, None] + place, len(self.values) - 1)
        return np.where(inside, self.values[at], np.nan), self.ids[at]

    def _in_order(self, index: Array, row: int) -> tuple[Array, Array]:
        view, step = self.view, index - self.begins[row]
        inside = step < np.diff(self.begins)[:, None]
        at = np.minimum(self.begins[:-1, None] + step, len(view) - 1)
        return np.where(inside, view.log_prob_b[at], np.nan), view.token_id[at]
