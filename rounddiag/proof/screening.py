"""Hypotheses on few samples: in which order, how many of them, with which numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from rounddiag._typing import Array
from rounddiag.errors import RounddiagError
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.judge import LEAST_TOKENS, noise_floor
from rounddiag.proof.proof import NOTHING_CHANGED
from rounddiag.proof.scorer import StoppedError
from rounddiag.proof.scores import MATTERS, ScoreTable, Stops
from rounddiag.proof.search import Search
from rounddiag.proof.verdict import EngineResult
from rounddiag.wording import printable

FIRST, SECOND = 2, 5  # samples
MOST_FAILURES = 3  # of a server, one after the other
FURTHER = "further samples"


class Cost(IntEnum):
    """What a hypothesis costs: logits of plain passes, another pass, other weights."""

    FREE = 0
    PASS = 1
    DEAR = 2


def cost_of(hypothesis: Hypothesis) -> Cost:
    """Return what it costs to score a hypothesis."""
    if hypothesis.is_free:
        return Cost.FREE
    dear_needs = {"weights", "resolution", "experts"}
    is_dear = hypothesis.weights or hypothesis.needs & dear_needs
    return Cost.DEAR if is_dear else Cost.PASS


@dataclass(eq=False)
class Screening:
    """Tries hypotheses on the first samples, cut after the rounds that show a fault.

    Attributes
    ----------
    known: All hypotheses that can be tried.
    likely: The causes of the findings, in their order.
    not_tested: What could not be tried, and why.
    scored: Those that were.
    results: What was found about each engine so far.
    """

    search: Search
    known: list[Hypothesis]
    order: Sequence[int]
    bar: Any
    likely: Mapping[str, int] = field(default_factory=dict)
    not_tested: dict[str, str] = field(default_factory=dict)
    scored: list[Hypothesis] = field(default_factory=list)
    results: list[EngineResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scorer = self.search.scorer
        self.first: Stops = dict.fromkeys(self.order[:FIRST])
        self._failures = 0

    def begin(self) -> None:
        """Cut the first samples, put hypotheses in their order, and say what they cost.

        At the speed of the passes so far; further samples come on top.
        """
        self.first = self._cut(2 * LEAST_TOKENS)
        sizes = {each: self.scorer.size_of(each, self.first) for each in self.known}
        self.known.sort(
            key=lambda hypothesis: (
                self.likely.get(hypothesis.cause, len(self.likely)),
                cost_of(hypothesis),
                sizes[hypothesis],
            )
        )
        number = sum(map(any, sizes.values()))
        num_passes, num_tokens = map(sum, zip((0, 0), *sizes.values(), strict=True))
        seconds = num_tokens * self.scorer.clock.seconds_per_token
        text = (
            f"rounddiag prove with {self.scorer.engine.name}: {number:,}"
            f" {'hypothesis' if number == 1 else 'hypotheses'},"
            f" {num_passes:,} passes of {num_tokens / max(num_passes, 1):,.0f} tokens,"
            f" about {seconds:.0f} s."
        )
        tqdm.write(printable(text), file=sys.stderr)

    def run(self) -> Iterator[list[EngineResult]]:
        """Try group by group; yield the results when each engine is reproduced.

        Those of the candidates of the findings come first, then the cheap ones. After
        the dear ones all were tried.
        """
        for cost in Cost:
            for hypothesis in self.known:
                if self._stage(hypothesis) == cost:
                    self._try(hypothesis)
            self.results = self.judge()
            if cost == Cost.DEAR or _is_found(self.results, cost):
                yield self.results

    def _stage(self, hypothesis: Hypothesis) -> Cost:
        is_likely = hypothesis.cause in self.likely
        return Cost.FREE if is_likely else max(cost_of(hypothesis), Cost.PASS)

    def judge(self) -> list[EngineResult]:
        """Return what was found of what was scored."""
        return self.search.judge(
            self.first, self.search.choose(self.first, self.scored)
        )

    def stop(self, error: BaseException) -> None:
        """Let nothing more be scored, for this reason."""
        self.scorer.clock.is_stopped = True
        self.not_tested.setdefault(FURTHER, _reason(error))

    @property
    def tried(self) -> tuple[int, int]:
        """How many hypotheses were tried, of how many that can be tested here."""
        able = sum(not lack for lack in map(self.scorer.lacks, self.known))
        still = [*self.not_tested.values()].count(NOTHING_CHANGED)
        return len(self.scored) + still, able

    def _try(self, hypothesis: Hypothesis) -> None:
        self.bar.set_description(hypothesis.name, refresh=False)
        self.bar.update()
        why = self.scorer.lacks(hypothesis)
        if why:
            self.not_tested[hypothesis.name] = why
            return
        try:
            if self._changes(hypothesis):
                self.scored.append(hypothesis)
            else:
                self.not_tested[hypothesis.name] = NOTHING_CHANGED
            self._failures = 0
        except (KeyboardInterrupt, StoppedError) as error:
            self.stop(error)
            self.not_tested[hypothesis.name] = self.not_tested[FURTHER]
        except RounddiagError as error:
            self.not_tested[hypothesis.name] = _reason(error)
            self._failures += isinstance(error, ServerError)
            if self._failures == MOST_FAILURES:
                self.stop(error)

    def _changes(self, hypothesis: Hypothesis) -> bool:
        """Score a hypothesis; return whether it changes any of the samples to come."""
        parts = [self.first, dict.fromkeys(self.order[:SECOND])]
        return any(
            not np.isnan(self.scorer.column((hypothesis,), stops)).all()
            for stops in parts[: 2 if len(self.order) > FIRST else 1]
        )

    def _cut(self, number: int) -> Stops:
        """Let samples end after the round of so many tokens far off."""
        table = self.scorer.table(self.first)
        far = np.zeros(len(table), dtype=bool)
        for engine in table.engines:
            far |= _is_far(table, engine)
        stops = dict(self.first)
        for sample in stops:
            trajectory, mine = self.scorer.samples[sample], table.sample == sample
            at = np.flatnonzero(far[mine])[:number]
            if len(at) == number:
                last = int(trajectory.targets[at[-1]])
                ends = (stop for _, stop in trajectory.rounds)
                stops[sample] = next(stop for stop in ends if stop > last)
        return stops


def _is_far(table: ScoreTable, engine: str) -> Array:
    left = np.abs(table.residual(engine, table.base))
    return left > MATTERS * noise_floor(table, engine)


def _is_found(results: Sequence[EngineResult], cost: Cost) -> bool:
    return all(
        result.is_decided and all(cost_of(each) <= cost for each, _ in result.chain)
        for result in results
    )


def _reason(error: BaseException) -> str:
    """Return the first sentence of an error; Ctrl-C has none."""
    return str(error).split(". ")[0].rstrip(".") or "it was interrupted"
