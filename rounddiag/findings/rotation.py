"""Rotation: tokens that exceed the usual move along each sample; conditions stay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.sample_sets import SampleCounts, find_turns
from rounddiag.findings.slices import MOST, scan, select_cells, sums_of_relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag._typing import Array
    from rounddiag.findings.slices import Cells, Counts, Labels, Part
    from rounddiag.findings.view import View

# Most hits that are rotated: of more, a random part gives the same answer at less cost.
_MAX_ROTATED = 2000


@dataclass(frozen=True, eq=False)
class Rotation:
    """Tokens of one level that exceed the usual, as they are rotated along samples.

    Attributes
    ----------
    cell: Of each token that is searched.
    begins, lengths: Of each sample, among these tokens.
    hits, sample: Index among these tokens of each that exceeds the usual; its sample.
    num_hits: Of each sample.
    num_tokens, sample_of_cell: Searched tokens of each cell, and its sample.
    expected: Hits of each cell, if each sample's own are where tokens exceed most.
    spread: The variance between clusters over that of independent tokens.
    present: Samples with such tokens.
    """

    cell: Array
    begins: Array
    lengths: Array
    hits: Array
    sample: Array
    num_hits: Array
    num_tokens: Array
    sample_of_cell: Array
    expected: Array
    spread: float
    present: Array

    @classmethod
    def of(
        cls,
        view: View,
        cells: Cells,
        searched: Array,
        counts: Counts,
        rng: np.random.Generator,
    ) -> Rotation:
        """Take the tokens of a level, or a random part of them."""
        rows = np.flatnonzero(searched)
        sample = view.sample[rows]
        num = view.batch.num_samples
        hits = np.flatnonzero(counts.over[rows])
        if len(hits) > _MAX_ROTATED:
            hits = np.sort(rng.permutation(hits)[:_MAX_ROTATED])
        num_hits = np.bincount(sample[hits], minlength=num)
        by_sample = np.bincount(cells.sample, weights=counts.expected, minlength=num)
        rate = num_hits / np.maximum(by_sample, 1e-300)
        lengths = np.bincount(sample, minlength=num)
        return cls(
            cell=cells.of_tokens(np.arange(len(cells.first)))[rows],
            begins=np.searchsorted(sample, np.arange(num)),
            lengths=lengths,
            hits=hits,
            sample=sample[hits],
            num_hits=num_hits,
            num_tokens=cells.sums(searched),
            sample_of_cell=cells.sample,
            expected=counts.expected * rate[cells.sample],
            spread=counts.spread(cells.cluster, int(cells.cluster.max()) + 1),
            present=np.flatnonzero(lengths > 0),
        )

    def statistic(self, cells: Cells, parts: Sequence[Part]) -> float:
        """Return the statistic of conditions, against the rate of their own samples."""
        inside = select_cells(cells, parts)
        hits = inside[self.cell[self.hits]].sum()
        whole = float(len(self.hits))
        gain = float(scan(hits, self.expected[inside].sum(), whole, whole))
        return gain / self.spread

    def largest(self, turns: Array, conditions: Sequence[Labels]) -> Array:
        """Return the largest statistic over conditions, for each row of rotations.

        `turns` are parts of a whole turn, one a draw and sample.
        """
        cell = self.cell[self._rotate(turns)]
        num_draws, whole = len(turns), float(len(self.hits))
        row = np.arange(num_draws)[:, None]
        largest = np.zeros(num_draws)
        for condition in conditions:
            width = condition.num_values + 1
            at = (condition.codes[cell] + width * row).ravel()
            hits = np.bincount(at, minlength=num_draws * width)
            hits = hits.reshape(num_draws, width)[:, 1:]
            expected = np.bincount(
                condition.codes, weights=self._expected_evenly, minlength=width
            )[1:]
            for relation in condition.relations:
                e = sums_of_relation(relation, expected)
                gain = scan(sums_of_relation(relation, hits), e[None, :], whole, whole)
                gain[:, e > MOST * whole] = 0.0
                largest = np.maximum(largest, gain.max(axis=1, initial=0.0))
        return largest / self.spread

    def turn_gain(self, turn: Array) -> float:
        """Return the gain of samples that turn at tokens of their own, rotated."""
        at = np.sort(self._rotate(turn)) - self.begins[self.sample]
        hits = self.num_hits.astype(float)
        expected = self.lengths * (hits.sum() / self.lengths.sum())
        before = at / np.maximum(self.lengths[self.sample], 1) * expected[self.sample]
        turns = find_turns(
            self.sample, before, SampleCounts(self.present, hits, expected)
        )
        return 0.0 if turns is None else turns.log_likelihood_ratio

    def _rotate(self, turns: Array) -> Array:
        """Return where hits are among the searched tokens, after parts of a turn."""
        length, begin = self.lengths[self.sample], self.begins[self.sample]
        steps = (turns[..., self.sample] * length).astype(np.int64)
        return begin + (self.hits - begin + steps) % length

    @cached_property
    def _expected_evenly(self) -> Array:
        """Hits of each cell, if those of each sample are anywhere in it."""
        rate = self.num_hits / np.maximum(self.lengths, 1)
        return self.num_tokens * rate[self.sample_of_cell]
