"""`prove`: score the same tokens under each hypothesis, and say which one holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.checks.grammar import recorded_choices
from rounddiag.errors import BatchError
from rounddiag.findings.causes import PROVABLE, spread_families
from rounddiag.proof.base import Base, find_base
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.opening import open_engine, open_low_precision
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.gate import MOST_OF_USUAL, Gate
from rounddiag.proof.hypotheses.choices import STRUCTURED, choice_hypothesis
from rounddiag.proof.hypotheses.hypothesis import (
    Hypothesis,
    all_registered,
    select_hypotheses,
)
from rounddiag.proof.hypotheses.sampling import FITTED
from rounddiag.proof.judge import base_opinion, judge, noise_floor
from rounddiag.proof.proof import Proof
from rounddiag.proof.samples import MAX_SAMPLES, choose_samples
from rounddiag.proof.scorer import Scorer, StoppedError, require_seconds
from rounddiag.proof.scores import Stops
from rounddiag.proof.screening import FIRST, SECOND, Screening
from rounddiag.proof.search import ALIKE, FEW, KEPT, Finalists, Search, sort_ranking
from rounddiag.proof.verdict import RIVAL, EngineResult, decide
from rounddiag.proof.weights import adapter_hypotheses, weight_hypotheses
from rounddiag.wording import pluralize

STOPPED = (KeyboardInterrupt, ServerError, StoppedError)


@dataclass(eq=False)
class Experiment:
    """One proof while it is made.

    Attributes
    ----------
    gate: Of unchanged inputs.
    is_complete: Whether all hypotheses were tried that had to be.
    """

    search: Search
    screening: Screening
    gate: Gate
    is_complete: bool = False

    def __post_init__(self) -> None:
        self.scorer, self.order = self.search.scorer, self.screening.order

    def conclude(self) -> tuple[list[EngineResult], Gate]:
        """Return what reproduces each engine, and the gate with what is proved.

        Where unchanged inputs reproduce no engine, hypotheses are about the only one.
        """
        if self.gate.passes and not self.is_sound():
            return self.run(), self.gate
        plain = self.search.judge_base(self._whole(SECOND))
        if self.gate.passes or len(self.scorer.engines) != 1:
            return plain, self.gate
        searched, gate = self.run(), self.gate
        with suppress(StoppedError):
            gate = self.gate_with(searched[0]) or gate
        return searched if gate.passes else plain, gate

    def _whole(self, size: int) -> Stops:
        return dict.fromkeys(self.order[:size])

    def run(self) -> list[EngineResult]:
        """Return what was found about each engine.

        Hypotheses are screened on few samples; the best of them are judged on whole
        samples, more of them until it is decided. After Ctrl-C, at the deadline, or
        when a server fails, what is known by then is judged.
        """
        self.screening.begin()
        bar, results = self.screening.bar, list[EngineResult]()
        try:
            for screened in self.screening.run():
                self.is_complete = not self.scorer.clock.is_stopped
                bar.total = len(self.screening.known)
                bar.update(bar.total - bar.n)
                results = _append(self._confirm(screened), screened)
                is_decided = all(result.is_decided for result in results)
                if is_decided or not self.is_complete:
                    break
        except STOPPED as error:
            self.screening.stop(error)
            return self.screening.results or self.screening.judge()
        return results

    def gate_with(self, result: EngineResult) -> Gate | None:
        """Return the gate with what is proved of the only engine as the base.

        No second engine tells which tokens are sound: all of its tokens have to be back
        at the scorer's own noise, in samples that no number was fitted to.
        """
        table = result.table
        samples = [*table.stops][FEW:]
        if not (result.is_proved and samples):
            return None
        chain = tuple(hypothesis for hypothesis, _ in result.chain)
        changed = table.rebase(result.chain[-1][1].scores)
        if not any(hypothesis.is_column or hypothesis.weights for hypothesis in chain):
            low = self.scorer.column(chain, table.stops, low_precision=True)
            low = np.where(changed.base == table.base, table.low_precision, low)
            own = replace(changed, low_precision=low)
            noise = [np.nansum(np.abs(each.rounding)) for each in (own, changed)]
            changed = own if noise[0] > noise[1] else changed
        changed = replace(changed, usual=None).of_samples(samples)
        gate = Gate.of_table(changed)
        fit = gate.fits[0]
        note = (
            f"No token is reproduced without it. With it the model leaves"
            f" {fit.residual:.2g} nat of all tokens of"
            f" {pluralize(len(samples), 'other sample')}, where {fit.usual:.2g} is its"
            " own noise."
        )
        return replace(gate, note=note)

    def is_sound(self) -> bool:
        """Return whether unchanged inputs reproduce all engines, and no part differs.

        Then there is nothing to prove. Rows that differ beside rows that agree bit by
        bit are such a part.
        """
        is_bug = any(finding.is_bug for finding in self.scorer.diagnosis or ())
        if is_bug or self.scorer.equal_rows:
            return False
        try:
            results = self.search.judge_base(self._whole(SECOND))
        except StoppedError:
            return False
        gate = Gate.of_table(self.search.table(self._whole(SECOND)))
        return all(fit.high <= MOST_OF_USUAL for fit in gate.fits) and all(
            result.is_sound for result in results
        )

    def _confirm(self, results: list[EngineResult]) -> list[EngineResult]:
        for size in (FIRST, SECOND, 8, 12, MAX_SAMPLES):
            samples = self._whole(size)
            tested = {result.engine: self._finalists(result) for result in results}
            self.screening.bar.set_description(
                f"judging {pluralize(len(samples), 'sample')}"
            )
            try:
                judged = self.search.judge(samples, tested)
                self.scorer.clock.go_on()  # else hypotheses are missing
                results = judged
            except STOPPED as error:
                self.screening.stop(error)
                break
            decided = size >= SECOND and all(result.is_decided for result in results)
            if decided and not self.gate.passes:
                gate = self.gate_with(results[0])
                decided = gate is None or gate.is_decided
            if decided or len(samples) == len(self.order):
                break
        return results

    def _finalists(self, result: EngineResult) -> Finalists:
        """Return what is tried on more samples: where one is proved, its rivals."""
        chosen, families = result.ranking[: KEPT + ALIKE], None
        if result.is_proved and len(result.chain) == 1:
            best = result.chain[0][1].evidence
            chosen = [
                (hypothesis, opinion)
                for hypothesis, opinion in result.ranking
                if opinion.reproduces
                or best - opinion.evidence < RIVAL
                or hypothesis.weights
            ]
            families = {hypothesis.name for hypothesis, _ in chosen}
        return [
            hypothesis for hypothesis, _ in chosen if hypothesis in self.screening.known
        ], families


def _append(
    results: Sequence[EngineResult], before: Sequence[EngineResult]
) -> list[EngineResult]:
    merged = []
    for result, earlier in zip(results, before, strict=True):
        names = {each.name for each, _ in result.ranking}
        rest = [pair for pair in earlier.ranking if pair[0].name not in names]
        ranking = sort_ranking([*result.ranking, *rest])
        merged.append(replace(result, ranking=ranking))
    return merged


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
        Names of hypotheses, of causes or of families (`rounddiag.findings.FAMILIES`);
        by default all that can be tested, those that `rounddiag.diagnose` lists first.
    samples : int or sequence of int, optional
        At most so many samples, or these; by default 5 to 16, until it is decided.
    checkpoints : mapping of label to folder, optional
        Other weights that an engine may have had. Where the batch has
        `round_columns["weight_version"]`, the labels may be these versions.
    adapters : mapping of label to folder, optional
        LoRA adapters as peft saves them. A sound engine adds the first one to the
        model, which is without it; it may have been left out, scaled otherwise, or be
        one of the others. `pip install 'rounddiag[lora]'` has peft, which adds them.
    device : str
        Of a model in this process; `auto` is a GPU if there is one.
    budget_s : float
        After so many seconds, with loading, no further pass is begun: what is known by
        then is judged.
    trust_remote_code : bool
        Whether code of the model's repository may run.

    Notes
    -----
    Tested with tiny models of Qwen2-VL to Qwen3-VL, GLM-4.1V to 4.6V, Gemma 3,
    InternVL, Llama 3.2 Vision, SmolVLM and Mistral 3 with Pixtral's encoder, vLLM on a
    CPU, and a stand-in for SGLang.
    """
    require_batch(batch)
    batch.require_ids()
    if not batch.scores and batch.lacks("old"):
        batch.require("rollout")
    require_seconds(budget_s)
    begin = time.perf_counter()
    names = None if hypotheses is None else spread_families(hypotheses)
    families = {family.name for family in FITTED}
    known = select_hypotheses(all_registered(), names, PROVABLE | families)
    if isinstance(engine, Scorer):  # of the same ids
        scorer = engine.about(batch)
    else:
        given = open_engine(engine, device=device, trust_remote_code=trust_remote_code)
        scorer = Scorer(batch, given)
    choices = recorded_choices(scorer.batch)
    if choices and (names is None or STRUCTURED in names):
        known.append(choice_hypothesis(choices, scorer.engine))
    scorer.low_precision = open_low_precision(scorer.engine)
    other = weight_hypotheses(scorer, checkpoints)
    other += adapter_hypotheses(scorer, adapters)
    return prove_with(
        scorer,
        known,
        other,
        samples=samples,
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
    names: AbstractSet[str] | None = None,
    base: Base | None = None,
    begin: float,
    budget_s: float,
) -> Proof:
    """Prove with a scorer that is open; `other` are hypotheses about weights.

    With the base of an earlier proof, what the scorer knows is not scored again.
    """
    require_seconds(budget_s)
    scorer.clock.deadline, scorer.clock.is_stopped = begin + budget_s, False
    order = choose_samples(scorer, samples)
    base = base or _require_base(scorer, order, other, budget_s)
    scorer, others = base.scorer, base.others
    if not scorer.has_pictures:
        known = [each for each in known if "pictures" not in each.needs]
    tried = [*known, *others]
    older = tuple(each for each in others if each.cause == "stale_weights")
    likely = _rank_causes(scorer)
    with tqdm(total=len(tried), unit="hypothesis", leave=False, delay=1) as bar:
        search = Search(scorer, tried, older, names)
        screening = Screening(search, tried, base.order, bar, likely)
        experiment = Experiment(search, screening, base.gate)
        results, gate = experiment.conclude()
    if base.checkpoint is not None and len(results) == 2:  # noqa: PLR2004 two engines
        results = _blame_older(results, base.checkpoint, base.others[0])
    if isinstance(scorer.engine, ServerEngine) and not scorer.clock.is_stopped:
        scorer.engine.confirm(scorer.samples)
    proof = decide(
        scorer,
        results,
        gate=gate,
        not_tested=screening.not_tested,
        tried=None if experiment.is_complete else screening.tried,
        seconds=time.perf_counter() - begin,
    )
    go_on = partial(
        prove_with,
        scorer,
        known,
        samples=samples,
        names=names,
        base=base,
    )
    return replace(proof, go_on=go_on)


