"""Two batches: what they are called, and which of their samples are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from rounddiag.checks.words import count
from rounddiag.figures.compare import LAYERS
from rounddiag.stats.partners import partners
from rounddiag.widgets.state import Heatmap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag.batch import Batch
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
        paired = f"{count(len(self.pairs), 'sample')} of both, paired by `sample_ids`"
        alone = [
            f"{count(num, 'sample')} of {name} only"
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
