"""Rows packed as trainers pack them: a state that goes on, and rows that are equal.

transformers 5.24.0: positions that restart separate the rows of a pack in attention,
without a mask and with `use_cache=False`; the state of linear attention goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import rounddiag as rd
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.hypotheses.context import _with_text_row
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trajectory import Request
from tests.proof.test_prove import say

SIZE, PROMPT, NUM_ROWS = 64, 10, 12
SHAPE = {
    "vocab_size": SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "initializer_range": 0.2,
}


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> LocalEngine:
    torch.manual_seed(0)
    config = transformers.Qwen3_5TextConfig(
        **SHAPE,
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
    )
    folder = tmp_path_factory.mktemp("hybrid")
    transformers.Qwen3_5ForCausalLM(config).save_pretrained(folder)
    return LocalEngine.open(str(folder))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> LocalEngine:
    torch.manual_seed(0)
    config = transformers.Qwen3Config(**SHAPE)
    folder = tmp_path_factory.mktemp("dense")
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    return LocalEngine.open(str(folder))


def packed(model: Any, rows: list[torch.Tensor]) -> torch.Tensor:
    """Return the log-probs of the last row of a pack, in one call as trainers do it."""
    positions = torch.cat([torch.arange(len(row)) for row in rows])
    with torch.inference_mode():
        logits = model(
            input_ids=torch.cat(rows)[None],
            position_ids=positions[None],
            use_cache=False,
        ).logits[0, -len(rows[-1]) : -1]
    own = logits.float().log_softmax(-1).gather(1, rows[-1][1:, None])[:, 0]
    return torch.cat([torch.zeros(1), own])


def make_batch(old: Callable[[list[torch.Tensor], int], torch.Tensor]) -> rd.Batch:
    rng = np.random.default_rng(0)
    rows = [torch.from_numpy(rng.integers(3, SIZE, 60)) for _ in range(NUM_ROWS)]
    return rd.Batch.from_rows(
        prompt_ids=[row[:PROMPT] for row in rows],
        response_ids=[row[PROMPT:] for row in rows],
        response_mask=[torch.ones(60 - PROMPT, dtype=torch.int64) for _ in rows],
        old_log_probs=[old(rows, at)[PROMPT:] for at in range(NUM_ROWS)],
        rollout_log_probs=[
            old(rows[at : at + 1], 0)[PROMPT:] for at in range(NUM_ROWS)
        ],
    )


@pytest.mark.parametrize("size", [2, 4])
def test_a_state_that_went_on_is_proved(hybrid: LocalEngine, size: int) -> None:
    batch = make_batch(
        lambda rows, at: packed(hybrid.model, rows[at - at % size : at + 1])
    )
    proof = rd.prove(batch, hybrid)
    assert say(proof) == ("proved", "old", "packing_leak")
    (says,) = proof.conclusions[0].says
    assert says.startswith("the linear layers' state went on from the row before")


def test_attention_alone_is_separated(dense: LocalEngine) -> None:
    """The same pass leaks nothing where no layer has a state."""
    batch = make_batch(lambda rows, at: packed(dense.model, rows[at - at % 2 : at + 1]))
    diff = batch.log_probs("old") - batch.log_probs("rollout")
    assert float(diff.abs().max()) < 1e-4
    assert "state" not in dense.abilities
    samples = Scorer(batch, dense).samples
    edit = next(
        each.edit for each in all_registered() if each.name == "state_of_previous_row"
    )
    assert edit is not None
    request = edit(samples[1], samples)
    assert isinstance(request, Request)
    assert len(request.ids) == len(samples[0].ids) + len(samples[1].ids)
    (scores,) = dense.score([request], samples)
    truth = batch.log_probs("rollout")[batch.offsets[1] : batch.offsets[2]]
    assert np.abs(scores - truth.numpy()).max() < 1e-4


def test_three_axes_get_the_positions_of_the_text_before_them() -> None:
    axes = torch.tensor([[0, 1, 2, 0, 1], [0, 5, 7, 8, 9], [0, 5, 6, 8, 9]])
    moved = _with_text_row([3])(axes, axes)
    assert moved[:, 3:].tolist() == [[0, 1], [0, 1], [0, 1], [0, 1]]
    assert moved[:, :3].tolist() == [[0, 1, 2], *axes[:, :3].tolist()]
    assert _with_text_row([3])(axes[1:2], axes).tolist() == [[0, 5, 7, 0, 1]]


def test_rows_that_are_equal_bit_by_bit(dense: LocalEngine) -> None:
    sound = make_batch(lambda rows, at: packed(dense.model, rows[at : at + 1]))

    def moved(rows: int, step: int) -> Any:
        """Move every `step`-th token of the first rows by 1e-4 nat."""
        end = int(sound.offsets[rows])
        changed = sound.log_probs("rollout").clone()
        changed[:end:step] -= 1e-4
        return replace(sound, old_log_probs=changed)

    def equal_rows(batch: rd.Batch) -> list[int]:
        return Scorer(batch, dense).equal_rows

    # Of the rows that differ no token is equal, so that no row of 50 is by chance.
    assert equal_rows(moved(8, 1)) == [8, 9, 10, 11]
    # 49 of 50 tokens are equal there: 0.98^50 = 0.36 of rows are so by chance.
    assert equal_rows(moved(8, 50)) == []
    assert equal_rows(sound) == []  # no row differs
    # Less than the noise of a short dtype, and yet no noise of these engines.
    proof = rd.prove(moved(8, 1), dense)
    assert proof.verdict == "none_of_these"
    assert "In 4 of 12 samples both engines agree bit by bit" in proof.next_step
    assert rd.prove(sound, dense).verdict == "nothing_to_prove"
