"""Two batches that are compared: their names, paired samples and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.figures.compare import COMPARE_LAYERS
from rounddiag.stats.heatmap_rows import Order, common_order, summarize_samples
from rounddiag.stats.pairing import pair_samples, paired_cells, worst_differences
from rounddiag.widgets.filters import FilteredBatch
from rounddiag.widgets.state import Heatmap, State
from rounddiag.wording import pluralize


class BatchPair:
    """Two batches whose samples are paired by their ids.

    Parameters
    ----------
    batches : mapping of str to Batch
        The baseline first.

    Attributes
    ----------
    samples: The paired samples, as from `stats.pairing.partners`.
    partners: From samples of the first batch to samples of the second, and back.
    """

    def __init__(self, batches: Mapping[str, Batch]) -> None:
        self.names = tuple(batches)
        self._batches = tuple(batches.values())
        self.samples = pair_samples(*(batch.sample_ids for batch in self._batches))
        first, other = (self.samples[key].tolist() for key in self.samples.columns[1:])
        self.partners: tuple[dict[int, int], ...] = (
            dict(zip(first, other, strict=True)),
            dict(zip(other, first, strict=True)),
        )

    @property
    def initial_state(self) -> dict[str, Any]:
        """What is shown first: the difference of the second batch from the first."""
        heatmap = "batch" if self.unpaired_reason else "difference"
        return {"batch": 1, "heatmap": heatmap}

    @property
    def description(self) -> str:
        """How many samples are paired, and how many are in one batch only."""
        if self.unpaired_reason:
            return self.unpaired_reason
        paired = f"{pluralize(len(self.samples), 'sample')} of both"
        only = [
            f"{pluralize(num, 'sample')} of {name} only"
            for name, batch in zip(self.names, self._batches, strict=True)
            if (num := batch.num_samples - len(self.samples))
        ]
        return "; ".join([f"{paired}, paired by sample id", *only])

    @property
    def unpaired_reason(self) -> str:
        """Why samples are not paired; empty where they are."""
        if len(self.samples):
            return ""
        without = [
            name
            for name, batch in zip(self.names, self._batches, strict=True)
            if not batch.sample_ids
        ]
        if without:
            return f"samples are not paired: no `sample_ids` in {' and '.join(without)}"
        return "samples are not paired: less than half share their `sample_ids`"

    def describe_sample(self, batch: int, sample: int) -> dict[str, Any]:
        """Name the batch of a sample, and its partner in the other batch."""
        own, other = self.names[batch], self.names[1 - batch]
        if self.unpaired_reason:
            return {"of": own}
        partner = self.partners[batch].get(sample)
        where = "not in" if partner is None else f"sample {partner} in"
        said = "" if partner == sample else f"{where} {other}"
        return {"of": own, "partner": said, "partner_sample": partner}

    def options(self, options: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Reduce the options of either batch to those that hold for both."""
        first, other = options
        shared = {
            key: [value for value in first[key] if value in other[key]]
            for key in ("order", "scores")
        }
        shared["order"] = [
            order for order in shared["order"] if order in get_args(Order)
        ]
        of_pairs = {
            "batch": [0, 1],
            "heatmap": [*get_args(Heatmap)],
            # Layers of a single batch stay valid, so that a state can be reused.
            "layers": {**first["layers"], **dict.fromkeys(COMPARE_LAYERS, True)},
            "by": [],  # `plot_compare` draws one line a batch
            "axis": ["round"],
        }
        return [{**own, **shared, **of_pairs} for own in options]

    def translate_state(self, state: State) -> dict[str, Any]:
        """Return filter and cells of a state with the other batch's sample numbers.

        Samples without a partner are left out of both.
        """
        changes: dict[str, Any] = {"filter": self.translate_filter(state)}
        changes["cells"] = None
        if state.cells is not None:
            partner = self.partners[state.batch]
            samples = [
                partner[sample] for sample in state.cells.samples if sample in partner
            ]
            if samples:
                changes["cells"] = replace(state.cells, samples=tuple(samples))
        return changes

    def translate_filter(self, state: State) -> dict[str, Any]:
        """Return the filter of a state with the other batch's sample numbers.

        Samples without a partner are left out; of ids nothing has to be translated.
        """
        keep = dict(state.filter)
        if (wanted := keep.get("sample")) is not None and not isinstance(wanted, dict):
            wanted = wanted if isinstance(wanted, list | tuple) else [wanted]
            partner = self.partners[state.batch]
            known = [
                sample
                for sample in wanted
                if isinstance(sample, str) or sample in partner
            ]
            keep["sample"] = [partner.get(sample, sample) for sample in known]
        return keep


@dataclass(frozen=True)
class FilteredPair:
    """What a filter keeps of two batches.

    Attributes
    ----------
    sides: Of the first and of the second batch.
    batch: The active batch: frames have its sample numbers.
    """

    pair: BatchPair
    sides: tuple[FilteredBatch, FilteredBatch]
    batch: int

    @property
    def data(self) -> dict[str, Batch | pd.DataFrame]:
        """The input of `plot_compare`; frames have the ids that pair their samples."""
        data = (side.data if side.is_all else _with_ids(side) for side in self.sides)
        return dict(zip(self.pair.names, data, strict=True))

    @cached_property
    def worst(self) -> dict[str, pd.DataFrame]:
        """All rounds and samples of both, those that differ most first."""
        first, other = (side.tokens for side in self.sides)
        num = len(first)
        worst = worst_differences(first, other, self.pair.samples, num=num)
        return {name: self._renumber(rows) for name, rows in worst.items()}

    def differences(self, metric: str) -> pd.DataFrame:
        """Return the difference in each round that both samples of a pair have."""
        first, other = (side.cells for side in self.sides)
        return self._renumber(paired_cells(first, other, self.pair.samples, metric))

    def order(self, order: Order, metric: str) -> list[int]:
        """Return all samples of the active batch in order, the paired ones first."""
        first, other = (
            summarize_samples(side.batch, side.cells, side.batch.num_samples)
            for side in self.sides
        )
        orders = common_order(first, other, self.pair.samples, order, metric)
        return orders[self.batch]

    def values(self, metric: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the values of all cells of both batches, to share a colour range."""
        return np.concatenate([side.cells[metric].to_numpy() for side in self.sides])

    def _renumber(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Use the sample numbers of the active batch."""
        own = ("baseline_sample", "sample")[self.batch]
        return rows.assign(sample=rows[own])


def _with_ids(side: FilteredBatch) -> pd.DataFrame:
    batch, sample = side.batch, side.tokens["sample"].to_numpy()
    names = {"sample_id": batch.sample_ids, "group_id": batch.group_ids}
    ids = {
        key: np.asarray(values, dtype=object)[sample]
        for key, values in names.items()
        if values is not None
    }
    return side.tokens.assign(**ids)
