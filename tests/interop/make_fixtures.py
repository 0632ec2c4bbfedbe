"""Write small batches with the released `verl` package.

Runs in an environment that has verl (see `run`, which makes it); rounddiag is not
needed and not imported. Usage: `python make_fixtures.py FOLDER`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensordict
import torch
import verl
from verl import DataProto
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

PROMPT, RESPONSE = 8, 12
START, IMAGE, END = 151652, 151655, 151653
GRID = (1, 2, 4)  # eight patches of 14 x 14 pixels: two image tokens
PICTURE = [START, IMAGE, IMAGE, END]
PER_TOKEN = ("responses", "response_mask", "rollout_log_probs", "old_log_probs")
META = {"temperature": 1.0, "top_p": 0.95, "global_steps": 7, "timing": {"gen": 2.5}}


def row(
    prompt: list[int], rounds: list[int], *, pictures: int, uid: str
) -> dict[str, Any]:
    """One trajectory: rounds of generated tokens, a screenshot between two rounds."""
    response, depth = [], []
    for number, size in enumerate(rounds):
        seen = PICTURE if number else []
        response += seen + [100 * (number + 1) + i for i in range(size)]
        depth += [0] * len(seen) + [number + 1] * size
    ids, rounds_before = torch.tensor(response), torch.tensor(depth)
    written = (rounds_before > 0).long()
    steps = torch.arange(len(response), dtype=torch.float32)
    scores = torch.zeros(len(response))
    scores[-1] = float(len(rounds) - 1)
    full = torch.cat([torch.tensor(prompt), ids])
    return {
        "prompts": torch.tensor(prompt),
        "responses": ids,
        "response_mask": written,
        "input_ids": full,
        "loss_mask": written.clone(),
        "position_ids": torch.arange(len(full)).repeat(4, 1),
        "rollout_log_probs": -(steps + 1) / 8 * written,
        "old_log_probs": -(steps + 1) / 8 - 0.25 * rounds_before,
        "entropy": steps / 4,
        "rm_scores": scores,
        "uid": uid,
        "multi_modal_inputs": pixels(pictures),
        "num_turns": 2 * len(rounds),
    }


def pixels(pictures: int) -> dict[str, torch.Tensor]:
    """What the image processor gives: patches that name their picture and row."""
    if not pictures:
        return {}
    patches = torch.arange(8 * pictures)[:, None].expand(-1, 3 * 2 * 14 * 14)
    return {
        "pixel_values": (patches / 16).to(torch.bfloat16).contiguous(),
        "image_grid_thw": torch.tensor([GRID] * pictures),
    }


def rows() -> list[dict[str, Any]]:
    """Three trajectories of two prompts: 2, 1 and 1 rounds."""
    return [
        row([1, *PICTURE, 2], [3, 2], pictures=2, uid="g0"),
        row([1, *PICTURE, 2], [4], pictures=1, uid="g0"),
        row([3, 4, 5], [2], pictures=0, uid="g1"),
    ]


def padded(name: str, width: int, *, left: bool = False) -> torch.Tensor:
    """One field of all rows, padded with zeros as verl pads it."""
    values = [item[name] for item in rows()]
    out = torch.zeros(len(values), *values[0].shape[:-1], width, dtype=values[0].dtype)
    for target, value in zip(out, values, strict=True):
        size = value.shape[-1]
        target[..., width - size if left else 0 : width if left else size] = value
    return out


def data_proto() -> DataProto:
    """The padded batch of the V0 trainer, after `union(old_log_prob)`."""
    items = rows()
    tensors = {name: padded(name, RESPONSE) for name in (*PER_TOKEN, "rm_scores")}
    prompts = padded("prompts", PROMPT, left=True)
    ids = torch.cat([prompts, tensors["responses"]], dim=1)
    attention = (ids != 0).long()
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    return DataProto.from_dict(
        tensors={
            **tensors,
            "ref_log_prob": tensors["old_log_probs"] - 1,
            "advantages": tensors["response_mask"] / 2,
            "prompts": prompts,
            "input_ids": ids,
            "attention_mask": attention,
            "position_ids": positions[:, None].repeat(1, 4, 1),
        },
        non_tensors={
            "uid": objects([item["uid"] for item in items]),
            "multi_modal_inputs": objects([i["multi_modal_inputs"] for i in items]),
            "raw_prompt": objects([[{"role": "user", "content": "go"}]] * len(items)),
            "__num_turns__": np.array([i["num_turns"] for i in items], dtype=np.int32),
            "data_source": objects(["shop", "shop", "form"]),
        },
        meta_info=META,
    )


def objects(values: list[Any]) -> np.ndarray[Any, Any]:
    """A numpy array of objects, one a row, whatever they are."""
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def padding_row() -> dict[str, Any]:
    """What verl 0.9.1 adds to fill a batch: 127 prompt tokens, one response token."""
    item = row([9] * 127, [1], pictures=0, uid="pad0a1b")
    item["response_mask"] = item["loss_mask"] = torch.zeros(1, dtype=torch.int64)
    return item


def payload(items: list[dict[str, Any]]) -> dict[str, Any]:
    """What the V1 trainer's queue gives, as `RolloutTqSkip` saves it."""
    padding = [item["uid"].startswith("pad") for item in items]
    return {
        "tensordict": list_of_dict_to_tensordict(items),
        "tags": [{"is_padding": flag, "global_steps": 7} for flag in padding],
        "keys": [f"{item['uid']}_{i}_0" for i, item in enumerate(items)],
        "global_steps": 7,
    }


def nested_proto() -> DataProto:
    """A DataProto of nested tensors, as one made of a part of the V1 queue holds."""
    names = (*PER_TOKEN, "prompts", "position_ids")
    items = [{name: item[name] for name in names} for item in rows()]
    return DataProto(batch=list_of_dict_to_tensordict(items), meta_info=META)


def write(folder: Path) -> None:
    """Write what this version of tensordict can write."""
    stem = f"verl-{verl.__version__}_tensordict-{tensordict.__version__}"
    save(data_proto(), folder, stem, "")
    if tuple(map(int, tensordict.__version__.split(".")[:2])) < (0, 10):
        return  # verl's V1 trainer needs tensordict 0.10
    save(nested_proto(), folder, stem, "-nested")
    torch.save(
        payload([*rows()[:1], padding_row(), *rows()[1:]]),
        folder / f"{stem}_v1-jagged.pt",
    )
    dense = payload([rows()[0], rows()[0]])
    one_for_all = tensordict.NonTensorData("shop", batch_size=[2])
    dense["tensordict"]["data_source"] = one_for_all
    torch.save(dense, folder / f"{stem}_v1-dense.pt")


def save(data: DataProto, folder: Path, stem: str, kind: str) -> None:
    """Save a DataProto in both serialisations."""
    for method in ("default", "numpy"):
        os.environ["VERL_DATAPROTO_SERIALIZATION_METHOD"] = method
        data.save_to_disk(folder / f"{stem}_{method}{kind}.pkl")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
