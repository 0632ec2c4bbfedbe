"""Which kind of run the facts of a batch state: by words, not by parts of words."""

from __future__ import annotations

import pytest

from rounddiag.findings.reference import guess_kind
from tests.findings.small import arrays, made


@pytest.mark.parametrize(
    "meta",
    [
        {"environment": "exploration"},
        {"data": ["web", "exploration_2"]},
        {"dataset": "expert_demos"},
        {"experts": None, "task": "expert level"},
        {"buffer": "experience_replay"},
        {"replay_buffer": {"size": 4096}},
        {"lora": False},
        {"config": {"lora": False, "lora_rank": 0}},
        {"moe": False, "fp8": False},
        {"environment": "explorations of a warehouse"},
        {"lora_rank": 0, "lora_alpha": 16},
        {"lora_alpha": 16},
        {"num_experts": 1},
        {"num_experts": 0, "num_local_experts": 1},
        {"model": "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"},
        {"model": "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"},
        {"model": "deepseek-ai/deepseek-math-7b-rl"},
        {"model_path": "/ckpt/run7/v100v/qwen3-8b"},
        {"architectures": ["Qwen3ForCausalLM"]},
    ],
)
def test_words_that_only_resemble_a_kind_state_none(meta: dict[str, object]) -> None:
    assert guess_kind(made(arrays(2), meta=meta)) == ("dense", False)


@pytest.mark.parametrize(
    "name", ["Qwen2.5-VL", "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen3-VL-8B", "Qwen2-VL-2B"]
)
def test_a_vision_model_needs_no_stored_screenshots(name: str) -> None:
    assert guess_kind(made(arrays(2), meta={"model": name}))[0] == "vlm"


@pytest.mark.parametrize(
    ("meta", "kind"),
    [
        ({"lora": True}, "lora"),
        ({"lora_rank": 32}, "lora"),
        ({"adapter": "LoRA, rank 16"}, "lora"),
        ({"model": "Qwen3-30B-A3B"}, "moe"),
        ({"model": "deepseek-ai/DeepSeek-V3"}, "moe"),
        ({"model": "deepseek-ai/DeepSeek-R1"}, "moe"),
        ({"model": "deepseek-ai/DeepSeek-Coder-V2-Lite"}, "moe"),
        ({"model": "openai/gpt-oss-120b"}, "moe"),
        ({"num_experts": 128}, "moe"),
        ({"lora_rank": "16", "lora_alpha": 32}, "lora"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "moe"),
        ({"architectures": ["MixtralForCausalLM"]}, "moe"),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, "moe"),
        ({"architectures": ["Qwen3VLMoeForConditionalGeneration"]}, "moe"),
        ({"architectures": ["Qwen2_5_VLForConditionalGeneration"]}, "vlm"),
        ({"architectures": "InternVLChatModel"}, "vlm"),
        ({"architectures": ["Qwen3NextForCausalLM"]}, "hybrid"),
        ({"quantization": "fp8"}, "fp8"),
        ({"kv_cache_dtype": "float8_e4m3"}, "fp8"),
        ({"quantization": "NVFP4"}, "nvfp4"),
        ({"model": "Qwen3-Next-80B"}, "hybrid"),
    ],
)
def test_facts_that_state_a_kind_are_read(meta: dict[str, object], kind: str) -> None:
    assert guess_kind(made(arrays(2), meta=meta)) == (kind, True)
