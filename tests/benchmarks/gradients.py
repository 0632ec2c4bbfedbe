"""What faults do to the gradient of a step, and what weights of tokens say of it.

    python -m tests.benchmarks.gradients [NUMBER]

The sample model is the training engine; NUMBER samples (16) of the healthy sample batch
are the step, with advantages of their groups. A fault changes what the training engine
reads or computes; the rollout stays as it was saved. No optimiser: a backward pass of
-sum(A w log p) each, over all weights of the model. A table in Markdown:

- `mean |diff|`, in nats;
- `fault`: the cosine between the gradients of the faulty and of the sound step, both
  without correction: the damage;
- of TIS, IcePop and sequence TIS `said`, the cosine that `rd.corrections` gives, which
  knows nothing but weights of tokens; `1 - p`, the same with |A| (1 - p) as the size of
  a token's gradient; and `is`, that of the faulty step's gradients with and without the
  correction: what was to be predicted;
- `sound`: the cosine between the corrected faulty step and the sound one: whether the
  correction helps;
- `moved`, of `rd.corrections`, and `changed`, the norm of the difference between the
  gradients with and without the correction over that without;
- `order`: whether corrections are in the same order by both.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TQDM_DISABLE", "1")

import numpy as np
import torch

import rounddiag as rd
from rounddiag.core.weights import token_weights
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rounddiag.proof.hypotheses.hypothesis import Hypothesis

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
TEMPERATURE, OLDER = "temperature 1.2", "older weights"
FAULTS = (
    *("", TEMPERATURE, OLDER, "no_images", "last_1_images", "later_images_grey"),
    *("images_reversed", "observations_masked", "rounds_alone"),
    *("positions_restart_at_rounds", "counted_positions"),
)
CORRECTIONS = ("tis", "icepop", "sequence_tis")


@dataclass(frozen=True, kw_only=True)
class Step:
    """The log-probs of a step under a fault, with the graph that made them."""

    engine: LocalEngine
    parts: list[Tensor]  # of each sample

    @property
    def log_probs(self) -> Tensor:
        return torch.cat([one.detach() for one in self.parts])

    def gradient(self, pull: Tensor) -> Tensor:
        """Return the gradient of -sum(pull log p), flat."""
        loss = -(torch.cat(self.parts) * pull).sum()
        weights = [*self.engine.model.parameters()]
        found = torch.autograd.grad(
            loss, weights, retain_graph=True, materialize_grads=True
        )
        return torch.cat([one.reshape(-1) for one in found]).double()


def run(batch: rd.Batch, engine: LocalEngine, fault: str) -> Step:
    """Read every sample under a fault."""
    scorer = Scorer(batch, engine, engine)
    known = {one.name: one for one in all_registered()}
    chain: Sequence[Hypothesis] = [known[fault]] if fault in known else []
    read: Any = LocalEngine.read
    parts = []
    for sample in range(batch.num_samples):
        engine.forget()  # features of pictures belong to one graph
        requests = scorer.requests(chain, sample) or scorer.requests([], sample)
        assert requests is not None
        one = scorer.samples[sample]
        found = torch.full((len(one.ids),), torch.nan)
        for request in requests:
            readout = read.__wrapped__(engine, request, scorer.samples)
            scored = request.is_scored.clone()
            scored[0] = False
            logits = readout.head(readout.hidden)
            logits = logits / (1.2 if fault == TEMPERATURE else 1)
            own = logits.log_softmax(-1).gather(-1, readout.tokens[:, None])[:, 0]
            found = found.index_put((request.source[scored],), own)
        parts.append(found[torch.from_numpy(one.targets)])
    return Step(engine=engine, parts=parts)


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


def step_batch(number: int) -> rd.Batch:
    """Samples of whole groups, with the advantage of each in its group."""
    batch = rd.load(SAMPLE_DATA / "healthy.parquet")[:number]
    assert batch.rewards is not None
    assert batch.group_ids is not None
    rewards = batch.rewards.numpy()
    groups = np.array(batch.group_ids)
    mean = {name: rewards[groups == name].mean() for name in {*batch.group_ids}}
    # A group of equal rewards has no gradient: those count as 1 and -1 by turns.
    by_turns = np.where(np.arange(len(rewards)) % 2, -1.0, 1.0)
    own = np.array([r - mean[g] for r, g in zip(rewards, groups, strict=True)])
    own = np.where(own == 0, by_turns, own)
    values = torch.from_numpy(np.repeat(own, batch.lengths.numpy())).float()
    return replace(batch, advantages=values)


def main(number: int) -> None:
    batch = step_batch(number)
    assert batch.advantages is not None
    inside = batch.response_mask != 0
    folders = {OLDER: "older_model"}
    engines = {
        name: LocalEngine.open(str(SAMPLE_DATA / name), device="cpu", dtype="float32")
        for name in ("model", "older_model")
    }
    for engine in engines.values():
        engine.model.requires_grad_(requires_grad=True)
    pull = batch.advantages[inside]
    sound = run(batch, engines["model"], "").gradient(pull)
    columns = "said | 1 - p | is | sound | moved | changed"
    heads = [f"{name} {columns}" for name in CORRECTIONS]
    print("| fault | mean abs diff | fault |", " | ".join(heads), "| order |")
    print("|---" * (4 + 6 * len(CORRECTIONS)), "|", sep="")
    for fault in FAULTS:
        step = run(batch, engines[folders.get(fault, "model")], fault)
        old = batch.log_probs("old").clone()
        old[inside] = step.log_probs
        faulty = replace(batch, old_log_probs=old)
        plainly = rd.corrections(faulty, CORRECTIONS).set_index("correction")
        said, moved = plainly["cosine"], plainly["moved"]
        unsure = (pull * -step.log_probs.expm1()).numpy()
        rows = rd.corrections(faulty, CORRECTIONS, advantages=unsure)
        better = rows.set_index("correction")["cosine"]
        plain = step.gradient(pull)
        size = float((old - batch.log_probs("rollout"))[inside].abs().mean())
        cells = [f"{size:.3f}", f"{cosine(plain, sound):.2f}"]
        changed = {}
        for name in CORRECTIONS:
            weights = torch.from_numpy(token_weights(faulty, name))
            corrected = step.gradient(pull * weights)
            changed[name] = float((corrected - plain).norm() / plain.norm())
            values = (
                *(said[name], better[name]),
                *(cosine(corrected, plain), cosine(corrected, sound)),
                *(moved[name], changed[name]),
            )
            cells += [f"{value:.2f}" for value in values]
        orders = [sorted(CORRECTIONS, key=by.__getitem__) for by in (moved, changed)]
        cells.append("same" if orders[0] == orders[1] else "another")
        print(f"| {fault or 'none'} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 16)
