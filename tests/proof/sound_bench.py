"""Sound batches, and batches with a fault, scored by wrong models: nothing may be said.

    python -m tests.proof.sound_bench [NUMBER] [one] [right|step|given|kind|nonsense ..]

Each row has NUMBER batches (60): some samples of the sample data with noise of another
size. `right` scores with the model of this step, `step` with a mixture of it and an
older one, `given` the same with the right one among the checkpoints, `kind` with the
architecture and other weights, `nonsense` with weights that are permuted, cut or of the
wrong sign. Every second batch of the wrong models has a fault in the training engine;
with `one` the other engine's log-probs are left out.
One line a batch, then how many statements are false.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.proof import Proof
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.experiment import prove_with
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.proof import ONLY
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.weights import weight_hypotheses_of

Change = Callable[[dict[str, torch.Tensor], torch.Generator], None]

MODEL, OLDER = "sample_data/model", "sample_data/older_model"
ROWS = ("right", "step", "given", "kind", "nonsense")
FALSE = {"proved", "partly", "none_of_these"}


def sample_batch(number: int, *, has_fault: bool) -> Batch:
    """Return 8 samples, with noise of a size of its own."""
    rng = np.random.default_rng(number)
    whole = rd.load(f"sample_data/{'image_window' if has_fault else 'healthy'}.parquet")
    batch = whole[sorted(rng.permutation(whole.num_samples)[:8].tolist())]
    draw = torch.from_numpy(rng.standard_normal((2, len(batch.require_ids())))).float()
    sizes = rng.choice([0.0, 0.0, 0.002, 0.005], 2)
    old, rollout = (
        (values + size * noise * (values < -0.05)).clamp(max=0)
        for values, size, noise in zip(
            (batch.log_probs("old"), batch.log_probs("rollout")),
            sizes,
            draw,
            strict=True,
        )
    )
    return replace(batch, old_log_probs=old, rollout_log_probs=rollout)


def mix(weights: dict[str, torch.Tensor], number: int, older: dict[str, Any]) -> None:
    """Go a part of the way to the older weights, at least a half."""
    part = 0.5 + 0.5 * np.random.default_rng(number).random()
    for name, value in weights.items():
        value.lerp_(older[name].to(value.dtype), part)


def redraw(weights: dict[str, torch.Tensor], generator: torch.Generator) -> None:
    """Draw weights of the same size anew."""
    for value in weights.values():
        if value.dim() > 1:
            noise = torch.randn(value.shape, generator=generator)
            value.copy_(noise * value.float().std())


def permute_head(weights: dict[str, torch.Tensor], generator: torch.Generator) -> None:
    """Give ids the logits of others."""
    for name, value in weights.items():
        if "embed_tokens" in name or "lm_head" in name:
            value.copy_(value[torch.randperm(len(value), generator=generator)])
            return


def negate(weights: dict[str, torch.Tensor], generator: torch.Generator) -> None:
    """Turn the sign of one kind of weight."""
    kinds = ("o_proj", "down_proj", "q_proj", "v_proj")
    kind = kinds[int(torch.randint(len(kinds), (1,), generator=generator))]
    for name, value in weights.items():
        if kind in name:
            value.neg_()


def cut(weights: dict[str, torch.Tensor], generator: torch.Generator) -> None:
    """Lose the weights of a kind."""
    kinds = ("self_attn", "mlp", "norm")
    kind = kinds[int(torch.randint(len(kinds), (1,), generator=generator))]
    for name, value in weights.items():
        if kind in name:
            value.zero_()


NONSENSE: tuple[Change, ...] = (permute_head, negate, cut)


def prove_row(row: str, number: int, engines: dict[str, Any], kept: Any) -> Proof:
    """Prove one batch with the weights of a row."""
    has_fault = row != "right" and number % 2 == 1
    batch = sample_batch(number, has_fault=has_fault)
    if "one" in sys.argv:
        batch = replace(batch, rollout_log_probs=None)
    generator = torch.Generator().manual_seed(number)
    for one in (engines["engine"], engines["low"]):
        weights = dict(one.model.named_parameters())
        for name, value in weights.items():
            value.data.copy_(kept[name].to(value.dtype))
        data = {name: value.data for name, value in weights.items()}
        if row in {"step", "given"}:
            mix(data, number, engines["older"])
        elif row == "kind":
            redraw(data, generator.manual_seed(number))
        elif row == "nonsense":
            NONSENSE[number % 3](data, generator.manual_seed(number))
        one.forget()
    scorer = Scorer(batch, engines["engine"], engines["low"])
    others = []
    if row == "given":
        scorer.weights["weights_right"] = engines["right"]
        others = weight_hypotheses_of("right")
    return prove_with(
        scorer, all_registered(), others, begin=time.perf_counter(), budget_s=120
    )


def is_false(row: str, number: int, proof: Proof) -> bool:
    """Return whether a statement is false; the fault of `given` is a true one."""
    has_fault = row != "right" and number % 2 == 1
    if row == "given" and has_fault:
        return proof.verdict in FALSE and proof.side not in {"old", ONLY}
    return proof.verdict in FALSE or (has_fault and proof.verdict == "nothing_to_prove")


def main() -> int:
    """Print a line for each batch, and the numbers of false statements."""
    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    number = int(sys.argv[1]) if sys.argv[1:] else 60
    engine = LocalEngine.open(MODEL, dtype="float32")
    engines: dict[str, Any] = {
        "engine": engine,
        "right": engine.beside(dtype="float32"),
        "low": engine.beside(dtype="bfloat16"),
        "older": dict(engine.beside(OLDER, dtype="float32").model.named_parameters()),
    }
    kept = {name: value.clone() for name, value in engine.model.named_parameters()}
    wrong: Counter[str] = Counter()
    for row in [word for word in sys.argv[2:] if word != "one"] or ROWS:
        for each in range(number):
            proof = prove_row(row, each, engines, kept)
            is_wrong = is_false(row, each, proof)
            wrong[row] += is_wrong
            mark = "FALSE" if is_wrong else "-"
            best = proof.next_step.split(".")[0] if proof.next_step else ""
            print(
                f"{mark:5} {row:9}{each:3} {proof.verdict} {proof.side} {proof.causes}"
                f" {best} ({proof.seconds:.1f} s)",
                flush=True,
            )
        print(f"{row}: {wrong[row]} false of {number}", flush=True)
    return int(wrong.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
