"""The search for what reproduces an engine: one hypothesis, or two together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.proof.columns import column_scores
from rounddiag.proof.fitting import fit_family
from rounddiag.proof.hypotheses.hypothesis import Family, Hypothesis
from rounddiag.proof.hypotheses.sampling import FITTED, bias_families, order_families
from rounddiag.proof.judge import (
    LEAST_RATIO,
    Opinion,
    base_opinion,
    correlate_changes,
    judge,
    noise_floor,
)
from rounddiag.proof.scorer import Scorer, StoppedError
from rounddiag.proof.scores import ScoreTable
from rounddiag.proof.verdict import EngineResult
from rounddiag.proof.weights import kept_rounds, weights_by_sample

Finalists: TypeAlias = tuple[Sequence[Hypothesis], AbstractSet[str] | None]
"""Hypotheses, and the names of families that are fitted; None for all."""
Chain: TypeAlias = tuple[Hypothesis, ...]
Ranking: TypeAlias = list[tuple[Hypothesis, Opinion]]

FEW = 2  # samples to which a number is fitted
KEPT = 5  # hypotheses of each engine that are scored on more samples
ALIKE = 2  # and those that change the tokens as the engine does, beside another fault
BEAM = 3  # hypotheses on top of which others are tried
_EXACT = 1.0  # times the noise: an engine that is reproduced so needs no hypothesis
_FAR = 0.003  # share of tokens that may be far off even so


@dataclass(eq=False)
class Search:
    """Judges hypotheses about each engine, and fits those that have a number.

    Attributes
    ----------
    known: All hypotheses that are tried: the more, the more evidence one needs.
    checkpoints: Those about older weights.
    names: Families or causes whose numbers are fitted; None for all.
    tables, opinions, fitted, about_columns: What is known already.
    """

    scorer: Scorer
    known: Sequence[Hypothesis]
    checkpoints: Sequence[Hypothesis] = ()
    names: AbstractSet[str] | None = None
    tables: dict[object, ScoreTable] = field(default_factory=dict)
    opinions: dict[object, Opinion] = field(default_factory=dict)
    fitted: dict[object, Hypothesis | None] = field(default_factory=dict)
    about_columns: dict[object, Sequence[tuple[Hypothesis, Array, Array | None]]] = (
        field(default_factory=dict)
    )

    def table(self, samples: Sequence[int]) -> ScoreTable:
        """Return the scores of plain inputs beside those of the batch."""
        key = self.part(samples)
        if key not in self.tables:
            self.tables[key] = self.scorer.table(samples)
        return self.tables[key]

    def part(self, samples: Sequence[int]) -> object:
        """Return what tells apart the tokens of samples that are cut or whole."""
        return tuple((sample, self.scorer.limits.get(sample)) for sample in samples)

    def judge_base(self, samples: Sequence[int]) -> list[EngineResult]:
        """Return how well unchanged inputs reproduce each engine."""
        table = self.table(samples)
        number = len(self.known) + len(FITTED)
        return [
            EngineResult(
                engine=engine,
                base=base_opinion(table, engine, noise_floor(table, engine)),
                num_hypotheses=number,
                samples=samples,
            )
            for engine in self.scorer.engines
        ]

    def judge(
        self, samples: Sequence[int], tested: Mapping[str, Finalists]
    ) -> list[EngineResult]:
        """Return what reproduces each engine, of the hypotheses tested about it."""
        results = []
        for base in self.judge_base(samples):
            if is_exact(base.base):
                results.append(base)
            else:
                trial = _Trial(self, base.engine, samples, *tested[base.engine])
                results.append(trial.run(base))
        return results

    def choose(
        self, samples: Sequence[int], screened: Mapping[Hypothesis, Array]
    ) -> dict[str, Finalists]:
        """Return the best hypotheses about each engine of those that were screened."""
        best: dict[str, Finalists] = {}
        for result in self.judge_base(samples):
            if is_exact(result.base):
                continue
            trial = _Trial(self, result.engine, samples, (), None)
            ranked = sort_ranking(
                (hypothesis, trial.opinion(hypothesis, scores))
                for hypothesis, scores in screened.items()
            )
            alike = {
                hypothesis: correlate_changes(trial.table, result.engine, scores)
                for hypothesis, scores in screened.items()
            }
            finalists = [pair[0] for pair in ranked if pair[1].reproduces]
            finalists += [pair[0] for pair in ranked[:KEPT]]
            finalists += sorted(alike, key=alike.__getitem__, reverse=True)[:ALIKE]
            best[result.engine] = list(dict.fromkeys(finalists)), None
        return best


class _Trial:
    def __init__(
        self,
        search: Search,
        engine: str,
        samples: Sequence[int],
        tested: Sequence[Hypothesis],
        families: AbstractSet[str] | None,
    ) -> None:
        self.search, self.scorer = search, search.scorer
        self.engine, self.samples = engine, samples
        self.tested, self.families = tested, families
        self.table = search.table(samples)
        self.floor = noise_floor(self.table, engine)
        self.part = search.part(samples)

    def run(self, base: EngineResult) -> EngineResult:
        """Return what holds together, at most two, and the ranking that the last won.

        If none reproduces the engine alone, each of the best is taken as the new base
        of all others.
        """
        first = self._rank((), self.table)
        threshold = np.log(LEAST_RATIO * base.num_hypotheses)
        good = [pair for pair in first[:BEAM] if pair[1].evidence >= threshold]
        chain, last = good[:1], first
        if good and not good[0][1].reproduces:
            pairs = [*self._pairs(good)]
            if pairs:
                chain, last = min(
                    pairs, key=lambda each: each[0][-1][1].residual_to_noise
                )
        return replace(base, ranking=first, chain=chain, last=last)

    def _pairs(self, good: Ranking) -> Iterator[tuple[Ranking, Ranking]]:
        """Yield two that reproduce the engine together, and the ranking of the second.

        A number was fitted without the other: it is fitted again on top of the other.
        """
        swapped: list[Hypothesis] = []
        is_found = False
        for pair in good:
            more = self._rank_on(pair)
            if more and more[0][1].reproduces:
                is_found = True
                yield [pair, more[0]], more
            elif pair[0] not in self.search.known:
                ranked = (hypothesis for hypothesis, _ in more)
                swapped += [each for each in ranked if each in self.search.known][:1]
        if is_found or not swapped:
            return
        alike = max(
            self.tested,
            key=lambda hypothesis: correlate_changes(
                self.table, self.engine, self.scorer.column((hypothesis,), self.samples)
            ),
        )
        for hypothesis in dict.fromkeys([*swapped, alike]):
            scores = self.scorer.column((hypothesis,), self.samples)
            alone = judge(
                self.table,
                self.engine,
                hypothesis.name,
                scores,
                self.floor,
                is_whole=True,
            )
            more = self._rank_on((hypothesis, alone))
            if more and more[0][1].reproduces:
                yield [(hypothesis, alone), more[0]], more

    def _rank_on(self, pair: tuple[Hypothesis, Opinion]) -> Ranking:
        here = self.table.rebase(self.engine, pair[1].scores)
        return self._rank((pair[0],), here)

    def opinion(
        self,
        hypothesis: Hypothesis,
        scores: Array,
        chain: Chain = (),
        table: ScoreTable | None = None,
    ) -> Opinion:
        """Judge a hypothesis on top of those that hold already."""
        key = (self.engine, self.part, chain, hypothesis)
        known = self.search.opinions
        if key not in known:
            known[key] = judge(
                self.table if table is None else table,
                self.engine,
                hypothesis.name,
                scores,
                self.floor,
                is_whole=hypothesis.is_whole,
                excludes=hypothesis.excludes,
            )
        return known[key]

    def _rank(self, chain: Chain, table: ScoreTable) -> Ranking:
        def add(hypothesis: Hypothesis) -> None:
            with suppress(StoppedError):
                scores = self.scorer.column((*chain, hypothesis), self.samples)
                ranking.append(
                    (hypothesis, self.opinion(hypothesis, scores, chain, table))
                )

        ranking: Ranking = []
        for hypothesis in self.tested:
            if hypothesis not in chain:
                add(hypothesis)
        if "logits" in self.scorer.engine.abilities:
            for hypothesis in self._fit(chain, table):
                add(hypothesis)
        if not chain:
            for hypothesis, scores, unknown in self._about_columns():
                here = table if unknown is None else table.without(self.engine, unknown)
                ranking.append(
                    (hypothesis, self.opinion(hypothesis, scores, chain, here))
                )
            wheres = [(hypothesis, opinion.where) for hypothesis, opinion in ranking]
            for hypothesis in kept_rounds(wheres):
                add(hypothesis)
        return sort_ranking(ranking)

    def _about_columns(self) -> Sequence[tuple[Hypothesis, Array, Array | None]]:
        """Return hypotheses whose scores follow from those that are known.

        With the tokens about which they say nothing.
        """
        key = (self.engine, self.part)
        known = self.search.about_columns
        if key not in known:
            given = self.scorer, self.table, self.engine, self.samples
            scored = [*column_scores(*given)]
            with suppress(StoppedError):
                mixed = weights_by_sample(*given, self.search.checkpoints)
                scored += [] if mixed is None else [(*mixed, None)]
            known[key] = scored
        return known[key]

    def _fit(self, chain: Chain, table: ScoreTable) -> Iterator[Hypothesis]:
        few = self.samples[:FEW]
        part = self.search.part(few)
        small = table.take(np.isin(table.sample, few))
        known = self.search.fitted

        def compute(hypotheses: Sequence[Hypothesis]) -> Array:
            chains = [(*chain, hypothesis) for hypothesis in hypotheses]
            return np.stack([self.scorer.column(each, few) for each in chains])

        for family in self._families(chain, table):
            key = (self.engine, part, chain, family.name)
            with suppress(StoppedError):
                if key not in known:
                    self.scorer.go_on()
                    known[key] = fit_family(family, small, self.engine, compute)
                hypothesis = known[key]
                if hypothesis is not None:
                    yield hypothesis

    def _families(self, chain: Chain, table: ScoreTable) -> Iterator[Family]:
        residual = table.base - table.engines[self.engine]
        biases = bias_families(self.scorer.token_ids(self.samples), residual)
        names = self.search.names
        sampling = [
            family
            for family in (*FITTED, *order_families(chain), *biases)
            if names is None or {family.name, family.cause} & names
        ]
        for family in (*self.scorer.families, *sampling):
            if self.families is None or family.name in self.families:
                yield family


def is_exact(base: Opinion) -> bool:
    """Return whether an engine is reproduced so well that it needs no hypothesis."""
    return base.residual_to_noise <= _EXACT and base.harmed <= _FAR


def sort_ranking(judged: Iterable[tuple[Hypothesis, Opinion]]) -> Ranking:
    """Put what reproduces the engine before what is only better than the base."""
    return sorted(judged, key=lambda pair: (not pair[1].reproduces, -pair[1].evidence))
