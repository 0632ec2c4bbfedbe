"""A dictionary with the names, shapes and padding of verl's batch, for notebook 02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence

import rounddiag as rd

if TYPE_CHECKING:
    from pathlib import Path


def verl_batch(path: str | Path) -> dict[str, Any]:
    """Pad a saved batch as verl has it between its two passes."""
    saved: Any = rd.load(path)  # a file that has all optional fields
    sizes = saved.prompt_offsets.diff()
    prompts = saved.prompt_ids.split(sizes.tolist())
    reversed_rows = pad_sequence([row.flip(0) for row in prompts], batch_first=True)
    left_padded = reversed_rows.flip(1)
    padding = left_padded.shape[1] - sizes[:, None]
    is_prompt = torch.arange(left_padded.shape[1]) >= padding
    width = len(saved.response_ids) // len(saved)
    is_response = torch.arange(width) < saved.lengths[:, None]
    return {
        "prompts": left_padded,
        "responses": saved.response_ids.reshape(-1, width),
        "attention_mask": torch.cat([is_prompt, is_response], dim=1),
        "response_mask": saved.response_mask.reshape(-1, width),
        "rollout_log_probs": saved.rollout_log_probs.reshape(-1, width),
        "old_log_probs": saved.old_log_probs.reshape(-1, width),
        "uid": list(saved.group_ids),
        "multi_modal_inputs": [
            {
                "pixel_values": torch.cat([shot.patches() for shot in row]),
                "image_grid_thw": torch.tensor([shot.grid_thw for shot in row]),
            }
            for row in saved.images
        ],
    }
