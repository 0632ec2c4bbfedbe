"""Llama 3.2 Vision: text attends to pictures; their tokens have no features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rounddiag.errors import BatchError
from rounddiag.proof.trajectory import Request

MODEL_TYPE = "mllama"


def cross_attention(
    request: Request,
    token: int,
    shown: Sequence[Mapping[str, Any]],
    max_tiles: int,
) -> dict[str, Tensor]:
    """Return pixels and masks, as `MllamaProcessor` builds them."""
    from transformers.models.mllama.processing_mllama import (
        convert_sparse_cross_attention_mask_to_dense,
        get_cross_attention_token_mask,
    )

    looks = {one.look for one in request.pictures}
    if looks == {"pad"}:
        return {}
    if looks & {"pad", "zeros"}:
        raise BatchError.build(
            expected="pictures of which all or none have pixels",
            found="other ones",
            advice="This architecture attends to pictures outside of the text.",
        )
    ids = request.ids.tolist()
    mask = convert_sparse_cross_attention_mask_to_dense(
        [get_cross_attention_token_mask(ids, token)],
        [[one["num_tiles"][0][0] for one in shown]],
        max_tiles,
        len(ids),
    )
    names = ("pixel_values", "aspect_ratio_ids", "aspect_ratio_mask")
    found = {name: torch.cat([one[name] for one in shown], 1) for name in names}
    return {**found, "cross_attention_mask": torch.from_numpy(mask)}
