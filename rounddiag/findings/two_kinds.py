"""Whole groups, samples or rounds of two kinds: some differ, and the others agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rounddiag._typing import Array
from rounddiag.checks.contracts import LEVEL
from rounddiag.findings.excess import EXCESS_FACTORS
from rounddiag.findings.view import ROUNDING, View
from rounddiag.wording import join_names, pluralize

_LEAST_GAP = float(
    np.log(EXCESS_FACTORS[0])
)  # the lowest excess that counts in a place


@dataclass(frozen=True, eq=False, kw_only=True)
class TwoKinds:
    """The units of a batch that differ, and those that agree.

    Attributes
    ----------
    unit: `group`, `sample` or `round`.
    differing: int64 array. The numbers of the units that differ.
    num_units: How many units have tokens.
    tokens: bool array. The tokens of the view in units that differ.
    mean: Mean |diff| of these tokens, in nats.
    most_elsewhere: The largest mean |diff| of a unit that agrees, in nats.
    p: The probability of so wide a gap between them by chance.
    """

    unit: str
    differing: Array
    num_units: int
    tokens: Array
    mean: float
    most_elsewhere: float
    p: float

    @property
    def has_gaps(self) -> bool:
        """Whether a unit between two that differ agrees, or the last one."""
        return bool(self.differing[0] + len(self.differing) < self.num_units)

    @property
    def text(self) -> str:
        """How far they differ, and how far the others agree, as a clause."""
        num = len(self.differing)
        which = f"{num:,} of {pluralize(self.num_units, self.unit)}"
        if self.unit == "round":
            names = join_names(self.differing.tolist(), num, most=8)
            which = f"round {names}" if num == 1 else f"rounds {names}"
        verb = "differs" if num == 1 else "differ"
        size = f"{self.mean:.2g} nat on average"
        return f"{which} {verb} by {size}; the others {self.elsewhere}"

    @property
    def elsewhere(self) -> str:
        """How far the other units agree, as the end of a clause."""
        if not self.most_elsewhere:
            return "are bitwise equal"
        return f"agree to {self.most_elsewhere:.2g} nat"


def find_two_kinds(view: View) -> TwoKinds | None:
    """Return the units that differ if the others agree: groups, samples or rounds."""
    if "two_kinds" not in view.memo:
        view.memo["two_kinds"] = _search(view)
    return view.memo["two_kinds"]


def _search(view: View) -> TwoKinds | None:
    samples, group = split_units(view, "sample", view.sample), view.facts.group
    if group is not None and len(np.unique(group)) < len(group):
        groups = split_units(view, "group", group[view.sample])
        if samples is None or (groups and (groups.tokens == samples.tokens).all()):
            samples = groups
    return samples or split_units(view, "round", view.round)


def split_units(view: View, unit: str, number: Array) -> TwoKinds | None:
    """Return the units above the widest gap of |diff|; None without two kinds.

    The level of a unit is the mean of log |diff|, which a few large tokens do not move.
    Two kinds are further apart than either is wide (strict separation: Balcan, Blum and
    Vempala, STOC 2008), and by the factor from which on an excess counts in a place.
    They are not of two kinds by chance: under the null, levels are spread evenly, the
    flattest of all distributions with one mode (Hartigan and Hartigan, Ann. Stat.
    13(1), 1985), and a gap of a part g of the range of n levels has a probability of
    (n - 1) (1 - g)**(n - 2) at most.
    """
    num = np.bincount(number)
    units = np.flatnonzero(num)
    mean = np.bincount(number, weights=view.abs_diff)[units] / num[units]
    size = np.log(np.maximum(view.abs_diff, ROUNDING))
    level = np.bincount(number, weights=size)[units] / num[units]
    order = np.argsort(level, kind="stable")
    gaps = np.diff(level[order])
    widest = int(gaps.argmax()) if len(gaps) else 0
    if not len(gaps) or gaps[widest] < _LEAST_GAP:
        return None
    part = gaps[widest] / gaps.sum()
    p = (len(units) - 1) * (1 - part) ** (len(units) - 2)
    if p >= LEVEL or gaps[widest] < max(gaps[:widest].sum(), gaps[widest + 1 :].sum()):
        return None
    others, own = np.split(order, [widest + 1])
    if mean[own].min() <= mean[others].max():
        return None
    differing = np.sort(units[own])
    tokens = np.isin(number, differing)
    return TwoKinds(
        unit=unit,
        differing=differing,
        num_units=len(units),
        tokens=tokens,
        mean=float(view.abs_diff[tokens].mean()),
        most_elsewhere=float(mean[others].max()),
        p=float(p),
    )
