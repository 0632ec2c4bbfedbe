"""`prove`: score the same tokens under each hypothesis, and say which one holds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from itertools import product
from typing import Any, TypeVar

import numpy as np
from tqdm.auto import tqdm

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import BatchError, RounddiagError
from rounddiag.findings.causes import PROVABLE
from rounddiag.loaders.rescoring import require_contexts
from rounddiag.proof.base import Base, find_base
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.opening import open_engine, open_low_precision
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.fitting import Compute, fit_family, shortlist
from rounddiag.proof.gate import MOST_OF_USUAL, Gate
from rounddiag.proof.hypotheses.family import Family
from rounddiag.proof.hypotheses.hypothesis import (
    Hypothesis,
    all_registered,
    select_hypotheses,
)
from rounddiag.proof.hypotheses.numbered import NUMBERED
from rounddiag.proof.hypotheses.sampling import FAMILIES
from rounddiag.proof.judge import LEAST_TOKENS, noise_floor
from rounddiag.proof.plan import Plan, announce, plan_proof
from rounddiag.proof.proof import NOTHING_CHANGED, Proof
from rounddiag.proof.samples import MAX_SAMPLES, choose_samples
from rounddiag.proof.scorer import Scorer, StoppedError
from rounddiag.proof.scores import MATTERS, ScoreTable
from rounddiag.proof.search import (
    ALIKE,
    FEW,
    KEPT,
    Finalists,
    Search,
    is_exact,
    sort_ranking,
)
from rounddiag.proof.verdict import RIVAL, EngineResult, decide
from rounddiag.proof.weights import adapter_hypotheses, weight_hypotheses
from rounddiag.wording import pluralize

FIRST, SECOND = 2, 5  # samples
MANY = 8 * LEAST_TOKENS  # tokens that are far off: enough to tell numbers apart
MOST_FAILURES = 3  # of a server, one after the other
STOPPED = (KeyboardInterrupt, ServerError, StoppedError)
FURTHER = "further samples"
_Fitted = TypeVar("_Fitted")


@dataclass(eq=False)
class Experiment:
    """One proof while it is made.

    Attributes
    ----------
    gate: Of unchanged inputs.
    likely: The causes of the findings, in their order.
    is_complete: Whether all hypotheses were tried that had to be.
    """

    scorer: Scorer
    known: list[Hypothesis]
    order: Sequence[int]
    bar: Any
    most: int
    search: Search
    gate: Gate
    numbered: Sequence[Family] = NUMBERED
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
        self.scorer.limits = self._limits(first, 2 * LEAST_TOKENS)
        self.plan = self._announce(first)
        self.known.sort(
            key=lambda one: (
                self.likely.get(one.cause, len(self.likely)),
                cost_of(one),
                self.scorer.size_of(one, first),
            )
        )
        results: list[EngineResult] = []
        try:
            for cost, group in self._groups():
                self._screen(group, first)
                results = self._judge_screened(first)
                if _is_found(results, cost):
                    break
                if cost == Cost.PASS and not _is_found(results, Cost.DEAR):
                    self._screen(self._fit_numbered(first), first)
                    results = self._judge_screened(first)
            else:
                self._screen(self._fit_numbered(first, further=True), first)
                results = self._judge_screened(first)
            self.is_complete = not self.scorer.is_stopped
            self.bar.total = len(self.known)
            self.bar.update(self.bar.total - self.bar.n)
            results = _append(self._confirm(results), results)
        except STOPPED as error:
            self._stop(error)
        return results or self._judge_screened(first)

    def gate_with(self, result: EngineResult) -> Gate | None:
        """Return the gate with what is proved of the only engine as the base.

        No second engine tells which tokens are sound: all of its tokens have to be back
        at the scorer's own noise, in samples that no number was fitted to.
        """
        samples = result.samples[FEW:]
        if not (result.is_proved and samples):
            return None
        chain = [one for one, _ in result.chain]
        table = self.search.table(result.samples)
        scores = result.chain[-1][1].scores
        low = scores + table.low_precision - table.base
        if not any(one.is_column or one.weights for one in chain):
            other = self.scorer.column(chain, result.samples, low_precision=True)
            other = np.where(scores == table.base, table.low_precision, other)
            rounding = [np.nansum(np.abs(each - scores)) for each in (other, low)]
            low = other if rounding[0] > rounding[1] else low
        table = replace(table, base=scores, low_precision=low, usual=None)
        gate = Gate.of_table(table.take(np.isin(table.sample, samples)))
        fit = gate.fits[0]
        note = (
            f"No token is reproduced without it. With it the model leaves"
            f" {fit.residual:.2g} nat of all tokens of"
            f" {pluralize(len(samples), 'other sample')}, where {fit.usual:.2g} is its"
            " own noise."
        )
        return replace(gate, note=note)

    def _judge_screened(self, samples: Sequence[int]) -> list[EngineResult]:
        return self.search.judge(samples, self.search.choose(samples, self.screened))

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
        for size in (FIRST, SECOND, 8, 12, MAX_SAMPLES):
            samples = self.order[: min(size, self.most)]
            tested = {one.engine: self._finalists(one) for one in results}
            self.bar.set_description(f"judging {pluralize(len(samples), 'sample')}")
            try:
                judged = self.search.judge(samples, tested)
                self.scorer.go_on()  # else hypotheses are missing
                results = judged
            except STOPPED as error:
                self._stop(error)
                if size == FIRST:  # what is known is about cut samples
                    self.scorer.limits = limits
                break
            decided = size >= SECOND and all(one.is_decided for one in results)
            if decided and not self.gate.passes:
                gate = self.gate_with(results[0])
                decided = gate is None or gate.is_decided
            if decided or len(samples) >= min(len(self.order), self.most):
                break
        return results

    def _finalists(self, result: EngineResult) -> Finalists:
        """Return what is tried on more samples: where one is proved, its rivals."""
        chosen, families = result.ranking[: KEPT + ALIKE], None
        if result.is_proved and len(result.chain) == 1:
            best = result.chain[0][1].evidence
            chosen = [
                (one, opinion)
                for one, opinion in result.ranking
                if opinion.reproduces or best - opinion.evidence < RIVAL or one.weights
            ]
            families = {one.name for one, _ in chosen}
        return [one for one, _ in chosen if one in self.known], families

    def _limits(
        self, samples: Sequence[int], number: int, *, by_round: bool = True
    ) -> dict[int, int]:
        """Return where samples may end: so many tokens before it are far off.

        By default after the round of the last of them.
        """
        table = self.scorer.table(samples)
        far = np.zeros(len(table), dtype=bool)
        for engine in table.engines:
            left = np.abs(table.residual(engine, table.base))
            far |= left > MATTERS * noise_floor(table, engine)
        found = {}
        for sample in samples:
            one, mine = self.scorer.samples[sample], table.sample == sample
            at = np.flatnonzero(far[mine])[:number]
            if len(at) == number:
                last = int(one.targets[at[-1]])
                found[sample] = last + 1
                if by_round:
                    found[sample] = next(stop for _, stop in one.rounds if stop > last)
        return found

    def _groups(self) -> Iterator[tuple[Cost, list[Hypothesis]]]:
        """Yield hypotheses, and of which cost all were tried then.

        Those of the candidates of the findings come first, then the cheap ones.
        """
        yield Cost.FREE, [one for one in self.known if one.cause in self.likely]
        rest = [one for one in self.known if one.cause not in self.likely]
        for cost in (Cost.PASS, Cost.DEAR):
            yield cost, [one for one in rest if cost_of(one) == cost]

    def is_sound(self) -> bool:
        """Return whether unchanged inputs reproduce all engines, and no place differs.

        Then there is nothing to prove.
        """
        samples = self.order[: min(SECOND, self.most)]
        if any(one.kind == "place" for one in self.scorer.diagnosis or ()):
            return False
        try:
            results = self.search.judge_base(samples)
        except StoppedError:
            return False
        gate = Gate.of_table(self.search.table(samples))
        return all(one.high <= MOST_OF_USUAL for one in gate.fits) and all(
            one.is_sound for one in results
        )

    def _stop(self, error: BaseException) -> None:
        self.scorer.is_stopped = True
        self.not_tested.setdefault(FURTHER, _reason(error))

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
            except (KeyboardInterrupt, StoppedError) as error:
                self._stop(error)
                self.not_tested[one.name] = self.not_tested[FURTHER]
            except RounddiagError as error:
                self.not_tested[one.name] = _reason(error)
                failures += isinstance(error, ServerError)
                if failures == MOST_FAILURES:
                    self._stop(error)
            else:
                if scores is None:
                    self.not_tested[one.name] = NOTHING_CHANGED
                else:
                    self.screened[one] = scores

    def _fit_numbered(
        self, samples: Sequence[int], *, further: bool = False
    ) -> list[Hypothesis]:
        """Fit whole numbers to engines that nothing reproduces, on one sample.

        The `further` ones of a family are tried on few of its tokens before.
        """
        few, found = samples[:1], {}
        results = self.search.judge_base(samples)
        odd = [one.engine for one in results if not is_exact(one.base)]
        for engine, family in product(odd, self.numbered):
            if self.scorer.lacks(family.at(1)) or (further and not family.further):
                continue
            name, each = family.name, family
            try:
                if further:
                    name += f" above {family.grid[-1]}"
                    each = self._fit(shortlist, family, engine, few, LEAST_TOKENS)
                one = self._fit(fit_family, each, engine, few, MANY)
            except (RounddiagError, StoppedError) as error:
                self.not_tested[name] = _reason(error)
                continue
            if one is not None:
                found[one.name] = one
        tried = {one.name for one in self.known}
        new = [one for name, one in found.items() if name not in tried]
        self.known += new
        return new

    def _fit(
        self,
        fit: Callable[[Family, ScoreTable, str, Compute], _Fitted],
        family: Family,
        engine: str,
        few: Sequence[int],
        number: int,
    ) -> _Fitted:
        """Fit on samples that end where so many tokens before are far off."""
        limits, self.scorer.limits = self.scorer.limits, {}
        self.scorer.limits = self._limits(few, number, by_round=False)
        table = self.scorer.table(few)

        def compute(ones: Sequence[Hypothesis]) -> Array:
            for sample in few:
                self.scorer.read_ahead(ones, sample)
            scores = np.stack([self.scorer.column((one,), few) for one in ones])
            return np.where(np.isnan(scores), table.base, scores)

        try:
            return fit(family, table, engine, compute)
        finally:
            self.scorer.limits = limits

    def _try(self, one: Hypothesis, samples: Sequence[int]) -> Array | None:
        """Score a hypothesis; None if it changes nothing in any sample to come."""
        scores = self.scorer.column((one,), samples)
        more = self.order[: min(SECOND, self.most)]
        is_still = np.isnan(scores).all() and (
            len(more) == len(samples)
            or np.isnan(self.scorer.column((one,), more)).all()
        )
        return None if is_still else scores

    @property
    def tried(self) -> tuple[int, int]:
        """How many hypotheses were tried, of how many that can be tested here."""
        able = [one for one in self.known if not self.scorer.lacks(one)]
        still = [*self.not_tested.values()].count(NOTHING_CHANGED)
        return len(self.screened) + still, len(able)


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


def _append(
    results: Sequence[EngineResult], before: Sequence[EngineResult]
) -> list[EngineResult]:
    """Add what was judged on fewer samples only."""
    found = []
    for one, earlier in zip(results, before, strict=True):
        names = {each.name for each, _ in one.ranking}
        rest = [pair for pair in earlier.ranking if pair[0].name not in names]
        ranking = sort_ranking([*one.ranking, *rest])
        found.append(replace(one, ranking=ranking))
    return found


def _is_found(results: Sequence[EngineResult], cost: Cost) -> bool:
    """Return whether each engine is reproduced by what costs so much at most."""
    return all(
        one.is_decided and all(cost_of(each) <= cost for each, _ in one.chain)
        for one in results
    )


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
    """
    require_contexts(batch)
    if not batch.scores and batch.lacks("old"):
        batch.require("rollout")
    begin = time.perf_counter()
    names = None if hypotheses is None else [*hypotheses]
    families = {one.name for one in FAMILIES} | {one.name for one in NUMBERED}
    known = select_hypotheses(all_registered(), names, {*PROVABLE, *families})
    numbered = [
        one for one in NUMBERED if names is None or {one.name, one.cause} & {*names}
    ]
    opened = open_engine(engine, device=device, trust_remote_code=trust_remote_code)
    scorer = Scorer(batch, opened, open_low_precision(opened))
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


