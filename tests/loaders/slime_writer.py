"""Writes files as slime, vime and miles do, without them.

The layout is that of `_build_dump_payload` and `save_debug_rollout_data` in slime: no
release of slime on PyPI writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

Columns = dict[str, Any]


def rollouts() -> list[dict[str, Any]]:
    """Return three rollouts of two prompts, as `Sample.to_dict` gives them.

    The first has two rounds of one token each around an observation, and a screenshot
    in its prompt; the second was not trained on.
    """
    return [
        rollout(0, 10, [1, 9, 9, 3, 4, 5, 6], [1, 0, 1], [-0.5, 0.0, -1.0])
        | {
            "multimodal_inputs": {"images": [screenshot()], "videos": None},
            "weight_versions": ["9", "10", "9"],
            "metadata": {"task": "mail", "steps": [1, 2]},
            "label": "sent",
        },
        rollout(0, 11, [1, 9, 9, 3, 4], [1], [-2.0]) | {"status": "aborted"},
        rollout(1, 12, [1, 2, 7, 8], [1, 1], [-0.5, -0.25])
        | {"status": "truncated", "weight_versions": ["9"]},
    ]


def rollout(
    group: int, index: int, tokens: list[int], mask: list[int], log_probs: list[float]
) -> dict[str, Any]:
    return {
        "group_index": group,
        "index": index,
        "rollout_id": None,
        "prompt": f"prompt {group}",
        "tokens": tokens,
        "multimodal_inputs": None,
        "multimodal_train_inputs": None,
        "response": f"response {index}",
        "response_length": len(mask),
        "label": None,
        "reward": float(index == 10),
        "loss_mask": mask,
        "weight_versions": [],
        "rollout_log_probs": log_probs,
        "rollout_routed_experts": None,
        "remove_sample": False,
        "teacher_log_probs": None,
        "status": "completed",
        "metadata": {},
        "train_metadata": None,
        "session_id": f"session {index}",
        "non_generation_time": 0.25,
        "spec_info": {"spec_accept_token_num": 0},
        "prefix_cache_info": {"cached_tokens": index},
    }


def screenshot() -> Image.Image:
    """Return a picture of one white and one red pixel."""
    picture = Image.new("RGB", (2, 1), "white")
    picture.putpixel((1, 0), (255, 0, 0))
    return picture


def columns(
    every: Sequence[Mapping[str, Any]],
    positions: Sequence[int],
    log_probs: Sequence[list[float] | Tensor],
) -> Columns:
    """Return what one rank trained on: the rollouts at these positions."""
    mine = [every[position] for position in positions]
    return {
        "partition": list(positions),
        "tokens": [torch.tensor(row["tokens"]) for row in mine],
        "response_lengths": [row["response_length"] for row in mine],
        "total_lengths": [len(row["tokens"]) for row in mine],
        "rewards": [row["reward"] - 0.5 for row in mine],
        "truncated": [int(row["status"] == "truncated") for row in mine],
        "loss_masks": [torch.tensor(row["loss_mask"]).int() for row in mine],
        "sample_indices": [row["index"] for row in mine],
        "rollout_ids": list(positions),
        "rollout_mask_sums": torch.tensor([float(sum(r["loss_mask"])) for r in mine]),
        "rollout_log_probs": [torch.tensor(row["rollout_log_probs"]) for row in mine],
        "log_probs": [torch.as_tensor(row) for row in log_probs],
        "ref_log_probs": [torch.as_tensor(row) - 1 for row in log_probs],
        "entropy": [torch.as_tensor(row).abs() for row in log_probs],
        "advantages": [torch.ones(len(row)) for row in log_probs],
        "returns": [torch.ones(len(row)) for row in log_probs],
        "raw_reward": [row["reward"] for row in every],
        "micro_batch_indices": [[index] for index in range(len(mine))],
        "num_microbatches": [len(mine)],
        "global_batch_sizes": [2],
    }


def shards() -> list[Columns]:
    """Return what two data-parallel ranks trained on."""
    every = rollouts()
    return [
        columns(every, [2], [[-0.5, -0.5]]),
        columns(every, [0], [[-0.25, -9.0, -1.5]]),
    ]


def write_rollouts(folder: Path, samples: Sequence[Mapping[str, Any]]) -> Path:
    """Write the rollout file of step 3 and return its path."""
    return write_payload(
        folder / "rollout_data" / "3.pt", {"rollout_id": 3, "samples": [*samples]}
    )


def write_train_file(
    folder: Path, samples: Sequence[object], parts: Sequence[Columns] = ()
) -> Path:
    """Write these samples as version 2 and return the file's path."""
    layout = [
        {
            "rank": 4 * rank,
            "data_parallel_rank": rank,
            **{key: value for key, value in part.items() if key in _OF_SHARD},
        }
        for rank, part in enumerate(parts)
    ]
    rewards = {"raw_reward": parts[0]["raw_reward"]} if parts else {}
    payload = {
        "format_version": 2,
        "rollout_id": 3,
        "rank": 0,
        "samples": [*samples],
        "dp_shards": layout,
        **rewards,
    }
    return write_payload(folder / "train_data" / "3.pt", payload)


_OF_SHARD = {
    "sample_indices",
    "partition",
    "micro_batch_indices",
    "num_microbatches",
    "global_batch_sizes",
}


def trained_samples() -> list[dict[str, Any]]:
    """Return the samples of the train file, in the order of the rollouts."""
    first, second = [samples_of(part, rank)[0] for rank, part in enumerate(shards())]
    return [second, first]


def samples_of(part: Columns, rank: int) -> list[dict[str, Any]]:
    """Return the columns of a rank as the samples of version 2."""
    renamed = {"sample_indices": "sample_index", "partition": "rollout_position"}
    per_sample = {
        renamed.get(key, key): value
        for key, value in part.items()
        if key in renamed or key not in {*_OF_SHARD, "raw_reward"}
    }
    return [
        {
            "data_parallel_rank": rank,
            **{key: value[index] for key, value in per_sample.items()},
        }
        for index in range(len(part["tokens"]))
    ]


def write_rank(folder: Path, part: Columns, rank: int = 0, **others: object) -> Path:
    """Write miles' file of one rank and return its path."""
    slices = {"cp_rank": 0, "cp_size": 1, "qkv_format": "thd", **others}
    payload = {"rollout_id": 3, "rank": rank, "rollout_data": part, **slices}
    return write_payload(folder / "train_data" / f"3_{rank}.pt", payload)


def pixels(grid: tuple[int, int, int]) -> dict[str, Tensor]:
    """Return what a processor made of one white screenshot of 14-pixel patches."""
    t, height, width = grid
    return {
        "pixel_values": torch.ones(t * height * width, 1176),
        "image_grid_thw": torch.tensor([grid]),
    }


def write_payload(path: Path, payload: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(payload, path)
    return path
