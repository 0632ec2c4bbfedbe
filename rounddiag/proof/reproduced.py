"""The engines of a batch that a proof has reproduced, and as which hypothesis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.proof.hypotheses.hypothesis import Hypothesis, all_registered
from rounddiag.schema import ORIGINAL_SAMPLE

if TYPE_CHECKING:
    from rounddiag.proof.proof import Conclusion, Proof


@dataclass(frozen=True, kw_only=True)
class ReproducedEngine:
    """An engine that the model is, as it is or under a hypothesis.

    Attributes
    ----------
    engine: `old`, `rollout`, or another score of the batch.
    hypothesis: The name of what it read instead; empty for the model as it is.
    residual: What the proof leaves of its log-probs, a median in nats.
    """

    engine: str
    hypothesis: str
    residual: float


def reproduced_engines(
    proof: Proof | None, batch: Batch
) -> tuple[list[ReproducedEngine], list[str]]:
    """Return the engines that a proof of a batch has reproduced; and why not others."""
    if proof is None:
        return [], []
    _require_same(proof.batch, batch)
    engines, notes = [], []
    concluded = {conclusion.engine: conclusion for conclusion in proof.conclusions}
    for name, opinion in proof.base.items():
        if name in concluded:
            conclusion = concluded[name]
            why = _why_not(proof, conclusion)
            if why:
                notes.append(f"{name} is not named: {conclusion.name} {why}.")
                continue
            hypothesis, residual = conclusion.name, conclusion.opinions[-1].residual
        elif opinion.residual_to_noise <= proof.noise_limit:
            hypothesis, residual = "", opinion.residual
        else:
            continue
        engines.append(
            ReproducedEngine(engine=name, hypothesis=hypothesis, residual=residual)
        )
    return engines, notes


def find_hypothesis(name: str) -> Hypothesis | None:
    """Return a hypothesis of what is read, by its name; None if no name is known so."""
    known = (each for each in all_registered() if each.name == name)
    return next((each for each in known if each.edit is not None), None)


def _why_not(proof: Proof, conclusion: Conclusion) -> str:
    if proof.verdict != "proved":
        return "is not proved"
    if any(opinion.where != "all" for opinion in conclusion.opinions):
        return "holds in a part of the batch only"
    if find_hypothesis(conclusion.name) is None:
        return "is no change of what is read, or not of one kind alone"
    return ""


def _require_same(proved: Batch, batch: Batch) -> None:
    """Raise a BatchError unless the samples of a proof are of a batch."""
    own = batch.sample_columns.get(ORIGINAL_SAMPLE.name, range(len(batch)))
    row_of = {int(number): row for row, number in enumerate(own)}
    numbers = proved.sample_columns.get(ORIGINAL_SAMPLE.name, range(len(proved)))
    rows = [row_of.get(int(number)) for number in numbers]
    pairs = [
        (proved[[at]], batch[[row]]) for at, row in enumerate(rows) if row is not None
    ]
    if not pairs or not all(
        torch.equal(
            mine.require_ids()[mine.response_mask != 0].cpu(),
            theirs.require_ids()[theirs.response_mask != 0].cpu(),
        )
        for mine, theirs in pairs
    ):
        raise BatchError.build(
            key="proof",
            expected="a proof of this batch",
            found="one of other token ids",
            advice="Pass what `rounddiag.prove(batch, model)` returned.",
        )
