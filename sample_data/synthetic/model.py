"""A small Qwen2.5-VL with random initial weights."""

from typing import cast

import torch
from torch import Tensor
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from .chat import (
    IM_END,
    IMAGE,
    PAD,
    VIDEO,
    VISION_END,
    VISION_START,
)

INITIAL = 0.06  # a small model learns faster from larger weights than 0.02
GRID = (1, 6, 8)  # patches of a screenshot: time, height, width
PATCHES = 48


def build(vocabulary: int) -> Qwen2_5_VLForConditionalGeneration:
    """Return the model with random weights."""
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 4,
            "initializer_range": INITIAL,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [4, 6, 6],
            },
            "bos_token_id": PAD,
            "eos_token_id": IM_END,
            "pad_token_id": PAD,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 192,
            "num_heads": 4,
            "initializer_range": INITIAL,
            "out_hidden_size": 128,
            "fullatt_block_indexes": [0, 1],
        },
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=True,
    )
    return Qwen2_5_VLForConditionalGeneration(config)


def positions(model: Qwen2_5_VLForConditionalGeneration, ids: Tensor) -> Tensor:
    """Return the M-RoPE positions of one sequence: [time height width, 1, length]."""
    is_image = ids == IMAGE
    screenshots = int((ids == VISION_START).sum())
    found, _ = model.model.get_rope_index(
        ids[None],
        mm_token_type_ids=is_image[None].int(),
        image_grid_thw=torch.tensor([GRID] * screenshots),
    )
    return cast("Tensor", found)
