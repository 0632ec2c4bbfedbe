"""`prove`: score the same tokens under each hypothesis, and say which one holds."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from rounddiag.errors import BatchError, RounddiagError
from rounddiag.findings.causes import PROVABLE
from rounddiag.loaders.rescoring import require_contexts
from rounddiag.proof.base import find_base
from rounddiag.proof.columns import column_scores
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.opening import open_engine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.fitting import fit_family
from rounddiag.proof.gate import MOST as MOST_OF_USUAL
from rounddiag.proof.gate import Gate
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
    LEAST_TOKENS,
    LEVEL,
    base_opinion,
    correlate_changes,
    judge,
    noise_floor,
)
from rounddiag.proof.plan import announce, plan_proof
from rounddiag.proof.proof import NOTHING_CHANGED
from rounddiag.proof.samples import choose_samples
from rounddiag.proof.scorer import Scorer, StoppedError
from rounddiag.proof.scores import MATTERS
from rounddiag.proof.verdict import RIVAL, EngineResult, decide
from rounddiag.proof.weights import (
    adapter_hypotheses,
    weight_hypotheses,
    weights_by_sample,
)
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.proof.fitting import OneNumber
    from rounddiag.proof.judge import Opinion
    from rounddiag.proof.plan import Plan
    from rounddiag.proof.proof import Proof
    from rounddiag.proof.scores import ScoreTable

    Ranking = list[tuple[Hypothesis, Opinion]]

FIRST, SECOND, MOST = 2, 5, 16  # samples
KEPT = 5  # hypotheses of each engine that are scored on more samples
ALIKE = 2  # and those that change the tokens as the engine does, beside another fault
EXACT = 1.0  # times the noise: an engine that is reproduced so needs no hypothesis
FAR = 0.003  # share of tokens that may be far off even so
BEAM = 3  # hypotheses on top of which others are tried
NO_TIME = "no time was left"
MOST_FAILURES = 3  # of a server, one after the other


@dataclass(eq=False)
class Experiment:
    """One proof while it is made."""

    scorer: Scorer
    known: list[Hypothesis]
    order: list[int]
    bar: Any
    most: int
    checkpoints: tuple[Hypothesis, ...] = ()
    numbered: Sequence[Numbered] = NUMBERED
    names: AbstractSet[str] | None = None
    likely: Mapping[str, int] = field(default_factory=dict)
    not_tested: dict[str, str] = field(default_factory=dict)
    screened: dict[Hypothesis, Array] = field(default_factory=dict)
    plan: Plan | None = None
    is_complete: bool = False

    def run(self) -> list[EngineResult]:
        """Return what was found about each engine.

        All hypotheses are tried on few samples, cut after the rounds that show a fault,
        group by group until one reproduces an engine; the best of them are judged on
        whole samples, more of them until it is decided. After Ctrl-C, at the deadline,
        or when a server fails, what is known by then is judged.
        """
        first = self.order[: min(FIRST, self.most)]
        self._cut(first)
        self.plan = self._announce(first)
        results: list[EngineResult] = []
        try:
            for cost, group in self._groups():
                self._screen(group, first)
                results = self._judge(first, self._keep(first))
                if self._is_found(results, cost):
                    break
                if cost == Cost.PASS and not self._is_found(results, Cost.DEAR):
                    self._screen(self._fit_numbered(first), first)
                    results = self._judge(first, self._keep(first))
            self.is_complete = not self.scorer.is_stopped
            self.bar.total = len(self.known)
            self.bar.update(self.bar.total - self.bar.n)
            results = self._confirm(results)
        except (KeyboardInterrupt, ServerError, StoppedError) as error:
            self._stop(error)
        return results or self._judge(first, self._keep(first))

    def _announce(self, first: Sequence[int]) -> Plan:
        """Print what the passes of these samples, and of further ones, will cost."""
        further = self.order[len(first) : min(SECOND, self.most)]
        kept = len(self.scorer.engines) * KEPT
        plan = plan_proof(self.scorer, self.known, first, further, num_kept=kept)
        tqdm.write(announce(plan, self.scorer.engine.name), file=sys.stderr)
        return plan

    def _confirm(self, results: list[EngineResult]) -> list[EngineResult]:
        """Judge the best on whole samples, more of them until it is decided."""
        limits, self.scorer.limits = self.scorer.limits, {}
        for size in (FIRST, SECOND, 8, 12, MOST):
            samples = self.order[: min(size, self.most)]
            tested = {one.engine: self._finalists(one) for one in results}
            self.bar.set_description(f"judging {pluralize(len(samples), 'sample')}")
            try:
                results = self._judge(samples, tested)
            except (KeyboardInterrupt, ServerError, StoppedError) as error:
                self._stop(error)
                if size == FIRST:  # what is known is about cut samples
                    self.scorer.limits = limits
                break
            decided = size >= SECOND and all(one.is_decided for one in results)
            if decided or len(samples) >= min(len(self.order), self.most):
                break
        return results

    def _finalists(self, result: EngineResult) -> list[Hypothesis]:
        """Return the hypotheses about an engine that are scored on more samples."""
        ranked = [pair for pair in result.ranking if pair[0] in self.known]
        if result.is_proved and len(result.chain) == 1:
            best = result.chain[0][1].evidence
            return [
                one
                for one, opinion in ranked
                if opinion.reproduces or best - opinion.evidence < RIVAL or one.weights
            ]
        return [one for one, _ in ranked[: KEPT + ALIKE]]

    def _cut(self, samples: Sequence[int]) -> None:
        """End samples after the rounds that show a fault.

        Twice the tokens that a proof needs have to be far off.
        """
        table = self.scorer.table(samples)
        far = np.zeros(len(table), dtype=bool)
        for engine in table.engines:
            left = np.abs(table.residual(engine, table.base))
            far |= left > MATTERS * noise_floor(table, engine)
        for sample in samples:
            rounds = table.round[far & (table.sample == sample)]
            if len(rounds) >= 2 * LEAST_TOKENS:
                last = int(np.sort(rounds)[2 * LEAST_TOKENS - 1])
                self.scorer.limits[sample] = self.scorer.samples[sample].rounds[last][1]

    def _groups(self) -> Iterator[tuple[Cost, list[Hypothesis]]]:
        """Yield hypotheses, and of which cost all were tried then.

        Those of the candidates of the findings come first, then the cheap ones.
        """
        of_findings = [one for one in self.known if one.cause in self.likely]
        yield Cost.FREE, of_findings
        for cost in (Cost.PASS, Cost.DEAR):
            rest = [one for one in self.known if one.cause not in self.likely]
            yield cost, [one for one in rest if cost_of(one) == cost]

    def _is_found(self, results: Sequence[EngineResult], cost: Cost) -> bool:
        """Return whether each engine is reproduced by what costs so much at most."""
        return all(
            one.is_decided and all(cost_of(each) <= cost for each, _ in one.chain)
            for one in results
        )

    def _keep(self, samples: Sequence[int]) -> dict[str, list[Hypothesis]]:
        """Return the best hypotheses about each engine of those that were screened."""
        table = self.scorer.table(samples)
        best = {}
        for engine in self.scorer.engines:
            floor = noise_floor(table, engine)
            worth = {
                one: _opinion(table, engine, one, scores, floor)
                for one, scores in self.screened.items()
            }
            alike = {
                one: correlate_changes(table, engine, scores)
                for one, scores in self.screened.items()
            }
            ranked = sorted(worth, key=lambda one: _rank_key(worth[one]))
            kept = [one for one in ranked if worth[one].reproduces]
            kept += ranked[:KEPT]
            kept += sorted(alike, key=lambda one: -alike[one])[:ALIKE]
            best[engine] = list(dict.fromkeys(kept))
        return best

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

    def is_sound(self) -> bool:
        """Return whether unchanged inputs reproduce all engines, and no place differs.

        Then there is nothing to prove.
        """
        samples = self.order[: min(SECOND, self.most)]
        if any(one.kind == "place" for one in self.scorer.diagnosis or ()):
            return False
        try:
            gate = Gate.of_table(self.scorer.table(samples))
        except StoppedError:
            return False
        return all(one.high <= MOST_OF_USUAL for one in gate.fits) and all(
            one.is_sound for one in self.judge_base(samples)
        )

    def _stop(self, error: BaseException) -> None:
        self.scorer.is_stopped = True
        why = "it was interrupted"
        if isinstance(error, StoppedError):
            why = NO_TIME
        elif str(error):
            why = _first_sentence(error)
        self.not_tested.setdefault("further samples", why)

    def _screen(self, group: Sequence[Hypothesis], samples: Sequence[int]) -> None:
        """Score hypotheses on few samples."""
        failures = 0
        for one in group:
            self.bar.set_description(one.name, refresh=False)
            self.bar.update()
            why = self.scorer.lacks(one)
            if why:
                self.not_tested[one.name] = why
                continue
            try:
                scores = self._try(one, samples)
                failures = 0
            except StoppedError as error:
                self._stop(error)
                self.not_tested[one.name] = self.not_tested["further samples"]
            except KeyboardInterrupt as error:
                self._stop(error)
                self.not_tested[one.name] = self.not_tested["further samples"]
            except RounddiagError as error:
                self.not_tested[one.name] = _first_sentence(error)
                failures += isinstance(error, ServerError)
                if failures == MOST_FAILURES:
                    self._stop(error)
            else:
                if scores is None:
                    self.not_tested[one.name] = NOTHING_CHANGED
                else:
                    self.screened[one] = scores

    def _fit_numbered(self, samples: Sequence[int]) -> list[Hypothesis]:
        """Fit whole numbers to engines that nothing reproduces, on one sample."""
        few = samples[:1]
        table = self.scorer.table(few)
        found = {}
        for result in self.judge_base(samples):
            if _is_exact(result.base):
                continue
            for family in self.numbered:
                if self.scorer.lacks(family.at(family.grid[0])):
                    continue
                try:
                    one = fit_family(
                        family,
                        table,
                        result.engine,
                        lambda each: np.where(
                            np.isnan(scores := self.scorer.column((each,), few)),
                            table.base,
                            scores,
                        ),
                    )
                except (RounddiagError, StoppedError) as error:
                    why = NO_TIME if isinstance(error, StoppedError) else ""
                    self.not_tested[family.name] = why or _first_sentence(error)
                    continue
                if one is not None and all(
                    one.name != each.name for each in self.known
                ):
                    found[one.name] = one
        self.known += found.values()
        return [*found.values()]

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
            if _is_exact(base):
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
            found += [
                (one, _opinion(table, engine, one, scores, floor))
                for one, scores in self._fit(table, engine, chain, samples)
            ]
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

    def _fit(
        self,
        table: ScoreTable,
        engine: str,
        chain: tuple[Hypothesis, ...],
        samples: Sequence[int],
    ) -> Iterator[tuple[Hypothesis, Array]]:
        """Yield the best of each family and its scores, fitted to the first samples."""
        few = samples[:FIRST]
        small = table.take(np.isin(table.sample, few))

        def compute(one: Hypothesis) -> Array:
            return self.scorer.column((*chain, one), few)

        for family in self._families(table, engine, chain, samples):
            with suppress(StoppedError):
                one = fit_family(family, small, engine, compute)
                if one is not None:
                    yield one, self.scorer.column((*chain, one), samples)

    def _families(
        self,
        table: ScoreTable,
        engine: str,
        chain: tuple[Hypothesis, ...],
        samples: Sequence[int],
    ) -> Iterator[OneNumber]:
        """Yield the families that are fitted: all, or those that were named."""
        residual = table.base - table.engines[engine]
        biases = bias_families(self.scorer.token_ids(samples), residual)
        yield from self.scorer.families
        for family in (*FAMILIES, *order_families(chain), *biases):
            if self.names is None or {family.name, family.cause} & self.names:
                yield family


class Cost(IntEnum):
    """What a hypothesis costs: logits of plain passes, another pass, other weights."""

    FREE = 0
    PASS = 1
    DEAR = 2


def cost_of(one: Hypothesis) -> Cost:
    """Return what it costs to score a hypothesis."""
    if one.is_free:
        return Cost.FREE
    is_dear = one.weights or one.needs & {"weights", "resolution", "experts"}
    return Cost.DEAR if is_dear else Cost.PASS


def _is_exact(base: Opinion) -> bool:
    """Return whether an engine is reproduced so well that it needs no hypothesis."""
    return base.residual_to_noise <= EXACT and base.harmed <= FAR


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
        After so many seconds, with loading, no further pass is begun: what is known by
        then is judged.
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
    require_contexts(batch)
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
        names=None if names is None else {*names},
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
    names: AbstractSet[str] | None = None,
    begin: float,
    budget_s: float,
) -> Proof:
    """Prove with a scorer that is open; `other` are hypotheses about weights."""
    scorer.deadline = begin + budget_s
    order = choose_samples(scorer, samples)
    try:
        found = find_base(scorer, order, other)
    except StoppedError as error:
        raise BatchError.build(
            key="budget_s",
            expected="time to score unchanged inputs",
            found=f"{budget_s:g} s",
            advice="Pass more seconds, or shorter samples.",
        ) from error
    scorer, other = found.scorer, found.others
    if not scorer.has_pictures:
        known = [one for one in known if "pictures" not in one.needs]
    likely = _rank_causes(scorer)
    known = sorted(
        [*known, *other],
        key=lambda one: (likely.get(one.cause, len(likely)), cost_of(one)),
    )
    older = tuple(one for one in other if one.cause == "stale_weights")
    most = MOST if samples is None else len(order)
    with tqdm(total=len(known), unit="hypothesis", leave=False, delay=1) as bar:
        experiment = Experiment(
            scorer, known, order, bar, most, older, numbered, names, likely
        )
        if not found.gate.passes or experiment.is_sound():
            results = experiment.judge_base(order[: min(SECOND, most)])
        else:
            results = experiment.run()
    if isinstance(scorer.engine, ServerEngine) and not scorer.is_stopped:
        scorer.engine.confirm(scorer.samples)
    proof = decide(
        scorer,
        results,
        gate=found.gate,
        not_tested=experiment.not_tested,
        seconds=time.perf_counter() - begin,
    )
    if proof.verdict == "proved" and not experiment.is_complete:
        tried = len(experiment.screened), len(experiment.known)
        step = "Prove again with a larger budget_s."
        proof = replace(proof, verdict="so_far", tried=tried, next_step=step)
    return replace(proof, plan=experiment.plan)


def _rank_causes(scorer: Scorer) -> dict[str, int]:
    """Return the causes of the findings in their order, each with its candidates."""
    likely: dict[str, int] = {}
    for finding in scorer.diagnosis or ():
        for cause in (finding.cause, *(one.cause for one in finding.candidates)):
            likely.setdefault(cause, len(likely))
    return likely
