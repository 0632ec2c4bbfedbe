"""Trajectories as verl's trainer holds them when it has both log-probs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Qwen2_5_VLForConditionalGeneration
from verl import DataProto

from .chat import PAD
from .model import GRID, positions
from .rollout import Trajectory

Rows = Sequence[Trajectory]


def to_data_proto(
    model: Qwen2_5_VLForConditionalGeneration,
    found: Rows,
    old: Sequence[Tensor],
    uids: Sequence[str],
    step: int,
) -> DataProto:
    """Return the batch that `save_to_disk` pickles."""
    prompts = pad([prompt(one) for one in found], "left", PAD)
    responses = pad([response(one) for one in found], "right", PAD)
    prompt_mask = pad([torch.ones_like(prompt(one)) for one in found], "left", 0)
    real = pad([torch.ones_like(response(one)) for one in found], "right", 0)
    attention_mask = torch.cat([prompt_mask, real], 1)
    scores = torch.zeros(responses.shape)
    scores[range(len(found)), real.sum(1) - 1] = torch.tensor(
        [one.reward for one in found]
    )
    masks = [torch.tensor(one.talk.mask[one.prompt_length :]) for one in found]
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "response_mask": pad(masks, "right", 0),
            "input_ids": torch.cat([prompts, responses], 1),
            "attention_mask": attention_mask,
            "position_ids": position_ids(model, found, attention_mask),
            "rollout_log_probs": pad(
                [torch.tensor(one.log_probs) for one in found], "right", 0
            ),
            "old_log_probs": pad(old, "right", 0),
            "rm_scores": scores,
        },
        non_tensors=non_tensors(found, uids),
        meta_info={"temperature": 1.0, "global_steps": step},
    )


def prompt(one: Trajectory) -> Tensor:
    """Return the token ids of the prompt."""
    return torch.tensor(one.talk.ids[: one.prompt_length])


def response(one: Trajectory) -> Tensor:
    """Return the token ids of the response, observations among them."""
    return torch.tensor(one.talk.ids[one.prompt_length :])


def pad(rows: Sequence[Tensor], side: str, value: float) -> Tensor:
    """Return rows of different lengths as one tensor, padded on one side."""
    return nn.utils.rnn.pad_sequence(
        list(rows), batch_first=True, padding_value=value, padding_side=side
    )


def position_ids(
    model: Qwen2_5_VLForConditionalGeneration, found: Rows, attention_mask: Tensor
) -> Tensor:
    """Return [samples, 4, length]: a row that counts text, and three of M-RoPE."""
    places = torch.ones(len(found), 4, attention_mask.shape[1], dtype=torch.int64)
    for row, mask, one in zip(places, attention_mask.bool(), found, strict=True):
        ids = torch.tensor(one.talk.ids)
        row[0, mask] = torch.arange(len(ids))
        row[1:, mask] = positions(model, ids)[:, 0]
    return places


def non_tensors(found: Rows, uids: Sequence[str]) -> dict[str, np.ndarray]:
    """Return what verl keeps beside the tensors, one object a sample."""
    chats = [[{"role": "user", "content": f"<image>{one.task}"}] for one in found]
    pictures = [
        {
            "pixel_values": torch.cat(one.talk.patches),
            "image_grid_thw": torch.tensor([GRID] * len(one.talk.patches)),
        }
        for one in found
    ]
    turns = [len(one.actions) + len(one.screenshots) for one in found]
    return {
        "uid": objects(uids),
        "raw_prompt": objects(chats),
        "multi_modal_inputs": objects(pictures),
        "__num_turns__": np.array(turns, dtype=np.int32),
        "data_source": objects([f"synthetic/{one.kind}" for one in found]),
    }


def objects(items: Sequence[object]) -> np.ndarray:
    """Return any objects as an array of them."""
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found
