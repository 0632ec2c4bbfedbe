"""The search for what reproduces an engine: one hypothesis, or two together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

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
from rounddiag.proof.scorer import Chain, Scorer, StoppedError
from rounddiag.proof.scores import ScoreTable, Stops
from rounddiag.proof.verdict import EngineResult
from rounddiag.proof.weights import kept_rounds, weights_by_sample

Finalists: TypeAlias = tuple[Sequence[Hypothesis], AbstractSet[str] | None]
"""Hypotheses, and the names of families that are fitted; None for all."""
Ranking: TypeAlias = list[tuple[Hypothesis, Opinion]]

_Known = TypeVar("_Known")

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
    """

    scorer: Scorer
    known: Sequence[Hypothesis]
    checkpoints: Sequence[Hypothesis] = ()
    names: AbstractSet[str] | None = None
    _memory: dict[object, Any] = field(default_factory=dict)

    def once(self, key: object, compute: Callable[[], _Known]) -> _Known:
        """Return what a key stands for, which is computed the first time only."""
        if key not in self._memory:
            self._memory[key] = compute()
        known: _Known = self._memory[key]
        return known

    def table(self, stops: Stops) -> ScoreTable:
        """Return the scores of plain inputs beside those of the batch."""
        return self.once(tuple(stops.items()), lambda: self.scorer.table(stops))

    def judge_base(self, stops: Stops) -> list[EngineResult]:
        """Return how well unchanged inputs reproduce each engine."""
        table = self.table(stops)
        number = len(self.known) + len(FITTED)
        return [
            EngineResult(
                engine=engine,
                base=base_opinion(table, engine, noise_floor(table, engine)),
                num_hypotheses=number,
                table=table,
            )
            for engine in self.scorer.engines
        ]

    def judge(
        self, stops: Stops, tested: Mapping[str, Finalists]
    ) -> list[EngineResult]:
        """Return what reproduces each engine, of the hypotheses tested about it."""
        return [
            base
            if is_exact(base.base)
            else _Trial(self, base, *tested[base.engine]).run()
            for base in self.judge_base(stops)
        ]

    def choose(
        self, stops: Stops, screened: Sequence[Hypothesis]
    ) -> dict[str, Finalists]:
        """Return the best hypotheses about each engine of those that were screened."""
        return {
            base.engine: (_Trial(self, base, screened, None).choose(), None)
            for base in self.judge_base(stops)
            if not is_exact(base.base)
        }


class _Trial:
    """Hypotheses about one engine, on the tokens of one table."""

    def __init__(
        self,
        search: Search,
        base: EngineResult,
        tested: Sequence[Hypothesis],
        families: AbstractSet[str] | None,
    ) -> None:
        self.search, self.scorer = search, search.scorer
        self.base, self.engine, self.table = base, base.engine, base.table
        self.tested, self.families = tested, families
        self.floor = noise_floor(self.table, self.engine)

    def choose(self) -> list[Hypothesis]:
        """Return those that reproduce the engine, the best, and the most alike."""
        ranked = sort_ranking((each, self.opinion(each)) for each in self.tested)
        chosen = [hypothesis for hypothesis, that in ranked if that.reproduces]
        chosen += [hypothesis for hypothesis, _ in ranked[:KEPT]]
        chosen += sorted(self.tested, key=self._likeness, reverse=True)[:ALIKE]
        return list(dict.fromkeys(chosen))

    def _likeness(self, hypothesis: Hypothesis) -> float:
        return correlate_changes(self.table, self.engine, self._column((hypothesis,)))

    def _column(self, chain: Chain) -> Array:
        return self.scorer.column(chain, self.table.stops)

    def run(self) -> EngineResult:
        """Return what holds together, at most two, and the ranking that the last won.

        If none reproduces the engine alone, each of the best is taken as the new base
        of all others.
        """
        first = self._rank((), self.table)
        threshold = np.log(LEAST_RATIO * self.base.num_hypotheses)
        good = [pair for pair in first[:BEAM] if pair[1].evidence >= threshold]
        chain, last = good[:1], first
        if good and not good[0][1].reproduces:
            pairs = [*self._pairs(good)]
            if pairs:
                chain, last = min(
                    pairs, key=lambda each: each[0][-1][1].residual_to_noise
                )
        return replace(self.base, ranking=first, chain=chain, last=last)

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
        alike = max(self.tested, key=self._likeness)
        for hypothesis in dict.fromkeys([*swapped, alike]):
            alone = self.opinion(replace(hypothesis, is_whole=True))
            more = self._rank_on((hypothesis, alone))
            if more and more[0][1].reproduces:
                yield [(hypothesis, alone), more[0]], more

    def _rank_on(self, pair: tuple[Hypothesis, Opinion]) -> Ranking:
        engines = {self.engine: self.table.engines[self.engine]}
        here = replace(self.table.rebase(pair[1].scores), engines=engines)
        return self._rank((pair[0],), here)

    def opinion(
        self, hypothesis: Hypothesis, chain: Chain = (), table: ScoreTable | None = None
    ) -> Opinion:
        """Judge a hypothesis on top of those that hold already, in a table of these."""
        here = self.table if table is None else table

        def compute() -> Opinion:
            scores = self._column((*chain, hypothesis))
            return judge(here, self.engine, hypothesis, scores, self.floor)

        return self.search.once((self.engine, self.table, chain, hypothesis), compute)

    def _rank(self, chain: Chain, table: ScoreTable) -> Ranking:
        def add(hypotheses: Iterable[Hypothesis]) -> None:
            for each in hypotheses:
                with suppress(StoppedError):
                    ranking.append((each, self.opinion(each, chain, table)))

        ranking: Ranking = []
        add(each for each in self.tested if each not in chain)
        if "logits" in self.scorer.engine.abilities:
            add(self._fit(chain, table))
        if not chain:
            ranking += self._about_columns()
            add(kept_rounds([(each, opinion.where) for each, opinion in ranking]))
        return sort_ranking(ranking)

    def _about_columns(self) -> Ranking:
        """Judge hypotheses whose scores follow from those that are known."""

        def compute() -> Iterator[tuple[Hypothesis, Opinion]]:
            given = self.scorer, self.table, self.engine
            scored = [*column_scores(*given)]
            with suppress(StoppedError):
                scored += weights_by_sample(*given, self.search.checkpoints)
            for hypothesis, scores, unknown in scored:
                here = self.table.without(self.engine, unknown)
                yield (
                    hypothesis,
                    judge(here, self.engine, hypothesis, scores, self.floor),
                )

        return self.search.once((self.engine, self.table), lambda: [*compute()])

    def _fit(self, chain: Chain, table: ScoreTable) -> Iterator[Hypothesis]:
        small = table.of_samples([*table.stops][:FEW])

        def compute(hypotheses: Sequence[Hypothesis]) -> Array:
            chains = [(*chain, hypothesis) for hypothesis in hypotheses]
            return np.stack([self.scorer.column(each, small.stops) for each in chains])

        def fit(family: Family) -> Hypothesis | None:
            self.scorer.clock.go_on()
            return fit_family(family, small, self.engine, compute)

        for family in self._families(chain, table):
            key = (self.engine, tuple(small.stops.items()), chain, family.name)
            with suppress(StoppedError):
                hypothesis = self.search.once(key, partial(fit, family))
                if hypothesis is not None:
                    yield hypothesis

    def _families(self, chain: Chain, table: ScoreTable) -> Iterator[Family]:
        ids = self.scorer.batch.require_ids().cpu().numpy()[table.at]
        biases = bias_families(ids, table.base - table.engines[self.engine])
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
