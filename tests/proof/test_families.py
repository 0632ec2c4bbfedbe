"""Model families: a tiny one of each gives the scores of its own forward pass."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import rounddiag as rd
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.trajectory import read_trajectory
from rounddiag.vision.screenshots import EncodedScreenshot

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


GLM_EYES: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 64,
    "out_hidden_size": 32,
    "image_size": 56,
    "initializer_range": 0.3,
}
HALF_ROPE = {  # of each head only one half turns
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
    }
}
GLM_MARKS = {
    "image_token_id": PAD,
    "video_token_id": 6,
    "image_start_token_id": OPEN,
    "image_end_token_id": CLOSE,
    "video_start_token_id": 7,
    "video_end_token_id": 8,
}


def of_glm(kind: str) -> dict[str, Any]:
    # The processor compares the limits with the pixels of two frames.
    size = {"shortest_edge": 2 * 56 * 56, "longest_edge": 2 * 56 * 56}
    return {**of_qwen(56, 14), "image_processor_type": kind, "size": size}


def glm4v() -> tuple[Any, dict[str, Any]]:
    config = transformers.Glm4vConfig(
        text_config={**BODY, **HALF_ROPE}, vision_config=GLM_EYES, **GLM_MARKS
    )
    return transformers.Glm4vForConditionalGeneration(config), of_glm(
        "Glm4vImageProcessor"
    )


def glm4v_moe() -> tuple[Any, dict[str, Any]]:
    config = transformers.Glm4vMoeConfig(
        text_config={
            **BODY,
            **HALF_ROPE,
            "head_dim": 16,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
        vision_config=GLM_EYES,
        **GLM_MARKS,
    )
    return transformers.Glm4vMoeForConditionalGeneration(config), of_glm(
        "Glm4vImageProcessor"
    )


def glm46v() -> tuple[Any, dict[str, Any]]:
    config = transformers.Glm46VConfig(
        text_config={"model_type": "glm4v_text", **BODY, **HALF_ROPE},
        vision_config={"model_type": "glm4v_vision", **GLM_EYES},
        **GLM_MARKS,
    )
    return transformers.Glm46VForConditionalGeneration(config), of_glm(
        "Glm46VImageProcessor"
    )


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


def picture(seed: int, side: int = 56) -> EncodedScreenshot:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 255, (side, side, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue())


def own_log_probs(
    engine: LocalEngine, ids: list[int], shots: Any, **options: Any
) -> torch.Tensor:
    """Score in one call of the model with pixels, as its documentation shows it."""
    model = engine.model
    kind = model.config.model_type
    pixels = engine.processor(
        images=[shot.image() for shot in shots], return_tensors="pt", **options
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
    log_probs = (
        logits.float().log_softmax(-1).gather(1, torch.tensor(ids)[1:, None])[:, 0]
    )
    return torch.cat([torch.zeros(1), log_probs])


@pytest.mark.parametrize(
    "make", [qwen2_vl, qwen3_vl, glm4v, glm4v_moe, glm46v, gemma3, internvl]
)
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
    rescored = rd.rescore(batch, engine).scores["rescored"]
    assert float((rescored - truth).abs().max()) < 1e-3
    blind = rd.rescore(batch, engine, "no_images").scores["no_images"]
    assert float((blind - truth).abs().max()) > 0.01
    around = set() if make is internvl else {OPEN, CLOSE}
    assert engine.prepare(read_trajectory(batch, 0)).markers == around


def test_pictures_of_more_pixels_have_more_tokens(tmp_path: Path) -> None:
    """One of 56 x 56 has 4 tokens; at four times the pixels it has 16."""
    torch.manual_seed(0)
    model, processor = qwen2_vl()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    engine = LocalEngine.open(str(tmp_path), dtype="float32")
    response = np.random.default_rng(0).integers(10, 60, 18).tolist()
    size = {"shortest_edge": 112 * 112, "longest_edge": 112 * 112}
    ids = [1, OPEN, *[PAD] * 16, CLOSE, *response]
    truth = own_log_probs(engine, ids, [picture(0)], size=size)[-18:]
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor(response)],
        response_mask=[torch.ones(18, dtype=torch.long)],
        old_log_probs=[truth],
        rollout_log_probs=[truth],
        prompt_ids=[torch.tensor([1, OPEN, *[PAD] * EACH, CLOSE])],
        images=[[picture(0)]],
    )
    rescored = rd.rescore(batch, engine, "percent_of_the_pixels_400")
    left = rescored.scores["percent_of_the_pixels_400"] - truth
    assert float(left.abs().max()) < 1e-3
    plain = rd.rescore(batch, engine).scores["rescored"]
    assert float((plain - truth).abs().max()) > 0.01


def llama() -> tuple[Any, dict[str, Any]]:
    config = transformers.MllamaConfig(
        text_config={
            **BODY,
            "num_hidden_layers": 3,
            "cross_attention_layers": [1],
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 32,
            "attention_heads": 2,
            "num_hidden_layers": 1,
            "num_global_layers": 1,
            "intermediate_layers_indices": [0],
            "vision_output_dim": 32,
            "image_size": 28,
            "patch_size": 14,
            "max_num_tiles": 4,
            "supported_aspect_ratios": [
                *([1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1])
            ],
            "initializer_range": 0.3,
        },
        image_token_index=PAD,
    )
    processor = {
        "image_processor_type": "MllamaImageProcessor",
        "size": {"height": 28, "width": 28},
        "max_image_tiles": 4,
    }
    return transformers.MllamaForConditionalGeneration(config), processor


def test_llama_vision_reads_what_its_processor_builds(tmp_path: Path) -> None:
    """A picture of one tile, then one of four: each is seen until the next."""
    torch.manual_seed(0)
    model, processor = llama()
    for name, one in model.named_parameters():
        if "cross_attn" in name and "gate" in name:
            one.data.fill_(1.0)  # they begin closed
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    engine = LocalEngine.open(str(tmp_path), dtype="float32")
    shots = [picture(0, 28), picture(1, 56)]
    rng = np.random.default_rng(0)
    text = rng.integers(10, 60, (3, 9)).tolist()
    ids = [1, PAD, *text[0], PAD, *text[1], *text[2]]
    pixels = engine.processor(
        images=[[one.image() for one in shots]], return_tensors="pt"
    )
    assert pixels.pop("num_tiles") == [[1, 4]]
    mask = torch.zeros(1, len(ids), 2, 4, dtype=torch.long)
    mask[0, 1:11, 0, :1] = 1
    mask[0, 11:, 1, :4] = 1
    with torch.inference_mode():
        logits = engine.model(
            input_ids=torch.tensor([ids]), cross_attention_mask=mask, **pixels
        ).logits[0, :-1]
    truth = logits.log_softmax(-1).gather(1, torch.tensor(ids)[1:, None])[11:, 0]
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor(ids[12:])],
        response_mask=[torch.ones(18, dtype=torch.long)],
        old_log_probs=[truth],
        rollout_log_probs=[truth],
        prompt_ids=[torch.tensor(ids[:12])],
        images=[shots],
    )
    rescored = rd.rescore(batch, engine).scores["rescored"]
    assert float((rescored - truth).abs().max()) < 1e-3
    for name in ("no_images", "images_reversed", "last_1_images"):
        changed = rd.rescore(batch, engine, name).scores[name]
        assert float((changed - truth).abs().max()) > 0.01
