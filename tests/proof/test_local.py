"""The engine that runs a model of transformers: a tiny text model, made here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import rounddiag as rd
from rounddiag.errors import BatchError, LoadError
from rounddiag.proof.columns import column_scores
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.scorer import Scorer
from tests.proof.test_prove import say

SIZE = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        initializer_range=0.3,
    )
    path = tmp_path_factory.mktemp("model")
    transformers.Qwen3ForCausalLM(config).save_pretrained(path)
    return str(path)


def log_probs(net: Any, ids: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Score ids with the model itself, in one plain call."""
    with torch.inference_mode():
        logits = net(input_ids=ids[None]).logits[0, :-1].float() / temperature
    own = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    return torch.cat([torch.zeros(1), own])


def make_batch(folder: str, temperature: float = 1.0) -> rd.Batch:
    load = transformers.AutoModelForCausalLM.from_pretrained
    precise = load(folder, dtype=torch.float32)
    low_precision = load(folder, dtype=torch.bfloat16)
    rng = np.random.default_rng(0)
    rows = [torch.from_numpy(rng.integers(3, SIZE, 60)) for _ in range(8)]
    return rd.Batch.from_rows(
        response_ids=[row[10:] for row in rows],
        response_mask=[torch.ones(50, dtype=torch.int64) for _ in rows],
        old_log_probs=[log_probs(precise, row)[10:] for row in rows],
        rollout_log_probs=[
            log_probs(low_precision, row, temperature)[10:] for row in rows
        ],
        prompt_ids=[row[:10] for row in rows],
    )


def test_rescore_gives_what_the_model_gives(folder: str) -> None:
    batch = make_batch(folder)
    rescored = rd.rescore(batch, folder).scores["rescored"]
    assert float((rescored - batch.log_probs("old")).abs().max()) < 1e-4


def test_the_temperature_of_the_sampler_is_proved_with_its_value(folder: str) -> None:
    proof = rd.prove(make_batch(folder, temperature=0.8), folder)
    assert say(proof) == ("proved", "rollout", "temperature")
    assert proof.conclusions[0].says == ("temperature 0.8",)


def test_bfloat16_against_float32_is_nothing_to_prove(folder: str) -> None:
    assert rd.prove(make_batch(folder), folder).verdict == "nothing_to_prove"


def test_a_log_softmax_in_bfloat16_is_tried_where_values_are_of_bfloat16(
    folder: str,
) -> None:
    batch = make_batch(folder)
    load = transformers.AutoModelForCausalLM.from_pretrained
    net = load(folder, dtype=torch.float32)
    rows = []
    for sample in range(8):
        assert batch.prompt_ids is not None
        prompt = batch.prompt_ids[sample * 10 :][:10]
        ids = torch.cat([prompt, batch.require_ids()[sample * 50 :][:50]]).long()
        with torch.inference_mode():
            logits = net(input_ids=ids[None]).logits[0, 9:-1].bfloat16()
        own = logits.log_softmax(-1).gather(1, ids[10:, None])[:, 0]
        rows.append(own.float())
    changed = replace(batch, old_log_probs=torch.cat(rows))
    scorer = Scorer(changed, LocalEngine.open(folder))
    table = scorer.table({0: None, 1: None})

    def tried(engine: str) -> dict[str, Any]:
        columns = column_scores(scorer, table, engine)
        return {hypothesis.name: scores for hypothesis, scores, _ in columns}

    scores = tried("old")["log_softmax_bfloat16"]
    left = np.abs(scores - table.engines["old"])
    assert (left == 0).mean() > 0.9  # a logit may be rounded to its other neighbour
    assert left.max() <= 1 / 32
    assert "log_softmax_bfloat16" not in tried("rollout")


def test_the_cost_is_said_before(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rd.prove(
        make_batch(folder, temperature=0.8), folder, hypotheses=["bfloat16_positions"]
    )
    assert "1 hypothesis, 2 passes of 60 tokens, about " in capsys.readouterr().err


@pytest.mark.parametrize("other", [SIZE, -1])
def test_ids_of_another_model_are_an_error(folder: str, other: int) -> None:
    batch = rd.Batch.from_rows(
        response_ids=[torch.tensor([1, 2, other])],
        response_mask=[torch.ones(3, dtype=torch.int64)],
        old_log_probs=[torch.zeros(3)],
        rollout_log_probs=[torch.zeros(3)],
    )
    with pytest.raises(BatchError, match="Pass the model that the batch was sampled"):
        rd.rescore(batch, folder)


def test_a_folder_without_a_model_is_an_error(folder: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="Pass the folder of the checkpoint"):
        rd.rescore(make_batch(folder), str(tmp_path))
