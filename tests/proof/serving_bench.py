"""One engine's trajectories with a serving fault, scored again with the model served.

    python -m tests.proof.serving_bench [planted|sound|step ...] [NUMBER]

Each batch has 8 trajectories of the sample data and the sampler's log-probs only, with
noise of a size of its own. `planted` are 30 faults of what serves: in all tokens, or in
every second trajectory. `sound` has none; `step` is scored with a mixture of the model
and an older one. One line a batch, then how many answers are right: the cause, nothing
to prove, and `scorer_differs`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from rounddiag.batch import Batch
from rounddiag.proof import Proof
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.experiment import prove_with
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.hypotheses.sampling import FITTED
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.weights import adapter_hypotheses, kept_rounds, weight_hypotheses
from tests.proof.bench import column, only
from tests.proof.sound_bench import MODEL, OLDER, mix, sample_batch

NUMBERS = {"planted": 30, "sound": 30, "step": 10}
# Of each kind of fault, what is planted: `NAME` or `FAMILY=NUMBER`, and in which part.
PLANTED: Mapping[str, tuple[str, ...]] = {
    "images dropped": (
        *("no_images gross", "images_removed half", "later_images_removed gross"),
        *("last_2_images gross", "zero_features half"),
    ),
    "images resized": (
        *("percent_of_the_pixels_50 gross", "percent_of_the_pixels_67 half"),
        *("percent_of_the_pixels_300 gross", "percent_of_the_pixels_200 half"),
    ),
    "stale encoder cache": (
        *("image_before gross", "previous_rows_images gross", "image_before half"),
        *("first_image_everywhere gross", "next_rows_images half"),
    ),
    "template rendered again": (
        *("newline_after_rounds_removed gross", "newline_after_rounds_removed half"),
        *("first_message_removed gross", "first_message_removed half"),
    ),
    "processed log-probs": (
        *("temperature=0.7 gross", "temperature=1.3 gross", "temperature=0.8 half"),
        *("top_p=0.8 gross", "repetition_penalty=1.2 gross"),
    ),
    "adapter": ("adapter_off gross", "adapter_other gross", "adapter_unscaled half"),
    "older weights": (*("weights_older_before_2_kept_16 gross", "weights_older half"),),
}


def save_adapter(model: Any, folder: Path, seed: int) -> str:
    """Save an adapter of the language model, as strong as a short training."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, layer in model.named_modules():
        if name.endswith(("q_proj", "down_proj")) and "vis" not in name:
            out, size = layer.weight.shape
            for side, shape in (("A", (4, size)), ("B", (out, 4))):
                draw = torch.randn(shape, generator=generator) * 0.2
                tensors[f"base_model.model.{name}.lora_{side}.weight"] = draw
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    layers = sorted({name.rpartition("lora_")[0][:-1] for name in tensors})
    config = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 2,
        "bias": "none",
        "target_modules": [name.removeprefix("base_model.model.") for name in layers],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


def make_scorer(batch: Batch, engines: Mapping[str, Any], kind: str) -> Any:
    """Return a scorer, and the hypotheses about what was passed beside the model."""
    scorer = Scorer(batch, engines["engine"], engines["low"])
    if kind == "adapter":
        return scorer, adapter_hypotheses(scorer, engines["adapters"])
    if "older" in kind:
        older = weight_hypotheses(scorer, {"older": OLDER})
        return scorer, older
    return scorer, []


def served(batch: Batch, values: torch.Tensor, number: int) -> Batch:
    """Return a batch of the sampler's log-probs alone, with some noise."""
    rng = np.random.default_rng(number)
    noise = torch.from_numpy(rng.standard_normal(len(values))).float()
    noise *= float(rng.choice([0.0, 0.002, 0.005])) * (values < -0.05)
    values = (values + noise).clamp(max=0)
    return replace(batch, rollout_log_probs=values, old_log_probs=None)


