"""The training engine: one float32 forward pass over a finished trajectory.

The pixels are float32 too; `Conversation.patches` are the bfloat16 ones of training.
"""

import torch
from torch import Tensor
from transformers import Qwen2_5_VLForConditionalGeneration

from .chat import IMAGE, PROCESSOR, VISION_END, VISION_START
from .model import GRID, PATCHES, positions
from .rollout import Trajectory

WINDOW = 2


def token_log_probs(
    model: Qwen2_5_VLForConditionalGeneration, ids: Tensor, patches: list[Tensor]
) -> Tensor:
    """Return the log-prob of every token given those before it; 0 for the first."""
    logits = model(
        input_ids=ids[None],
        position_ids=positions(model, ids),
        pixel_values=torch.cat(patches),
        image_grid_thw=torch.tensor([GRID]).repeat(len(patches), 1),
    ).logits[0]
    found = logits[:-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    return torch.cat([torch.zeros(1), found])


def patches_of(found: Trajectory) -> list[Tensor]:
    """Return the patches of each screenshot as the saved processor makes them."""
    values = PROCESSOR(images=found.pictures, return_tensors="pt")["pixel_values"]
    return list(values.split(PATCHES))


@torch.no_grad()
def old_log_probs(
    model: Qwen2_5_VLForConditionalGeneration, found: Trajectory
) -> Tensor:
    """Score the response of a trajectory in one pass over all of it."""
    ids = torch.tensor(found.talk.ids)
    return token_log_probs(model, ids, patches_of(found))[found.prompt_length :]


@torch.no_grad()
def window_log_probs(
    model: Qwen2_5_VLForConditionalGeneration, found: Trajectory
) -> Tensor:
    """Score each round with the last two screenshots only; older ones are removed.

    One pass a round: what is dropped depends on the round, as in a training engine
    that cuts the history of each step.
    """
    ids = torch.tensor(found.talk.ids)
    number = (ids == VISION_START).cumsum(0)
    is_vision = (ids == IMAGE) | (ids == VISION_START) | (ids == VISION_END)
    patches = patches_of(found)
    scores = torch.zeros(len(ids))
    for last in range(1, len(patches) + 1):
        kept = (number <= last) & ~(is_vision & (number <= last - WINDOW))
        part = token_log_probs(model, ids[kept], patches[max(0, last - WINDOW) : last])
        here = number == last
        scores[here] = part[number[kept] == last]
    return scores[found.prompt_length :]
