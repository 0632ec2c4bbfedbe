"""Agents as folders that transformers and vLLM open: weights, and adapters.

Needs no vLLM.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sample_data.synthetic.checkpoint import save_agent
from tests.faults import engine
from tests.faults.models import Agent

RANK = 8


def save_weights(agent: Agent, weights: dict[str, Tensor], folder: Path) -> Any:
    """Write a folder; return what the file has, as a model in float32."""
    if agent.kind == "vision":
        save_agent(agent.net, weights, 0, agent.tokenizer, folder)
    else:
        net = engine.precise(agent.net, torch.float32, weights)
        net.to(torch.bfloat16).save_pretrained(folder)
    return type(agent.net).from_pretrained(folder, dtype=torch.float32).eval()


def save_adapter(
    before: dict[str, Tensor], after: dict[str, Tensor], scale: float, folder: Path
) -> dict[str, Tensor]:
    """Write the main part of what attention learnt between two weights as an adapter.

    vLLM applies it times `scale`; returned are the weights with all of it.
    """
    merged = {name: value.bfloat16().float() for name, value in before.items()}
    parts = {}
    for name, first in before.items():
        if "self_attn" in name and name.endswith("_proj.weight"):
            u, s, v = torch.linalg.svd(after[name] - first, full_matrices=False)
            a, b = v[:RANK].bfloat16(), (u[:, :RANK] * s[:RANK]).bfloat16()
            merged[name] += b.float() @ a.float()
            place = "base_model.model." + name.removesuffix(".weight")
            parts[f"{place}.lora_A.weight"] = a.contiguous()
            parts[f"{place}.lora_B.weight"] = b.contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(parts, folder / "adapter_model.safetensors")
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": RANK * scale,
        "target_modules": names,
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return merged
