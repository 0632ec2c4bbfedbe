"""Every hypothesis injected on either side of real token ids, and what `prove` says.

    python -m tests.proof.bench MODEL BATCH [NAME ...]

MODEL is the folder of the model that sampled BATCH. The scoring engine runs in float32
and the sampling one in bfloat16, as in training; each hypothesis changes one of them.
Faults that are no hypothesis are a different activation, another order of heads and
noise; the last lines are healthy pairs. One line a case, then the rates.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

import rounddiag as rd
from rounddiag.proof.engines.opening import open_engine
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.hypotheses.sampling import (
    Processor,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
)
from rounddiag.proof.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.batch import Batch
    from rounddiag.proof import Proof

NUM_SAMPLES = 16
LEAST_RATIO = 1.7  # mean |diff| over that of the healthy pair: a fault that shows
SETTINGS: dict[str, tuple[str, Processor]] = {
    "temperature 0.7": ("temperature", Temperature(0.7)),
    "temperature 0.9": ("temperature", Temperature(0.9)),
    "temperature 1.05": ("temperature", Temperature(1.05)),
    "top-p 0.9": ("truncated_sampling", TopP(0.9)),
    "top-k 4": ("truncated_sampling", TopK(4)),
    "repetition penalty 1.1": ("logit_processor", RepetitionPenalty(1.1)),
    "repetition penalty 1.5": ("logit_processor", RepetitionPenalty(1.5)),
}


def columns(
    scorer: Scorer, chain: tuple[Hypothesis, ...], *, rough: bool
) -> torch.Tensor:
    """Return the log-probs of all samples under hypotheses."""
    batch = scorer.batch
    found = torch.zeros(len(batch.response_ids))
    for sample in range(batch.num_samples):
        one = scorer.pool[sample]
        values = scorer.scores(chain, sample, rough=rough)
        plain = scorer.scores((), sample, rough=rough)
        assert plain is not None
        if values is None:
            values = plain
        values = np.where(np.isfinite(values), values, plain)
        at = one.targets - one.start + int(batch.offsets[sample])
        found[torch.from_numpy(at)] = torch.from_numpy(values).float()
    return found


def cases(scorer: Scorer) -> Iterator[tuple[str, str, str, Batch]]:
    """Yield name, cause, side and batch."""
    sound = {
        "old": columns(scorer, (), rough=False),
        "rollout": columns(scorer, (), rough=True),
    }
    healthy = both(scorer.batch, sound)
    level = mismatch(healthy)
    known = [*all_registered()]
    for name, (cause, processor) in SETTINGS.items():
        known.append(Hypothesis(name=name, cause=cause, says=name, processor=processor))
    for one in known:
        if scorer.lacks(one):
            continue
        for side in sound:
            if one.processor is not None and side == "old" and "top" in one.name:
                continue
            broken = columns(scorer, (one,), rough=side == "rollout")
            batch = both(scorer.batch, {**sound, side: broken})
            if mismatch(batch) >= LEAST_RATIO * level:
                yield one.name, one.cause, side, batch
    yield from unproved(scorer, sound)


def unproved(
    scorer: Scorer, sound: dict[str, torch.Tensor]
) -> Iterator[tuple[str, str, str, Batch]]:
    """Yield healthy pairs with more noise, and faults that no hypothesis has."""
    generator = torch.Generator().manual_seed(0)
    for number in range(10):
        noisy = dict(sound)
        for side, values in sound.items():
            draw = torch.randn(values.shape, generator=generator)
            noisy[side] = values + 0.02 * draw * (values < -0.05)
        first = number % 4
        yield f"healthy {number}", "", "", both(scorer.batch, noisy)[first : first + 12]
    for size in (0.1, 0.3, 1.0):
        draw = torch.randn(sound["old"].shape, generator=generator)
        changed = {**sound, "old": (sound["old"] + size * draw).clamp(max=0)}
        yield f"noise {size}", "none", "old", both(scorer.batch, changed)
    for layer in (0, 1):
        other = {**sound, "old": permuted(scorer, layer)}
        yield f"heads of layer {layer}", "none", "old", both(scorer.batch, other)


def permuted(scorer: Scorer, layer: int) -> torch.Tensor:
    """Score with the heads of a layer in another order."""
    net = scorer.engine.model  # type: ignore[attr-defined]
    body = getattr(net.model, "language_model", net.model)
    weight = body.layers[layer].self_attn.q_proj.weight
    kept = weight.data.clone()
    try:
        weight.data = kept + 0.3 * (kept.roll(len(kept) // 4, 0) - kept)
        changed = Scorer(scorer.batch, scorer.engine, scorer.rough)
        return columns(changed, (), rough=False)
    finally:
        weight.data = kept


def both(batch: Batch, values: dict[str, torch.Tensor]) -> Batch:
    """Return the batch with these two columns."""
    return replace(
        batch, old_log_probs=values["old"], rollout_log_probs=values["rollout"]
    )


def mismatch(batch: Batch) -> float:
    """Return the mean |diff|."""
    mask = batch.response_mask != 0
    return float((batch.old_log_probs - batch.rollout_log_probs)[mask].abs().mean())


def grade(proof: Proof, cause: str, side: str) -> str:
    """Return how good an answer is."""
    if cause in ("", "none"):
        return "false proof" if proof.verdict == "proved" else "right"
    if proof.verdict != "proved":
        return proof.verdict
    if proof.side != side:
        return "wrong side"
    return "right" if proof.cause == cause else "wrong cause"


def main() -> int:
    """Print a line for each case, and the rates."""
    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    batch = rd.load(sys.argv[2])[:NUM_SAMPLES]
    opened = open_engine(sys.argv[1])
    scorer = Scorer(batch, opened.engine, opened.rough)
    counts: Counter[tuple[str, str]] = Counter()
    for name, cause, side, one in cases(scorer):
        if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
            continue
        proof = rd.prove(one, opened.engine)
        answer = grade(proof, cause, side)
        kind = {"": "healthy", "none": "outside"}.get(cause, "injected")
        counts[kind, answer] += 1
        says = " + ".join(text for each in proof.conclusions for text in each.says)
        print(
            f"{answer:17} {name} ({cause or 'healthy'}, {side}): {proof.verdict}"
            f" {proof.side} {proof.cause}; {says}; {proof.seconds:.0f} s",
            flush=True,
        )
    for (kind, answer), number in sorted(counts.items()):
        print(f"{kind}: {answer} {number}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
