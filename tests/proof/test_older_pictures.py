"""Pictures of the older vision tower, under the newer language weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

import rounddiag as rd
from rounddiag.proof.engines.local import LocalEngine
from tests.proof.test_families import (
    CLOSE,
    EACH,
    OPEN,
    PAD,
    own_log_probs,
    picture,
    qwen2_vl,
)


def test_pictures_of_an_older_tower_are_proved(tmp_path: Path) -> None:
    """As vLLM 0.32 keeps encoded pictures where an adapter's folder is overwritten."""
    folders = {}
    torch.manual_seed(0)
    model, processor = qwen2_vl()
    for name in ("older", "newer"):
        folders[name] = str(tmp_path / name)
        model.save_pretrained(folders[name])
        (tmp_path / name / "preprocessor_config.json").write_text(json.dumps(processor))
        with torch.no_grad():  # a step of training, in all layers
            for weights in model.parameters():
                weights.add_(0.05 * torch.randn_like(weights))
    newer = LocalEngine.open(folders["newer"], dtype="float32")
    older = LocalEngine.open(folders["older"], dtype="float32")
    mixed = LocalEngine.open(folders["newer"], dtype="float32")
    mixed.model.model.visual.load_state_dict(older.model.model.visual.state_dict())
    rng = np.random.default_rng(0)
    prompt = [1, OPEN, *[PAD] * EACH, CLOSE]
    texts = [rng.integers(10, 60, 24).tolist() for _ in range(6)]
    shots = [[picture(number)] for number in range(6)]
    cut = len(prompt)
    pairs = [(prompt + text, own) for text, own in zip(texts, shots, strict=True)]
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor(text) for text in texts],
        response_mask=[torch.ones(24, dtype=torch.long)] * 6,
        old_log_probs=[own_log_probs(newer, *pair)[cut:] for pair in pairs],
        rollout_log_probs=[own_log_probs(mixed, *pair)[cut:] for pair in pairs],
        prompt_ids=[torch.tensor(prompt)] * 6,
        images=shots,
    )
    proof = rd.prove(
        batch,
        newer,
        checkpoints={"step 1": folders["older"]},
        hypotheses=["stale_weights", "stale_cache"],
    )
    assert "vision tower of step 1" in str(proof)
    assert proof.cause == "stale_cache", proof
