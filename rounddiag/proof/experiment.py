"""`prove`: score the same tokens under each hypothesis, and say which one holds."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from rounddiag.errors import RounddiagError
from rounddiag.findings import diagnose
from rounddiag.findings.causes import PROVABLE
from rounddiag.loaders.rescoring import require_contexts
from rounddiag.proof.base import find_base
from rounddiag.proof.columns import column_scores
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.opening import open_engine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.fitting import fit_family
from rounddiag.proof.hypotheses.caches import kept_rounds
from rounddiag.proof.hypotheses.hypothesis import (
    Hypothesis,
    all_registered,
    select_hypotheses,
)
from rounddiag.proof.hypotheses.numbered import NUMBERED, Numbered
from rounddiag.proof.hypotheses.sampling import (
    FAMILIES,
    bias_families,
    order_families,
)
from rounddiag.proof.judge import (
    LEVEL,
    base_opinion,
    correlate_changes,
    judge,
    noise_floor,
)
from rounddiag.proof.plan import announce, plan_proof
from rounddiag.proof.proof import NOTHING_CHANGED
from rounddiag.proof.samples import choose_samples
from rounddiag.proof.scorer import STANDARD, Scorer, StoppedError
from rounddiag.proof.verdict import EngineResult, decide
from rounddiag.proof.weights import (
    adapter_hypotheses,
    weight_hypotheses,
    weights_by_sample,
)
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.proof.judge import Opinion
    from rounddiag.proof.proof import Proof
    from rounddiag.proof.scores import ScoreTable

    Ranking = list[tuple[Hypothesis, Opinion]]

FIRST, SECOND, MOST = 2, 5, 16  # samples
KEPT = 5  # hypotheses of each engine that are scored on more samples
ALIKE = 2  # and those that change the tokens as the engine does, beside another fault
EXACT = 1.0  # times the noise: an engine that is reproduced so needs no hypothesis
FAR = 0.003  # share of tokens that may be far off even so
BEAM = 3  # hypotheses on top of which others are tried
MOST_FAILURES = 3  # of a server, one after the other


@dataclass(eq=False)
class Experiment:
    """One proof while it is made."""

    scorer: Scorer
    known: list[Hypothesis]
    order: list[int]
    deadline: float
    bar: Any
    most: int
    checkpoints: tuple[Hypothesis, ...] = ()
    numbered: Sequence[Numbered] = NUMBERED
    not_tested: dict[str, str] = field(default_factory=dict)
    chain: dict[str, tuple[Hypothesis, ...]] = field(default_factory=dict)

    def run(self) -> list[EngineResult]:
        """Return what was found about each engine.

        After Ctrl-C, or when a server fails, what is known by then is judged.
        """
        samples = first = self.order[: min(FIRST, self.most)]
        tested = self._screen(samples)
        results: list[EngineResult] = []
        for size in (SECOND, 8, 12, MOST):
            if self.scorer.is_stopped:
                break
            samples = self.order[: min(size, self.most)]
            self.bar.set_description(f"judging {pluralize(len(samples), 'sample')}")
            try:
                results = self._judge(samples, tested)
            except (KeyboardInterrupt, ServerError) as error:
                self._stop(error)
                break
            decided = all(one.is_decided for one in results)
            if decided or len(samples) >= min(len(self.order), self.most):
                break
            if time.perf_counter() > self.deadline:
                break
            tested = {
                one.engine: [each for each, _ in one.ranking if each in self.known][
                    : KEPT + ALIKE
                ]
                for one in results
            }
        return results or self._judge(first, tested)

    def judge_base(self, samples: Sequence[int]) -> list[EngineResult]:
        """Return how well unchanged inputs reproduce each engine."""
        table = self.scorer.table(samples)
        return [
            EngineResult(
                engine=engine,
                base=base_opinion(table, engine, noise_floor(table, engine)),
                num_hypotheses=0,
                samples=samples,
            )
            for engine in self.scorer.engines
        ]

    def _stop(self, error: BaseException) -> None:
        self.scorer.is_stopped = True
        why = _first_sentence(error) if str(error) else "it was interrupted"
        self.not_tested["further samples"] = why

    def _screen(self, samples: Sequence[int]) -> dict[str, list[Hypothesis]]:
        """Score all hypotheses on few samples; return the best of each engine."""
        table = self.scorer.table(samples)
        usable = []
        failures = 0
        for one in self.known:
            why = self.scorer.lacks(one)
            if not why and time.perf_counter() > self.deadline:
                why = "no time was left"
            self.bar.set_description(one.name, refresh=False)
            self.bar.update()
            if why:
                self.not_tested[one.name] = why
                continue
            try:
                scores = self._try(one, samples)
                failures = 0
            except StoppedError:
                self.not_tested[one.name] = self.not_tested["further samples"]
                continue
            except KeyboardInterrupt as error:
                self._stop(error)
                self.not_tested[one.name] = "it was interrupted"
                continue
            except RounddiagError as error:
                self.not_tested[one.name] = _first_sentence(error)
                failures += isinstance(error, ServerError)
                if failures == MOST_FAILURES:
                    self._stop(error)
                continue
            if scores is None:
                self.not_tested[one.name] = NOTHING_CHANGED
            else:
                usable.append((one, scores))
        return self._keep_best(table, usable, samples)

    def _keep_best(
        self,
        table: ScoreTable,
        usable: list[tuple[Hypothesis, Array]],
        samples: Sequence[int],
    ) -> dict[str, list[Hypothesis]]:
        """Return the hypotheses of each engine that are scored on more samples."""
        best = {}
        for engine in self.scorer.engines:
            floor = noise_floor(table, engine)
            opinions = [_opinion(table, engine, *one, floor) for one in usable]
            if not any(one.reproduces for one in opinions):
                fitted = self._fit_numbered(table, engine, floor, samples)
                opinions += [_opinion(table, engine, *one, floor) for one in fitted]
                usable += fitted
            worth = {
                one: opinion.evidence
                for (one, _), opinion in zip(usable, opinions, strict=True)
            }
            alike = {
                one: correlate_changes(table, engine, scores) for one, scores in usable
            }
            kept = sorted(worth, key=lambda one: -worth[one])[:KEPT]
            kept += sorted(alike, key=lambda one: -alike[one])[:ALIKE]
            best[engine] = list(dict.fromkeys(kept))
        return best

    def _fit_numbered(
        self, table: ScoreTable, engine: str, floor: float, samples: Sequence[int]
    ) -> list[tuple[Hypothesis, Array]]:
        """Fit whole numbers to an engine that nothing else reproduces.

        On one sample: each number is a pass, and all of the grid are tried.
        """
        base = base_opinion(table, engine, floor)
        if base.residual_to_noise <= EXACT and base.harmed <= FAR:
            return []
        few = table.take(table.sample == samples[0])

        def compute(one: Hypothesis) -> Array:
            scores = self.scorer.column((one,), samples[:1])
            return np.where(np.isnan(scores), few.base, scores)

        found = []
        for family in self.numbered:
            late = time.perf_counter() > self.deadline or self.scorer.is_stopped
            if late or self.scorer.lacks(family.at(family.grid[0])):
                continue
            try:
                one = fit_family(family, few, engine, compute)
                scores = self.scorer.column((one,), samples)
            except (RounddiagError, StoppedError) as error:
                self.not_tested[family.name] = _first_sentence(error)
                continue
            is_new = all(one.name != each.name for each in self.known)
            if is_new and not np.isnan(scores).all():
                self.known.append(one)
                found.append((one, scores))
        return found

    def _try(self, one: Hypothesis, samples: Sequence[int]) -> Array | None:
        """Score a hypothesis; None if it changes nothing in any sample to come."""
        scores = self.scorer.column((one,), samples)
        if not np.isnan(scores).all():
            return scores
        more = self.order[: min(SECOND, self.most)]
        if (
            len(more) == len(samples)
            or np.isnan(self.scorer.column((one,), more)).all()
        ):
            return None
        return scores

    def _judge(
        self, samples: Sequence[int], tested: Mapping[str, Sequence[Hypothesis]]
    ) -> list[EngineResult]:
        table = self.scorer.table(samples)
        found = []
        for engine in self.scorer.engines:
            floor = noise_floor(table, engine)
            base = base_opinion(table, engine, floor)
            number = len(self.known) + len(FAMILIES)
            if base.residual_to_noise <= EXACT and base.harmed <= FAR:
                found.append(
                    EngineResult(
                        engine=engine,
                        base=base,
                        num_hypotheses=number,
                        samples=samples,
                    )
                )
                continue
            first = self._rank(table, engine, (), samples, tested[engine], floor)
            chain, last = self._chain(table, engine, first, samples, tested, floor)
            found.append(
                EngineResult(
                    engine=engine,
                    base=base,
                    ranking=first,
                    chain=chain,
                    last=last,
                    num_hypotheses=number,
                    samples=samples,
                )
            )
        return found

    def _chain(
        self,
        table: ScoreTable,
        engine: str,
        first: Ranking,
        samples: Sequence[int],
        tested: Mapping[str, Sequence[Hypothesis]],
        floor: float,
    ) -> tuple[Ranking, Ranking]:
        """Return what holds together, at most two, and the ranking that the last won.

        If none reproduces the engine alone, each of the best is taken as the new base
        of all others.
        """
        least = np.log(LEVEL * (len(self.known) + len(FAMILIES)))
        good = [pair for pair in first[:BEAM] if pair[1].evidence >= least]
        if not good:
            return [], first
        if good[0][1].reproduces:
            return good[:1], first
        found: list[tuple[Ranking, Ranking]] = []
        swapped: list[Hypothesis] = []
        for best, opinion in good:
            more = self._rank_on(best, opinion, table, engine, samples, tested, floor)
            if more and more[0][1].reproduces:
                found.append(([(best, opinion), more[0]], more))
            elif best not in self.known:
                # Its number was fitted without the other: fit it on top of the other.
                swapped += [one for one, _ in more if one in self.known][:1]
        if swapped and not found:
            swapped.append(self._most_alike(table, engine, samples, tested[engine]))
            for one in dict.fromkeys(swapped):
                scores = self.scorer.column((one,), samples)
                alone = judge(table, engine, one.name, scores, floor, is_whole=True)
                more = self._rank_on(one, alone, table, engine, samples, tested, floor)
                if more and more[0][1].reproduces:
                    found.append(([(one, alone), more[0]], more))
        if not found:
            return good[:1], first
        return min(found, key=lambda each: each[0][-1][1].residual_to_noise)

    def _most_alike(
        self,
        table: ScoreTable,
        engine: str,
        samples: Sequence[int],
        tested: Sequence[Hypothesis],
    ) -> Hypothesis:
        """Return the hypothesis whose changes correlate most with the engine's."""
        return max(
            tested,
            key=lambda one: correlate_changes(
                table, engine, self.scorer.column((one,), samples)
            ),
        )

    def _rank_on(
        self,
        one: Hypothesis,
        opinion: Opinion,
        table: ScoreTable,
        engine: str,
        samples: Sequence[int],
        tested: Mapping[str, Sequence[Hypothesis]],
        floor: float,
    ) -> Ranking:
        """Judge all others on top of one."""
        here = table.rebase(engine, opinion.scores)
        return self._rank(here, engine, (one,), samples, tested[engine], floor)

    def _rank(
        self,
        table: ScoreTable,
        engine: str,
        chain: tuple[Hypothesis, ...],
        samples: Sequence[int],
        tested: Sequence[Hypothesis],
        floor: float,
    ) -> list[tuple[Hypothesis, Opinion]]:
        """Judge hypotheses on top of those that hold already, best first."""
        found = []
        for one in tested:
            if one in chain:
                continue
            try:
                scores = self.scorer.column((*chain, one), samples)
            except StoppedError:
                continue
            found.append((one, _opinion(table, engine, one, scores, floor)))
        if "logits" in self.scorer.engine.abilities:
            residual = table.base - table.engines[engine]
            ids = self.scorer.token_ids(samples)
            few = np.isin(table.sample, samples[:FIRST])
            biases = bias_families(ids, residual)
            own = self.scorer.families
            for family in (*FAMILIES, *order_families(chain), *biases, *own):
                try:
                    one = fit_family(
                        family,
                        table.take(few),
                        engine,
                        lambda each: self.scorer.column(
                            (*chain, each), samples[:FIRST]
                        ),
                    )
                    scores = self.scorer.column((*chain, one), samples)
                except StoppedError:
                    continue
                found.append((one, _opinion(table, engine, one, scores, floor)))
        if not chain:
            found += [
                (one, _opinion(table, engine, one, scores, floor))
                for one, scores in column_scores(self.scorer, table, engine, samples)
            ]
            mixed = (
                None
                if self.scorer.is_stopped
                else weights_by_sample(
                    self.scorer, table, engine, samples, self.checkpoints
                )
            )
            if mixed is not None:
                one, scores = mixed
                found.append((one, _opinion(table, engine, one, scores, floor)))
            places = [(one, opinion.where) for one, opinion in found]
            for one in kept_rounds(places):
                with suppress(StoppedError):
                    scores = self.scorer.column((one,), samples)
                    found.append((one, _opinion(table, engine, one, scores, floor)))
        return sorted(found, key=lambda pair: _rank_key(pair[1]))


