"""Families that write several runs of image tokens for a picture, in this process.

The oracle is a tiny model of transformers 5.24.0 of each, called as it is documented.
Tokens stand as `get_image_prompt_string` of SmolVLM and `PixtralProcessor` write them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import rounddiag as rd
from rounddiag.errors import BatchError
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.trajectory import read_trajectory
from tests.proof.test_families import BODY, CLOSE, EYES, OPEN, PAD, picture

BREAK, WHOLE = 8, 9


def pixtral() -> tuple[Any, dict[str, Any], list[int], int]:
    """A row of two tokens, a break, and another row with an end."""
    config = transformers.Mistral3Config(
        text_config={**BODY, "model_type": "mistral", "head_dim": 16},
        vision_config={
            **EYES,
            "model_type": "pixtral",
            "num_hidden_layers": 1,
            "head_dim": 16,
            "image_size": 56,
            "patch_size": 14,
        },
        image_token_index=PAD,
        image_token_id=PAD,
        spatial_merge_size=2,
        vision_feature_layer=-1,
    )
    processor = {
        "image_processor_type": "PixtralImageProcessor",
        "patch_size": {"height": 14, "width": 14},
        "size": {"longest_edge": 56},
    }
    image = [PAD, PAD, BREAK, PAD, PAD, CLOSE]
    return transformers.Mistral3ForConditionalGeneration(config), processor, image, 4


def smolvlm() -> tuple[Any, dict[str, Any], list[int], int]:
    """Four tiles in two rows, and the whole picture; four tokens each."""
    config = transformers.SmolVLMConfig(
        text_config={**BODY, "model_type": "llama"},
        vision_config={
            **EYES,
            "num_hidden_layers": 1,
            "image_size": 56,
            "patch_size": 14,
        },
        image_token_id=PAD,
        scale_factor=2,
    )
    processor = {
        "image_processor_type": "SmolVLMImageProcessor",
        "size": {"longest_edge": 112},
        "max_image_size": {"longest_edge": 56},
        "do_image_splitting": True,
    }
    tile = [*[PAD] * 4]
    rows = [
        token
        for row in (0, 1)
        for token in [OPEN, 20 + row, *tile, OPEN, 30 + row, *tile, BREAK]
    ]
    image = [*rows, BREAK, OPEN, WHOLE, *tile, OPEN]
    return transformers.SmolVLMForConditionalGeneration(config), processor, image, 20


@torch.inference_mode()
def own_log_probs(engine: LocalEngine, ids: list[int], shots: Any) -> torch.Tensor:
    # A list of pictures is one prompt to SmolVLM, and several to Pixtral.
    shown = [shot.image() for shot in shots]
    is_nested = engine.model.config.model_type == "smolvlm"
    pixels = engine.processor(
        images=[shown] if is_nested else shown, return_tensors="pt"
    )
    logits = engine.model(input_ids=torch.tensor([ids]), **pixels).logits[0, :-1]
    chosen = logits.float().log_softmax(-1).gather(1, torch.tensor(ids)[1:, None])
    return torch.cat([torch.zeros(1), chosen[:, 0]])


@pytest.mark.parametrize("make", [pixtral, smolvlm])
def test_pictures_of_several_runs_are_scored_as_the_model_does(
    tmp_path: Path, make: Any
) -> None:
    torch.manual_seed(0)
    model, processor, image, count = make()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    engine = LocalEngine.open(str(tmp_path), dtype="float32")
    shots = [picture(0), picture(1)]
    text = np.random.default_rng(0).integers(40, 60, (3, 9)).tolist()
    ids = [1, *image, *text[0], *image, *text[1], *text[2]]
    start = len(ids) - 18
    truth = own_log_probs(engine, ids, shots)[start:]
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor(ids[start:])],
        response_mask=[torch.ones(18, dtype=torch.long)],
        old_log_probs=[truth],
        rollout_log_probs=[truth],
        prompt_ids=[torch.tensor(ids[:start])],
        images=[shots],
    )
    whole = engine.prepare(read_trajectory(batch, 0))
    inside = [[*whole.ids[a:b]].count(PAD) for a, b in whole.spans]
    assert inside == [count, count]
    rescored = rd.rescore(batch, engine).scores["rescored"]
    assert float((rescored - truth).abs().max()) < 1e-3
    for name in ("no_images", "images_reversed"):
        changed = rd.rescore(batch, engine, name).scores[name]
        assert float((changed - truth).abs().max()) > 0.001


def test_one_picture_too_few_stays_an_error(tmp_path: Path) -> None:
    model, processor, image, _ = pixtral()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    engine = LocalEngine.open(str(tmp_path), dtype="float32")
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor([40, 41])],
        response_mask=[torch.ones(2, dtype=torch.long)],
        old_log_probs=[torch.zeros(2)],
        prompt_ids=[torch.tensor([1, *image, *image])],
        images=[[picture(0)]],
    )
    with pytest.raises(BatchError, match="8 image tokens"):
        engine.prepare(read_trajectory(batch, 0))
