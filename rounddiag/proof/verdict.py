"""From opinions about both engines to one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pandas as pd
import torch

from rounddiag.batch import Batch
from rounddiag.checks.grammar import recorded_choices, recorded_grammar
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.gate import Gate
from rounddiag.proof.hypotheses.choices import STRUCTURED
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.judge import MOST_RESIDUAL_TO_NOISE, Opinion
from rounddiag.proof.proof import NOT_APPLICABLE, ONLY, Conclusion, Proof
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.scores import ScoreTable
from rounddiag.proof.trajectory import to_flat
from rounddiag.proof.weights import WEIGHTS
from rounddiag.wording import percent

MOST_FAR = 0.02  # share of tokens that a sound engine may have far off
RIVAL = np.log(20.0)  # nats: a rival that is not 20 times less likely is as good
_PART = 0.5  # least share that a hypothesis explains, of the only odd engine


def cause_of(hypothesis: Hypothesis, opinion: Opinion) -> str:
    """Return the cause: weights that hold in some rounds changed meanwhile."""
    in_rounds = hypothesis.cause_in_rounds if "round" in opinion.where else ""
    return in_rounds or hypothesis.cause


@dataclass(frozen=True, eq=False, kw_only=True)
class EngineResult:
    """What was found about one engine.

    Attributes
    ----------
    base: Of unchanged inputs.
    ranking: Against the base, best first; empty for an engine that needs no hypothesis.
    chain: What was accepted, one after the other.
    last: The ranking in which the last of the chain won.
    table: The tokens that were judged, in the order of the scores of an opinion.
    """

    engine: str
    base: Opinion
    num_hypotheses: int
    table: ScoreTable
    ranking: Sequence[tuple[Hypothesis, Opinion]] = ()
    chain: Sequence[tuple[Hypothesis, Opinion]] = ()
    last: Sequence[tuple[Hypothesis, Opinion]] = ()

    @property
    def is_sound(self) -> bool:
        """Whether unchanged inputs reproduce the engine."""
        return (
            self.base.residual_to_noise <= MOST_RESIDUAL_TO_NOISE
            and self.base.harmed <= MOST_FAR
        )

    @property
    def is_proved(self) -> bool:
        """Whether the last of the chain reproduces the engine."""
        if not self.chain:
            return False
        # Two together were searched for among all pairs.
        number = self.num_hypotheses ** len(self.chain)
        return self.chain[-1][1].is_proof(number)

    @property
    def is_clear(self) -> bool:
        """Whether all rivals read what the last of the chain reads.

        Such as the prompts that the sampler recorded, and how they came about.
        """
        return all(
            np.array_equal(opinion.scores, self.chain[-1][1].scores, equal_nan=True)
            for _, opinion in self.rivals
        )

    @property
    def rivals(self) -> list[tuple[Hypothesis, Opinion]]:
        """Hypotheses of other causes that do as well as the last of the chain."""
        if not self.is_proved:
            return []
        best, mine = self.chain[-1]
        return [
            (hypothesis, opinion)
            for hypothesis, opinion in self.last
            if cause_of(hypothesis, opinion) != cause_of(best, mine)
            and opinion.is_proof(self.num_hypotheses)
            and mine.evidence - opinion.evidence < RIVAL
        ]

    @property
    def is_decided(self) -> bool:
        """Whether more samples would change nothing."""
        return (self.is_proved and self.is_clear) or (self.is_sound and not self.chain)


def decide(
    scorer: Scorer,
    results: Sequence[EngineResult],
    *,
    gate: Gate,
    not_tested: Mapping[str, str],
    seconds: float,
    tried: tuple[int, int] | None = None,
) -> Proof:
    """Return the proof that follows from what was found about each engine.

    `tried` are how many hypotheses were tried, of how many, where not all were.
    """
    verdict, side, chosen = _verdict(results, gate)
    num_equal = len(scorer.equal_rows)
    if verdict == "nothing_to_prove" and num_equal:
        verdict = "none_of_these"
    if tried is not None and verdict in {"proved", "partly", "none_of_these"}:
        verdict = "so_far"
    step = _next_step(verdict, side, results, gate) + _other_version(verdict, scorer)
    if verdict == "none_of_these" and num_equal:
        step = (
            f"In {num_equal} of {len(scorer.samples)} samples both engines agree bit by"
            f" bit: what differs in the others is not their noise. {step}"
        )
    skipped = {**_shorten(not_tested), **_list_skipped(scorer)}
    conclusions = tuple(_conclude(result) for result in chosen)
    causes = tuple(dict.fromkeys(name for each in conclusions for name in each.causes))
    return Proof(
        verdict=verdict,  # type: ignore[arg-type]
        side=side,
        cause=causes[0] if causes else None,
        causes=causes,
        conclusions=conclusions,
        frame=_frame(results, scorer),
        batch=_scored_batch(scorer, results),
        not_tested=dict(sorted(skipped.items(), key=lambda pair: _is_usual(pair[1]))),
        next_step=step,
        scorer=scorer.engine.name,
        seconds=seconds,
        base={result.engine: result.base for result in results},
        refuted=_name_refuted(results, chosen),
        note=gate.note,
        num_sent=len(getattr(scorer.engine, "sent", ())),
        temperature=scorer.temperature,
        tried=tried or (0, 0),
    )


def _verdict(
    results: Sequence[EngineResult], gate: Gate
) -> tuple[str, str | None, list[EngineResult]]:
    results = [result for result in results if np.isfinite(result.base.residual)]
    if not results:
        return "not_measurable", None, []
    if not gate.passes:
        return "scorer_differs", None, []
    proved = [result for result in results if result.is_proved]
    if len(proved) == len(results) > 1:
        names = {result.chain[-1][0].name for result in proved}
        if len(names) == 1 and len(proved[0].chain) == 1:
            # Both engines have it, so the model given is the one that differs.
            return "scorer_differs", None, proved
    odd = [result for result in results if not result.is_sound]
    if proved:
        rest = [result for result in odd if result not in proved]
        clear = not rest and all(result.is_clear for result in proved)
        return ("proved" if clear else "partly"), _side(proved, results), proved
    if not odd:
        return "nothing_to_prove", None, []
    side = _side(odd, results) if len(odd) == 1 else None
    part = [
        result
        for result in odd
        if result.chain and result.chain[0][1].share >= _PART and len(odd) == 1
    ]
    return ("partly" if part else "none_of_these"), side, part


def _side(odd: Sequence[EngineResult], results: Sequence[EngineResult]) -> str:
    if len(results) == 1:
        return ONLY
    if len(odd) == len(results) == 2:  # noqa: PLR2004 both of two
        return "both"
    return " and ".join(result.engine for result in odd)


def _conclude(result: EngineResult) -> Conclusion:
    return Conclusion(
        engine=result.engine,
        says=tuple(each.says for each, _ in result.chain),
        causes=tuple(dict.fromkeys(cause_of(*pair) for pair in result.chain)),
        opinions=tuple(opinion for _, opinion in result.chain),
        rivals=tuple(each.says for each, _ in result.rivals),
    )


def _frame(results: Sequence[EngineResult], scorer: Scorer) -> pd.DataFrame:
    rows = []
    for result in results:
        proved = {each.name for each, _ in result.chain} if result.is_proved else set()
        tried = [("base", "", result.base)]
        tried += [
            (each.name, cause_of(each, that), that) for each, that in result.ranking
        ]
        for name, cause, that in tried:
            row = vars(that) | {
                "hypothesis": name,
                "cause": cause,
                "residual_to_noise_before": that.residual_to_noise * that.gain,
                "log_likelihood_ratio": that.evidence,
                "is_proved": name in proved,
                "seconds": scorer.seconds.get(name, 0.0),
            }
            rows.append({column: row[column] for column in _COLUMNS})
    return pd.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = (
    *("hypothesis", "cause", "engine", "where", "residual", "noise", "before"),
    *("residual_to_noise", "residual_to_noise_before", "share"),
    *("log_likelihood_ratio", "num_tokens", "num_samples", "num_nearer"),
    *("is_proved", "seconds"),
)


def _scored_batch(scorer: Scorer, results: Sequence[EngineResult]) -> Batch:
    samples, batch = scorer.scored_samples, scorer.batch
    scores = dict(batch.scores)
    scores["base"] = to_flat(
        batch, [(scorer.samples[each], scorer.base(each)) for each in samples]
    )
    for result in results:
        if not result.chain or result.chain[-1][0].is_column:
            continue
        # The last of the chain was judged on top of the others, where they hold.
        flat = torch.full((batch.num_positions,), torch.nan)
        flat[result.table.at] = torch.from_numpy(result.chain[-1][1].scores).float()
        scores[" + ".join(each.name for each, _ in result.chain)] = flat
    return replace(batch, scores=scores)[samples]


def _name_refuted(
    results: Sequence[EngineResult], chosen: Sequence[EngineResult]
) -> tuple[str, ...]:
    good = {
        each.name for result in chosen for each, _ in (*result.chain, *result.rivals)
    }
    tested = [
        each.says
        for result in results
        for each, opinion in result.ranking
        if each.name not in good and opinion.is_powered and not opinion.reproduces
    ]
    return tuple(dict.fromkeys(tested))


def _shorten(reasons: Mapping[str, str]) -> dict[str, str]:
    groups: dict[str, list[str]] = {}
    for name, why in reasons.items():
        groups.setdefault(why, []).append(name)
    return {
        names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more": why
        for why, names in groups.items()
    }


def _is_usual(why: str) -> int:
    return 2 if why in NOT_APPLICABLE else int(why.startswith("needs "))


def _list_skipped(scorer: Scorer) -> dict[str, str]:
    skipped = {}
    if not any(name.startswith(WEIGHTS) for name in scorer.weights):
        skipped["older weights"] = "no checkpoints given"
    grammar, findings = recorded_grammar(scorer.batch), scorer.diagnosis or ()
    possible = {row.cause for finding in findings for row in finding.candidates}
    if grammar and not recorded_choices(scorer.batch):
        skipped[STRUCTURED] = f"`{grammar}` is recorded; only a `choice` is masked"
    elif not grammar and STRUCTURED in possible:
        skipped[STRUCTURED] = "no `choice` is recorded in `sampling`"
    if isinstance(scorer.engine, ServerEngine) and scorer.engine.dialect.cache_note:
        skipped["stale cache of the server"] = scorer.engine.dialect.cache_note
    if scorer.unscored:
        sample, why = next(iter(scorer.unscored.items()))
        more = len(scorer.unscored) - 1
        name = f"sample {sample}" + (f" and {more} more" if more else "")
        skipped[name] = why.split(".")[0]
    return skipped


def _next_step(
    verdict: str, side: str | None, results: Sequence[EngineResult], gate: Gate
) -> str:
    if verdict == "scorer_differs" and not gate.passes:
        return gate.advice
    if verdict == "scorer_differs":
        return (
            "Check that the model is the checkpoint of this step, that its processor is"
            " the engines', and the temperature; then prove again."
        )
    if verdict == "none_of_these":
        best = max(
            (result for result in results if result.ranking),
            key=lambda result: result.ranking[0][1].evidence,
            default=None,
        )
        closest = ""
        if best is not None:
            nearest, opinion = best.ranking[0]
            share = max(opinion.share, 0)
            closest = f" The closest, {nearest.says}, explains {percent(share)}."
        who = f" of `{side}`" if side else " of each engine"
        return f"Record what the request{who} held: ids, positions, weights.{closest}"
    if verdict == "so_far":
        return "`proof.more(budget_s=600)` tries the others."
    if verdict == "partly":
        return "Prove again with checkpoints= and pictures as the processor got them."
    return ""


def _other_version(verdict: str, scorer: Scorer) -> str:
    """Name the version of transformers that the batch was recorded with, if another."""
    versions = scorer.batch.meta.get("versions")
    if verdict != "scorer_differs" or not isinstance(versions, Mapping):
        return ""
    recorded = versions.get("transformers")
    with suppress(PackageNotFoundError):
        here = version("transformers")
        if recorded and recorded != here:
            return f" The trainer had transformers {recorded}; here is {here}."
    return ""