def _opinion(
    table: ScoreTable, engine: str, one: Hypothesis, scores: Array, floor: float
) -> Opinion:
    return judge(
        table,
        engine,
        one.name,
        scores,
        floor,
        is_whole=one.is_whole,
        excludes=one.excludes,
    )


def _first_sentence(error: BaseException) -> str:
    return str(error).split(". ")[0]


def _rank_key(opinion: Opinion) -> tuple[bool, float]:
    """Put what reproduces the engine before what is only better than the base."""
    return not opinion.reproduces, -opinion.evidence


def prove(  # noqa: PLR0913 keywords only
    batch: Batch,
    engine: Any,  # noqa: ANN401 a name, an address or a function
    *,
    hypotheses: Iterable[str] | None = None,
    samples: int | Sequence[int] | None = None,
    checkpoints: Mapping[Any, str] | None = None,
    adapters: Mapping[Any, str] | None = None,
    device: str = "auto",
    budget_s: float = 600.0,
    trust_remote_code: bool = False,
) -> Proof:
    """Say which engine was wrong, about what, by scoring the same tokens again.

    The exact token ids of some samples are scored as a sound engine would, and under
    hypotheses: what an engine may have read or computed instead. A hypothesis is proved
    for an engine only if it brings that engine's own numbers back to the noise.

    Parameters
    ----------
    batch : Batch
        With token ids; pictures as the processor got them, for a model that sees.
    engine : str, path-like, LocalEngine or callable
        A folder or name that transformers opens: the checkpoint of this step. Or the
        address of a running vLLM or SGLang that has it, such as
        `http://127.0.0.1:8000`: pictures of the scored samples are sent there, and
        nowhere else. Or a function `score(ids, images) -> log-probs`.
    hypotheses : iterable of str, optional
        Names of hypotheses or of causes; by default all that can be tested, those that
        `rounddiag.diagnose` considers first.
    samples : int or sequence of int, optional
        At most so many samples, or these; by default 5 to 16, until it is decided.
    checkpoints : mapping of label to folder, optional
        Other weights that an engine may have had. Where the batch has
        `round_columns["weight_version"]`, the labels may be these versions.
    adapters : mapping of label to folder, optional
        LoRA adapters as peft saves them. A sound engine adds the first one to the
        model, which is without it; it may have been left out, scaled otherwise, or be
        one of the others. peft itself is not needed.
    device : str
        Of a model in this process; `auto` is a GPU if there is one.
    budget_s : float
        After so many seconds no further hypothesis is begun.
    trust_remote_code : bool
        Whether code of the model's repository may run.

    Returns
    -------
    Proof

    Raises
    ------
    BatchError
        If the batch has no token ids, or no sample can be scored; the message has the
        reason.
    LoadError
        If the model or an adapter cannot be opened, or the server fails before anything
        is known, reads other ids than those sent, or changes meanwhile.
    """
    require_contexts(batch, "Prove with the batch that it was made of.")
    begin = time.perf_counter()
    names = None if hypotheses is None else [*hypotheses]
    families = {one.name for one in FAMILIES} | {one.name for one in NUMBERED}
    known = select_hypotheses(all_registered(), names, {*PROVABLE, *families})
    numbered = [
        one for one in NUMBERED if names is None or {one.name, one.cause} & {*names}
    ]
    opened = open_engine(engine, device=device, trust_remote_code=trust_remote_code)
    scorer = Scorer(batch, opened.engine, opened.low_precision)
    other = weight_hypotheses(scorer, checkpoints)
    other += adapter_hypotheses(scorer, adapters)
    return prove_with(
        scorer,
        known,
        other,
        samples=samples,
        numbered=numbered,
        begin=begin,
        budget_s=budget_s,
    )


