"""Model families: a tiny one of each gives the scores of its own forward pass."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import rounddiag as rd
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.vision.screenshots import EncodedScreenshot

if TYPE_CHECKING:
    from pathlib import Path

PAD, OPEN, CLOSE, EACH = 5, 3, 4, 4  # image tokens of a picture
BODY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
ROPE = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [2, 3, 3],
    }
}
EYES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "initializer_range": 0.3,
}
MARKS = {
    "image_token_id": PAD,
    "video_token_id": 6,
    "vision_start_token_id": OPEN,
    "vision_end_token_id": CLOSE,
}


def of_qwen(side: int, patch: int) -> dict[str, Any]:
    size = {"shortest_edge": side * side, "longest_edge": side * side}
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": patch,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": size,
    }


def qwen2_vl() -> tuple[Any, dict[str, Any]]:
    config = transformers.Qwen2VLConfig(
        text_config={**BODY, **ROPE},
        vision_config={
            "depth": 1,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 2,
            "mlp_ratio": 2,
            "initializer_range": 0.3,
        },
        **MARKS,
    )
    return transformers.Qwen2VLForConditionalGeneration(config), of_qwen(56, 14)


def qwen3_vl() -> tuple[Any, dict[str, Any]]:
    config = transformers.Qwen3VLConfig(
        text_config={**BODY, **ROPE, "head_dim": 16},
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 64,
            "patch_size": 16,
            "out_hidden_size": 32,
            "deepstack_visual_indexes": [0],
            "num_position_embeddings": 64,
            "initializer_range": 0.3,
        },
        **MARKS,
    )
    return transformers.Qwen3VLForConditionalGeneration(config), of_qwen(64, 16)


def gemma3() -> tuple[Any, dict[str, Any]]:
    config = transformers.Gemma3Config(
        text_config={**BODY, "head_dim": 16},
        vision_config={
            **EYES,
            "num_hidden_layers": 1,
            "image_size": 56,
            "patch_size": 14,
        },
        mm_tokens_per_image=EACH,
        boi_token_index=OPEN,
        eoi_token_index=CLOSE,
        image_token_index=PAD,
    )
    processor = {
        "image_processor_type": "Gemma3ImageProcessor",
        "size": {"height": 56, "width": 56},
    }
    return transformers.Gemma3ForConditionalGeneration(config), processor


def internvl() -> tuple[Any, dict[str, Any]]:
    config = transformers.InternVLConfig(
        text_config={**BODY, "model_type": "qwen2"},
        vision_config={
            **EYES,
            "num_hidden_layers": 1,
            "image_size": [56, 56],
            "patch_size": [14, 14],
        },
        image_token_id=PAD,
        image_seq_length=EACH,
        downsample_ratio=0.5,
    )
    processor = {
        "image_processor_type": "GotOcr2ImageProcessor",
        "size": {"height": 56, "width": 56},
        "crop_to_patches": False,
    }
    return transformers.InternVLForConditionalGeneration(config), processor


def picture(seed: int) -> EncodedScreenshot:
    pixels = np.random.default_rng(seed).integers(0, 255, (56, 56, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue())


def own_log_probs(engine: LocalEngine, ids: list[int], shots: Any) -> torch.Tensor:
    """Score in one call of the model with pixels, as its documentation shows it."""
    model = engine.model
    kind = model.config.model_type
    pixels = engine.processor(
        images=[one.image() for one in shots], return_tensors="pt"
    )
    types = torch.tensor([ids]).eq(PAD).int()
    more = {} if kind == "internvl" else {"mm_token_type_ids": types}
    if kind == "gemma3":
        more = {"token_type_ids": types}
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            **{
                k: v
                for k, v in pixels.items()
                if k in {"pixel_values", "image_grid_thw"}
            },
            **more,
        ).logits[0, :-1]
    found = logits.float().log_softmax(-1).gather(1, torch.tensor(ids)[1:, None])[:, 0]
    return torch.cat([torch.zeros(1), found])


@pytest.mark.parametrize("make", [qwen2_vl, qwen3_vl, gemma3, internvl])
def test_scores_are_those_of_the_model(tmp_path: Path, make: Any) -> None:
    torch.manual_seed(0)
    model, processor = make()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    engine = LocalEngine.open(str(tmp_path), dtype="float32")
    shots = [picture(0), picture(1)]
    rng = np.random.default_rng(0)
    text = rng.integers(10, 60, (3, 9)).tolist()
    image = [OPEN, *[PAD] * EACH, CLOSE]
    ids = [1, *image, *text[0], *image, *text[1], *text[2]]
    start = 1 + len(image) + 9 + len(image)
    truth = own_log_probs(engine, ids, shots)[start:]
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor(ids[start:])],
        response_mask=[torch.ones(18, dtype=torch.long)],
        old_log_probs=[truth],
        rollout_log_probs=[truth],
        prompt_ids=[torch.tensor(ids[:start])],
        images=[shots],
    )
    found = rd.rescore(batch, engine).scores["rescored"]
    assert float((found - truth).abs().max()) < 1e-3
    blind = rd.rescore(batch, engine, "no_images").scores["no_images"]
    assert float((blind - truth).abs().max()) > 0.01