def _require_base(
    scorer: Scorer, order: Sequence[int], others: Sequence[Hypothesis], budget_s: float
) -> Base:
    try:
        return find_base(scorer, order, others)
    except StoppedError as error:
        raise BatchError.build(
            key="budget_s",
            expected="time to score unchanged inputs",
            found=f"{budget_s:g} s",
            advice="Pass more seconds, or shorter samples.",
        ) from error


def _blame_older(
    results: list[EngineResult], checkpoint: Hypothesis, model: Hypothesis
) -> list[EngineResult]:
    """Return results in which the given model is right, if it is an engine.

    It is the model of this step. Where a checkpoint reproduces one engine and the given
    model the other in every sample, the engine of the checkpoint has other weights.
    """
    for older, newer in (results, results[::-1]):
        is_given = newer.chain and newer.chain[0][0] is model
        if not is_given or older.chain or not older.is_sound:
            continue
        opinion = newer.chain[0][1]
        if opinion.where != "all" or opinion.num_nearer < opinion.num_samples:
            continue  # an engine that has it in some samples has old weights there
        given = newer.table.rebase(opinion.scores)
        floors = [noise_floor(given, result.engine) for result in (older, newer)]
        scores = newer.table.base
        proof = checkpoint, judge(given, older.engine, checkpoint, scores, floors[0])
        plain = [
            replace(result, base=base_opinion(given, result.engine, floor), chain=())
            for result, floor in zip((older, newer), floors, strict=True)
        ]
        return [
            replace(plain[0], ranking=[proof], chain=[proof], last=[proof]),
            plain[1],
        ]
    return results


def _rank_causes(scorer: Scorer) -> dict[str, int]:
    """Return the causes of the findings, each with its candidates, by families."""
    likely: dict[str, int] = {}
    for finding in scorer.diagnosis or ():
        families = [*finding.families]
        rows = [row for row in finding.candidates if row.family in families]
        rows.sort(key=lambda row: families.index(row.family))
        for cause in (finding.cause, *(row.cause for row in rows)):
            likely.setdefault(cause, len(likely))
    return likely