def prove_with(
    scorer: Scorer,
    known: Sequence[Hypothesis],
    other: Sequence[Hypothesis] = (),
    *,
    samples: int | Sequence[int] | None = None,
    numbered: Sequence[Numbered] = NUMBERED,
    begin: float,
    budget_s: float,
) -> Proof:
    """Prove with a scorer that is open; `other` are hypotheses about weights."""
    order = choose_samples(scorer, samples)
    found = find_base(scorer, order, other)
    scorer, other = found.scorer, found.others
    if not scorer.has_pictures:
        known = [one for one in known if "pictures" not in one.needs]
    known = _first_the_likely([*known, *other], scorer)
    older = tuple(one for one in other if one.cause == "stale_weights")
    most = MOST if samples is None else len(order)
    with tqdm(total=len(known), unit="hypothesis", leave=False, delay=1) as bar:
        experiment = Experiment(
            scorer, known, order, begin + budget_s, bar, most, older, numbered
        )
        first = order[: min(FIRST, most)]
        plan = None
        if found.gate.passes:
            further = order[len(first) : min(SECOND, most)]
            number = len(scorer.engines) * KEPT
            plan = plan_proof(scorer, known, first, further, num_kept=number)
            tqdm.write(announce(plan, scorer.engine.name), file=sys.stderr)
            results = experiment.run()
        else:
            results = experiment.judge_base(first)
    if isinstance(scorer.engine, ServerEngine) and not scorer.is_stopped:
        scorer.engine.confirm(scorer.samples)
    proof = decide(
        scorer,
        results,
        gate=found.gate,
        not_tested=experiment.not_tested,
        seconds=time.perf_counter() - begin,
    )
    return replace(proof, plan=plan)


def _first_the_likely(known: list[Hypothesis], scorer: Scorer) -> list[Hypothesis]:
    """Put the causes that `diagnose` considers first; it compares two engines."""
    if scorer.engines[:2] != STANDARD:
        return known
    diagnosis = diagnose(scorer.batch)
    likely: dict[str, int] = {}
    for finding in diagnosis:
        causes = [finding.cause, *(other.cause for other in finding.candidates)]
        for cause in causes:
            likely.setdefault(cause, len(likely))
    return sorted(known, key=lambda one: likely.get(one.cause, len(likely)))
