"""Two batches: what they are called, and which of their samples are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from rounddiag.figures.compare import LAYERS
from rounddiag.stats.heatmap_rows import common_order, samples_of
from rounddiag.stats.pairing import paired_cells, partners, worst_differences
from rounddiag.widgets.state import Heatmap
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.stats.heatmap_rows import Order
    from rounddiag.widgets.session import Shown
    from rounddiag.widgets.state import Filter, State


class Comparison:
    """Two batches beside each other.

    Parameters
    ----------
    batches : mapping of str to Batch
        The one that the other is compared with first.

    Attributes
    ----------
    names : tuple of str
    pairs : DataFrame
        As `stats.partners` gives them.
    partners : tuple of two dicts of int to int
        For samples of the first batch their number in the other, and back.
    """

    def __init__(self, batches: Mapping[str, Batch]) -> None:
        self.names = tuple(batches)
        self._batches = tuple(batches.values())
        self.pairs = partners(*(batch.sample_ids for batch in self._batches))
        first, other = (self.pairs[name].tolist() for name in self.pairs.columns[1:])
        self.partners: tuple[dict[int, int], ...] = (
            dict(zip(first, other, strict=True)),
            dict(zip(other, first, strict=True)),
        )

    @property
    def first_state(self) -> dict[str, Any]:
        """What is looked at first: how much more the second batch is off."""
        return {"batch": 1, "heatmap": "batch" if self.why_apart else "difference"}

    @property
    def words(self) -> str:
        """Say how many samples are paired, and how many are in one batch only."""
        if self.why_apart:
            return self.why_apart
        paired = (
            f"{pluralize(len(self.pairs), 'sample')} of both, paired by `sample_ids`"
        )
        alone = [
            f"{pluralize(num, 'sample')} of {name} only"
            for name, batch in zip(self.names, self._batches, strict=True)
            if (num := batch.num_samples - len(self.pairs))
        ]
        return "; ".join([paired, *alone])

    @property
    def why_apart(self) -> str:
        """Say why samples are not paired; nothing where they are."""
        if len(self.pairs):
            return ""
        without = [
            name
            for name, batch in zip(self.names, self._batches, strict=True)
            if not batch.sample_ids
        ]
        if without:
            return f"samples are not paired: no `sample_ids` in {' and '.join(without)}"
        return "samples are not paired: less than half share their `sample_ids`"

    def place(self, batch: int, sample: int) -> dict[str, str]:
        """Say of which batch a sample is, and which one it is in the other."""
        found = {"of": self.names[batch]}
        if self.why_apart:
            return found
        other, partner = self.names[1 - batch], self.partners[batch].get(sample)
        where = "not in" if partner is None else f"sample {partner} in"
        return {**found, "partner": f"{where} {other}"}

    def options(self, of_batches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what can be chosen in either batch: what both have."""
        first, other = of_batches
        both = {
            key: [one for one in first[key] if one in other[key]]
            for key in ("order", "scores")
        }
        of_two = {
            "batch": [0, 1],
            "heatmap": [*get_args(Heatmap)],
            # Those of one alone may stay.
            "layers": {**first["layers"], **dict.fromkeys(LAYERS, True)},
        }
        fixed = {"by": [], "axis": ["round"]}  # a figure of two has lines of its own
        return [{**own, **both, **of_two, **fixed} for own in of_batches]

    def moved(self, state: State) -> dict[str, Any]:
        """Return the filter and the cells of a state for the other batch's samples.

        Samples that it does not have are left out of both.
        """
        found: dict[str, Any] = {"filter": self.filter_of(state), "cells": None}
        if state.cells is not None:
            known = self.partners[state.batch]
            samples = [known[one] for one in state.cells.samples if one in known]
            if samples:
                found["cells"] = replace(state.cells, samples=tuple(samples))
        return found

    def filter_of(self, state: State, missing: int | None = None) -> Filter:
        """Return the filter of a state for the other batch's samples."""
        sample = state.filter.sample
        if sample is None:
            return state.filter
        known = self.partners[state.batch]
        return replace(state.filter, sample=known.get(sample, missing))


@dataclass(frozen=True)
class Compared:
    """What a filter keeps of two batches.

    Attributes
    ----------
    comparison : Comparison
    sides : tuple of Shown
        Of the first batch, and of the other.
    batch : int
        Which of them is looked at: samples are called by its numbers.
    """

    comparison: Comparison
    sides: tuple[Shown, Shown]
    batch: int

    @property
    def data(self) -> dict[str, Batch | pd.DataFrame]:
        """What `plot_compare` draws: what is paired in batches is paired in frames."""
        found = (side.data if side.is_all else _with_names(side) for side in self.sides)
        return dict(zip(self.comparison.names, found, strict=True))

    @property
    def worst(self) -> dict[str, pd.DataFrame]:
        """The rounds and samples that differ most."""
        first, other = (side.tokens for side in self.sides)
        found = worst_differences(first, other, self.comparison.pairs)
        return {name: self._own(rows) for name, rows in found.items()}

    def differences(self, metric: str) -> pd.DataFrame:
        """Return the rounds that both samples of a pair have, with their difference."""
        first, other = (side.cells for side in self.sides)
        return self._own(paired_cells(first, other, self.comparison.pairs, metric))

    def order(self, order: Order, metric: str) -> list[int]:
        """Return all samples of the batch that is looked at; pairs come first."""
        first, other = (
            samples_of(side.batch, side.cells, side.batch.num_samples)
            for side in self.sides
        )
        both = common_order(first, other, self.comparison.pairs, order, metric)
        return both[self.batch]

    def values(self, metric: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return what cells of either batch show, which have one range of colours."""
        return np.concatenate([side.cells[metric].to_numpy() for side in self.sides])

    def _own(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Call samples by their numbers in the batch that is looked at."""
        own = ("baseline_sample", "sample")[self.batch]
        return rows.assign(sample=rows[own])


def _with_names(side: Shown) -> pd.DataFrame:
    """Return the tokens of a side with the ids of their samples and groups."""
    batch, sample = side.batch, side.tokens["sample"].to_numpy()
    names = {"sample_id": batch.sample_ids, "group_id": batch.group_ids}
    known = {
        key: np.asarray(values, dtype=object)[sample]
        for key, values in names.items()
        if values is not None
    }
    return side.tokens.assign(**known)