def find(name: str, others: list[Hypothesis]) -> Hypothesis:
    """Return a hypothesis by its name, or that of its family and its number."""
    family, _, number = name.partition("=")
    if number:
        families = {one.name: one for one in FITTED}
        return families[family].at(float(number))
    kept = kept_rounds([(one, "before round 2") for one in others])
    every = (*all_registered(), *others, *kept)
    return next(one for one in every if one.name == name)


def prove(scorer: Scorer, others: list[Hypothesis]) -> Proof:
    """Prove with nothing named."""
    return prove_with(
        scorer, all_registered(), others, begin=time.perf_counter(), budget_s=120
    )


def planted(number: int, engines: Mapping[str, Any]) -> tuple[str, str, Proof | None]:
    """Return a fault, its cause, and the proof; None where it changes nothing."""
    kind, fault = [(kind, one) for kind, many in PLANTED.items() for one in many][
        number
    ]
    name, part = fault.split()
    batch = sample_batch(number, has_fault=False)
    scorer, others = make_scorer(batch, engines, kind)
    one = find(name, others)
    sound = column(scorer, (), low_precision=True)
    broken = column(scorer, (one,), low_precision=not one.weights)
    if sound is None or broken is None:
        return f"{kind}: {fault}", one.cause, None
    plain = column(scorer, (), low_precision=False)
    assert plain is not None
    inside = batch.response_mask != 0
    change, noise = (
        float((each - sound)[inside].abs().nanmean())
        for each in (only(batch, "gross", broken, sound), plain)
    )
    title = f"{kind}: {fault} x{change / noise:.0f}"
    batch = served(batch, only(batch, part, broken, sound), number)
    scorer, others = make_scorer(batch, engines, kind)
    return title, one.cause, prove(scorer, others)


def other(row: str, number: int, engines: Mapping[str, Any]) -> Proof:
    """Prove a sound batch, with the model or with that of another step."""
    batch = sample_batch(number, has_fault=False)
    batch = served(batch, batch.log_probs("rollout"), number)
    if row == "step":
        for one in (engines["engine"], engines["low"]):
            data = {name: each.data for name, each in one.model.named_parameters()}
            mix(data, number, engines["older"])
            one.forget()
    return prove(make_scorer(batch, engines, "")[0], [])


def main() -> int:
    """Print a line for each batch, and the numbers of right answers."""
    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    words = [word for word in sys.argv[1:] if not word.isdecimal()]
    engine = LocalEngine.open(MODEL, dtype="float32")
    engines: dict[str, Any] = {
        "engine": engine,
        "low": engine.beside(dtype="bfloat16"),
        "older": dict(engine.beside(OLDER, dtype="float32").model.named_parameters()),
    }
    kept = {name: value.clone() for name, value in engine.model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        engines["adapters"] = {
            name: save_adapter(engine.model, Path(folder) / name, seed)
            for seed, name in enumerate(("mine", "other"))
        }
        for row in words or NUMBERS:
            right = 0
            numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
            for number in numbers or range(NUMBERS[row]):
                for one in (engine, engines["low"]):
                    for name, value in one.model.named_parameters():
                        value.data.copy_(kept[name].to(value.dtype))
                    one.forget()
                if row == "planted":
                    title, cause, proof = planted(number, engines)
                    is_right = proof is not None and proof.causes == (cause,)
                else:
                    title, proof = row, other(row, number, engines)
                    wanted = {"sound": "nothing_to_prove", "step": "scorer_differs"}
                    is_right = proof.verdict == wanted[row]
                right += is_right
                line = (
                    "changes nothing" if proof is None else repr(proof).split("\n")[0]
                )
                says = "" if proof is None else [one.says for one in proof.conclusions]
                print(
                    f"{'-' if is_right else 'X'} {number:2} {title}: {line} {says}",
                    end="",
                )
                print(f" ({proof.seconds:.0f} s)" if proof else "", flush=True)
            print(f"{row}: {right} right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
