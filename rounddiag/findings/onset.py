"""The onset: the round from which on a batch differs, as a change point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rounddiag._typing import Array
from rounddiag.findings.excess import usual_size
from rounddiag.findings.place import Place
from rounddiag.findings.starts import first_rounds
from rounddiag.findings.view import View

_NUM_DRAWS = 400  # of whole samples, or groups, for the 95 % interval
_SEED = 5  # any: the same interval in every run


@dataclass(frozen=True, kw_only=True)
class Onset:
    """The round from which on |diff| is larger, with its interval.

    Attributes
    ----------
    low, high: 95 % interval, by resampling samples, or groups if there are groups.
    before, after: Mean |diff| of the rounds before it and from it on, in nats.
    """

    round: int
    low: int
    high: int
    before: float
    after: float

    def __str__(self) -> str:
        return f"round {self.round} on (95 % interval: {self.interval})"

    @property
    def interval(self) -> str:
        """The rounds of the interval."""
        is_one = self.low == self.high
        return "this round alone" if is_one else f"{self.low} to {self.high}"


def find_onset(view: View, place: Place) -> Onset | None:
    """Return the change point of a place that is "from round k on"; else None."""
    latest = place.latest
    if latest is None:
        return None
    totals, counts = _by_owner(view, place)
    draws = np.random.default_rng(_SEED).multinomial(
        len(totals), np.full(len(totals), 1 / len(totals)), size=_NUM_DRAWS
    )
    first = int(first_rounds(totals.sum(0), counts.sum(0), latest)[0])
    drawn = first_rounds(draws @ totals, draws @ counts, latest)
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    late, before = (
        (place.base & (view.round >= first)),
        place.base & (view.round < first),
    )
    return Onset(
        round=first,
        low=min(int(low), first),
        high=max(int(high), first),
        before=float(view.abs_diff[before].mean()),
        after=float(view.abs_diff[late].mean()),
    )


def _by_owner(view: View, place: Place) -> tuple[Array, Array]:
    group = view.facts.group
    owner = view.sample if group is None else group[view.sample]
    owner = np.unique(owner, return_inverse=True)[1]
    shape = (int(owner.max()) + 1, int(view.round.max()) + 1)
    at = owner * shape[1] + view.round
    size, usual = usual_size(view, ~place.tokens)
    return tuple(  # type: ignore[return-value]
        np.bincount(at, values * place.base, shape[0] * shape[1]).reshape(shape)
        for values in (size, usual)
    )