def prove_with(  # noqa: PLR0913 keywords only
    scorer: Scorer,
    known: Sequence[Hypothesis],
    other: Sequence[Hypothesis] = (),
    *,
    samples: int | Sequence[int] | None = None,
    numbered: Sequence[Family] = NUMBERED,
    names: AbstractSet[str] | None = None,
    base: Base | None = None,
    begin: float,
    budget_s: float,
) -> Proof:
    """Prove with a scorer that is open; `other` are hypotheses about weights.

    With the base of an earlier proof, what the scorer knows is not scored again.
    """
    scorer.deadline, scorer.is_stopped = begin + budget_s, False
    order: Sequence[int] = choose_samples(scorer, samples)
    try:
        base = base or find_base(scorer, order, other)
    except StoppedError as error:
        raise BatchError.build(
            key="budget_s",
            expected="time to score unchanged inputs",
            found=f"{budget_s:g} s",
            advice="Pass more seconds, or shorter samples.",
        ) from error
    scorer, others, order = base.scorer, base.others, base.order
    scorer.deadline, scorer.is_stopped, scorer.limits = begin + budget_s, False, {}
    if not scorer.has_pictures:
        known = [one for one in known if "pictures" not in one.needs]
    likely = _rank_causes(scorer)
    tried = [*known, *others]
    older = tuple(one for one in others if one.cause == "stale_weights")
    most = MAX_SAMPLES if samples is None else len(order)
    with tqdm(total=len(tried), unit="hypothesis", leave=False, delay=1) as bar:
        search = Search(scorer, tried, older, names)
        experiment = Experiment(
            scorer, tried, order, bar, most, search, base.gate, numbered, likely
        )
        gate = base.gate
        if gate.passes and not experiment.is_sound():
            results = experiment.run()
        else:
            results = search.judge_base(order[: min(SECOND, most)])
        if not gate.passes and len(scorer.engines) == 1:
            found = experiment.run()
            with suppress(StoppedError):
                gate = experiment.gate_with(found[0]) or gate
            results = found if gate.passes else results
    if isinstance(scorer.engine, ServerEngine) and not scorer.is_stopped:
        scorer.engine.confirm(scorer.samples)
    proof = decide(
        scorer,
        results,
        gate=gate,
        not_tested=experiment.not_tested,
        tried=None if experiment.is_complete else experiment.tried,
        seconds=time.perf_counter() - begin,
    )
    go_on = partial(
        prove_with,
        scorer,
        known,
        samples=samples,
        numbered=numbered,
        names=names,
        base=base,
    )
    return replace(proof, plan=experiment.plan, go_on=go_on)


def _reason(error: BaseException) -> str:
    """Return the first sentence of an error; Ctrl-C has none."""
    return str(error).split(". ")[0].rstrip(".") or "it was interrupted"


def _rank_causes(scorer: Scorer) -> dict[str, int]:
    """Return the causes of the findings in their order, each with its candidates."""
    likely: dict[str, int] = {}
    for finding in scorer.diagnosis or ():
        for cause in (finding.cause, *(one.cause for one in finding.candidates)):
            likely.setdefault(cause, len(likely))
    return likely
