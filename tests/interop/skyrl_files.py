"""Write small batches with the dump function of the released `skyrl` package.

Runs in an environment that has its parts (see `skyrl`, which makes it); rounddiag is
not needed and not imported. Usage: `python skyrl_files.py FOLDER_OF_SKYRL FOLDER`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

START, IMAGE, END = 151652, 151655, 151653
GRID = [[1, 2, 4]]  # eight patches of 14 x 14 pixels: two image tokens
PICTURE = [START, IMAGE, IMAGE, END]
PROMPTS = [[1, 2, 3], [1, 2, 3], [4, 5]]
ROUNDS = [[3, 2], [2], [2, 1]]
GROUPS = ["a", "a", "b"]
PADDING = SimpleNamespace(pad_token_id=0)


def written_by(folder: Path) -> tuple[Any, Any, str]:
    """Return SkyRL's modules and version, without what its packages import."""
    packages = ("skyrl", "skyrl.backends", "skyrl.backends.skyrl_train")
    for name in (*packages, "skyrl.train", "skyrl.train.dataset"):
        package = ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package
    transformers: Any = ModuleType("transformers")
    transformers.AutoTokenizer = object  # named in annotations only
    sys.modules["transformers"] = transformers
    sys.path.insert(0, str(folder))
    batches = importlib.import_module("skyrl.backends.skyrl_train.training_batch")
    tensors = importlib.import_module("skyrl.train.dataset.preprocess")
    return batches, tensors, folder.name.partition("-")[2]


def samples(prompts: list[list[int]]) -> dict[str, Any]:
    """Return what a generator gives: rounds with an observation of two tokens between.

    The engines' log-probabilities of the tokens in round k are 0.25 * (k + 1) apart.
    """
    rows = []
    for rounds in ROUNDS:
        depth: list[int] = []
        for number, size in enumerate(rounds, 1):
            depth += [0, 0] * (number > 1) + [number] * size
        rows.append(depth)
    masks = [[int(number > 0) for number in row] for row in rows]
    steps = [[-(step + 1) / 8 for step in range(len(row))] for row in rows]
    return {
        "prompts": prompts,
        "responses": [[100 * n + i for i, n in enumerate(row)] for row in rows],
        "loss_masks": masks,
        "rollout": [
            [value * mask for value, mask in zip(*pair, strict=True)]
            for pair in zip(steps, masks, strict=True)
        ],
        "old": [
            [value - 0.25 * number for value, number in zip(*pair, strict=True)]
            for pair in zip(steps, rows, strict=True)
        ],
    }


def fields(tensors: Any, prompts: list[list[int]]) -> dict[str, Any]:
    """Return the fields of a batch, padded and aligned by SkyRL's own function."""
    rows = samples(prompts)

    def aligned(log_probs: list[list[float]]) -> tuple[Any, ...]:
        found: tuple[Any, ...] = tensors.convert_prompts_responses_to_batch_tensors(
            PADDING,
            rows["prompts"],
            rows["responses"],
            rows["rollout"],
            rows["loss_masks"],
            log_probs,
        )
        return found

    sequences, attention, response, _, loss, rollout, *_ = aligned(rows["rollout"])
    old = aligned(rows["old"])[5]
    return {
        "sequences": sequences,
        "attention_mask": attention,
        "response_mask": response,
        "loss_mask": loss,
        "rollout_logprobs": rollout,
        "rollout_expert_indices": None,
        "base_action_log_probs": old - 0.5 * response,
        "action_log_probs": old,
        "values": None,
        "advantages": 0.5 * loss,
        "returns": 0.5 * loss,
    }


def noted(tensors: Any) -> dict[str, Any]:
    """Return the metadata of 0.3.0, after the trainer took the group ids out."""
    sizes = {"mini_batch_size": 1, "train_batch_size": 2}
    options = {"is_stepwise": True, "n_samples_per_prompt": 2}
    mini = tensors.compute_prompt_mini_batch_boundaries(GROUPS, **sizes, **options)
    return {
        "policy_mini_batch_boundaries": mini,
        "policy_prompt_boundaries": tensors.compute_prompt_boundaries(GROUPS),
        "response_length": 7,
        "avg_response_length": 14 / 3,
        "metrics": {"avg_final_rewards": 0.5},
    }


def with_pictures(batches: Any, tensors: Any) -> dict[str, Any]:
    """Return fields whose first sample was shown a picture."""
    prompts = [PICTURE + PROMPTS[0], *PROMPTS[1:]]
    pixels = [torch.arange(8 * 1176).reshape(8, 1176) % 256 / 128 - 1]
    grids = [torch.tensor(GRID)]
    none = [torch.zeros(0, 1176)] * 2, [torch.zeros(0, 3, dtype=torch.int64)] * 2
    return {
        **fields(tensors, prompts),
        "pixel_values": batches.TensorList(pixels + none[0]),
        "image_grid_thw": batches.TensorList(grids + none[1]),
    }


def newest(batches: Any, tensors: Any) -> dict[str, Any]:
    """Return the batches that 0.3.0 writes, by kind; one row pads those of text."""
    plain = fields(tensors, PROMPTS)
    names = ("rollout_logprobs", "action_log_probs", "base_action_log_probs")
    kinds = {
        "default": plain,
        "bf16": {**plain, **{name: plain[name].bfloat16() for name in names}},
        "images": with_pictures(batches, tensors),
    }
    found = {}
    for kind, tensors_by_name in kinds.items():
        batch = batches.TrainingInputBatch(tensors_by_name)
        batch.metadata = noted(tensors)
        found[kind] = batches.pad_training_input_batch(batch, int(kind != "images"))
    return found


def main() -> None:
    """Write one file a kind."""
    skyrl, folder = map(Path, sys.argv[1:])
    batches, tensors, version = written_by(skyrl)
    for kind, batch in newest(batches, tensors).items():
        name = f"skyrl-{version}_{kind}_global_step_7_training_input.pkl"
        batch.save(folder / name)
        print(name)


if __name__ == "__main__":
    main()
