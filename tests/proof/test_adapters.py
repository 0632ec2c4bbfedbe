"""Adapters of peft's format: against weights that are merged by hand."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.errors import BatchError, LoadError, RounddiagError
from rounddiag.proof.engines.adapters import open_adapter
from tests.proof import test_local
from tests.proof.test_local import log_probs, make_batch
from tests.proof.test_prove import say

pytestmark = pytest.mark.skipif(
    find_spec("peft") is None, reason="peft is the extra `lora`"
)
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
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": ALPHA,
        "bias": "none",
        "target_modules": ["q_proj", "down_proj"],
    }
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
    assert say(proof) == ("proved", "rollout", "lora_mismatch")
    assert proof.conclusions[0].says == (says,)
    assert proof.base["old"].residual < 1e-3
    assert proof.not_tested["older weights"] == "no checkpoints given"


@pytest.mark.parametrize(
    ("change", "tensors", "found"),
    [
        ({"peft_type": "LOHA"}, None, "'bias'"),
        ({"bias": "all"}, None, "bias=all"),
        ("[" * 100_000, None, "RecursionError"),
        ("[1]", None, "TypeError"),
        ({"lora_alpha": "x"}, None, "TypeError"),
        ({"target_modules": ["of_another_model"]}, {"a.lora_A.weight": (4, 9)}, "a"),
        ({}, {f"{LAYERS[0]}.lora_A.weight": (4, 9)}, "size mismatch"),
        # What is loaded before the odd one is found is switched off, too.
        (
            {},
            {
                f"{LAYERS[0]}.lora_A.weight": (4, 32),
                f"{LAYERS[0]}.lora_B.weight": (32, 4),
                "b.weight": (2, 2),
            },
            "such as 'b.weight'",
        ),
        ({}, {f"{LAYERS[0]}.lora_A.weight": (4, 32)}, "such as '.*lora_B"),
        ({}, b"no tensors", "SafetensorError"),
        (None, None, "adapter_config.json"),
    ],
)
def test_what_does_not_fit_the_model_is_an_error_and_leaves_it_as_it_was(
    folder: str, adapter: Path, tmp_path: Path, change: Any, tensors: Any, found: str
) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(adapter, odd)
    config = odd / "adapter_config.json"
    if change is None:
        config.unlink()
    elif isinstance(change, str):
        config.write_text(change)
    else:
        config.write_text(json.dumps(json.loads(config.read_text()) | change))
    if isinstance(tensors, bytes):
        (odd / "adapter_model.safetensors").write_bytes(tensors)
    elif tensors:
        ones = {key: torch.ones(shape) for key, shape in tensors.items()}
        save_file(ones, odd / "adapter_model.safetensors")
    net = load(folder)
    ids = torch.arange(20)
    before = log_probs(net, ids)
    with pytest.raises(LoadError, match=f"odd: expected .*; found .*{found}"):
        open_adapter(str(odd), net)
    assert torch.equal(log_probs(net, ids), before)


def test_adapters_need_a_model_in_this_process(folder: str) -> None:
    with pytest.raises(BatchError, match="a model in this process"):
        rd.prove(
            make_batch(folder), lambda ids, _: [0.0] * len(ids), adapters={"a": "b"}
        )


def test_without_peft_the_error_says_what_to_install(
    folder: str, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(RounddiagError, match=r"pip install 'rounddiag\[lora\]'"):
        rd.prove(make_batch(folder), folder, adapters={"a": str(adapter)})
