"""A trainer's batch at the point where both log-probabilities exist."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

PIXELS = 2 * 3 * 14 * 14  # values a patch: two frames, three colours
IMAGE = 99  # the image token
# The end of the first log message of each type of error.
SUPPRESSED = "(further warnings of this type are suppressed)"


class DataProto(SimpleNamespace):
    """The attributes of verl's class that are read."""


def rows(*values: object) -> np.ndarray[Any, Any]:
    return np.fromiter(values, dtype=object, count=len(values))


def inputs(colour: float) -> dict[str, torch.Tensor]:
    """One picture of 4 x 8 patches, as a processor of Qwen2-VL makes it."""
    patches = torch.full((32, PIXELS), colour, dtype=torch.bfloat16)
    grid = torch.tensor([[1, 4, 8]])
    return {"pixel_values": patches, "image_grid_thw": grid}


@pytest.fixture
def proto() -> DataProto:
    """Two rows, padded left and right."""
    fields = {
        "prompts": torch.tensor([[0, 3, 4], [3, 4, 5]]),
        "responses": torch.tensor(
            [[7, 7] + [IMAGE] * 8 + [8, 0], [7, 7] + [IMAGE] * 8 + [8, 9]]
        ),
        "response_mask": torch.tensor(
            [[1, 1] + [0] * 8 + [1, 0], [1, 1] + [0] * 8 + [1, 1]]
        ),
        "attention_mask": torch.tensor([[0] + [1] * 13 + [0], [1] * 15]),
        "rollout_log_probs": torch.full((2, 12), -0.5),
        "old_log_probs": torch.full((2, 12), -0.75),
        "entropys": torch.full((2, 12), 0.25),
        "rm_scores": torch.tensor([[0.0] * 11 + [1.0], [0.0] * 12]),
        "ref_log_prob": torch.full((2, 12), -1.0),
    }
    return DataProto(
        batch=fields,
        non_tensor_batch={
            "uid": rows("a", "b"),
            "raw_prompt": rows([{"role": "user"}], [{"role": "user"}]),
            "multi_modal_inputs": rows(inputs(0.0), inputs(1.0)),
            "__num_turns__": np.array([2, 4], dtype=np.int32),
        },
        meta_info={"temperature": 0.7, "global_steps": 40},
    )
