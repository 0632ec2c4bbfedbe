"""Adapters of peft's format: against weights that are merged by hand."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.errors import BatchError, LoadError
from tests.proof import test_local
from tests.proof.test_local import log_probs, make_batch

folder = test_local.folder  # the same fixture
LAYERS = [
    f"model.layers.{layer}.{name}"
    for layer in range(2)
    for name in ("self_attn.q_proj", "mlp.down_proj")
]
RANK, ALPHA = 4, 8.0


def load(folder: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    )


@pytest.fixture(scope="module")
def adapter(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    net = load(folder)
    tensors = {}
    for name in LAYERS:
        out, size = net.get_submodule(name).weight.shape
        key = f"base_model.model.{name}"
        tensors[f"{key}.lora_A.weight"] = 0.3 * torch.randn(RANK, size)
        tensors[f"{key}.lora_B.weight"] = 0.3 * torch.randn(out, RANK)
    path = tmp_path_factory.mktemp("adapter")
    save_file(tensors, path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"}
    (path / "adapter_config.json").write_text(json.dumps(config))
    return path


def merged(folder: str, adapter: Path, scale: float) -> Any:
    from safetensors.torch import load_file

    net = load(folder)
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name in LAYERS:
        key = f"base_model.model.{name}"
        up, down = tensors[f"{key}.lora_B.weight"], tensors[f"{key}.lora_A.weight"]
        net.get_submodule(name).weight.data += scale * up @ down
    return net


def scored(batch: Batch, old: Any, rollout: Any) -> Batch:
    """Return the batch with the log-probs of two models."""
    rows = []
    assert batch.prompt_ids is not None
    for sample in range(8):
        prompt = batch.prompt_ids[sample * 10 :][:10]
        rows.append(torch.cat([prompt, batch.require_ids()[sample * 50 :][:50]]).long())
    return replace(
        batch,
        old_log_probs=torch.cat([log_probs(old, row)[10:] for row in rows]),
        rollout_log_probs=torch.cat([log_probs(rollout, row)[10:] for row in rows]),
    )


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (0.0, "without the adapter step_7"),
        (4.0, "the adapter step_7 2 times as strong"),
        (2.2, "the adapter step_7 1.1 times as strong"),
        (
            1.0,
            "the adapter step_7 0.5 times as strong: its lora_alpha / r was left out",
        ),
    ],
)
def test_an_adapter_off_or_scaled_is_proved(
    folder: str, adapter: Path, scale: float, says: str
) -> None:
    """The training engine has it at lora_alpha / r = 2, as it should."""
    sound = merged(folder, adapter, ALPHA / RANK)
    batch = scored(make_batch(folder), sound, merged(folder, adapter, scale))
    proof = rd.prove(
        batch, folder, hypotheses=["lora_mismatch"], adapters={"step_7": str(adapter)}
    )
    assert (proof.verdict, proof.side, proof.cause) == (
        "proved",
        "rollout",
        "lora_mismatch",
    )
    assert proof.conclusions[0].says == (says,)
    assert proof.base["old"].residual < 1e-3
    assert proof.not_tested["older weights"] == "no checkpoints given"


def test_what_is_no_lora_of_linear_layers_is_an_error(
    folder: str, adapter: Path, tmp_path: Path
) -> None:
    batch = make_batch(folder)
    with pytest.raises(LoadError, match=r"adapter_config\.json"):
        rd.prove(batch, folder, adapters={"a": str(tmp_path)})
    config = json.loads((adapter / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({**config, "use_dora": True})
    )
    save_file(
        {"base_model.model.model.embed_tokens.lora_embedding_A": torch.zeros(4, 64)},
        tmp_path / "adapter_model.safetensors",
    )
    with pytest.raises(LoadError, match="use_dora=False"):
        rd.prove(batch, folder, adapters={"a": str(tmp_path)})
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(LoadError, match="lora_embedding_A"):
        rd.prove(batch, folder, adapters={"a": str(tmp_path)})
    with pytest.raises(BatchError, match="a model in this process"):
        rd.prove(batch, lambda ids, _: [0.0] * len(ids), adapters={"a": "b"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[" * 100_000, "nested in more than 100 levels"),
        ("[1]", "it is a list, not an object"),
        ('{"lora_alpha": "x"}', "`lora_alpha` is a text"),
        ('{"alpha_pattern": {"q": "x"}}', "numbers in `alpha_pattern`; found 'x'"),
    ],
)
def test_an_odd_configuration_of_an_adapter(
    folder: str, adapter: Path, tmp_path: Path, text: str, found: str
) -> None:
    shutil.copytree(adapter, tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_config.json").write_text(text)
    with pytest.raises(LoadError, match=re.escape(found)):
        rd.prove(make_batch(folder), folder, adapters={"a": str(tmp_path / "adapter")})
