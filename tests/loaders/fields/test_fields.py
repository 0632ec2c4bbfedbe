"""verl's names as a Batch: what stands in for what, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.loaders.field_batch import batch_from_fields
from tests.loaders.facts import has
from tests.loaders.fields.hand_batch import built
from tests.loaders.verl_writer import small_batch

WHOLE_MASK = torch.tensor([[0, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0]])
SCORES = torch.tensor([[0.0, 0.5, 0.0, 1.0], [-1.0, 0.0, 0.0, 0.0]])
OTHER = torch.full((2, 4), -3.0)
# Fields that the small batch has in addition, or that it lacks.
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the loss mask stands in for a missing response mask": (
        {
            "response_mask": None,
            "loss_mask": torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0]]),
        },
        {
            "meta.mask_source": "loss_mask",
            "rounds.num_tokens": [1, 1, 1],
            "meta.rounds": None,
        },
    ),
    "the attention mask stands in last, and merges all rounds": (
        {"response_mask": None},
        {
            "meta.mask_source": "attention_mask",
            "meta.rounds": "unknown",
            "rounds.num_tokens": [4, 1],
        },
    ),
    "a loss mask of prompt and response is cut to the response": (
        {"loss_mask": WHOLE_MASK},
        {"loss_mask": [0, 1, 0, 1, 1, 0, 0, 0]},
    ),
    "scores of tokens are summed": (
        {"token_level_scores": SCORES},
        {"rewards": [1.5, -1.0]},
    ),
    "scores of a model are summed": ({"rm_scores": SCORES}, {"rewards": [1.5, -1.0]}),
    "no scores": ({}, {"rewards": None}),
    "every other log-prob is a score": (
        {"ref_log_prob": OTHER, "current_log_probs": OTHER},
        {"score.ref": [-3.0] * 8, "score.current": [-3.0] * 8},
    ),
}
# Columns and facts of all beside the small batch.
COLUMNS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "rewards": (
        {"rewards": np.array([1, 0])},
        {},
        {"rewards": [1.0, 0.0], "sample_columns": {}},
    ),
    "a reward of none": ({"rewards": [1, None]}, {}, {"rewards": [1.0, None]}),
    "rewards in words": (
        {"rewards": ["good", "bad"]},
        {},
        {"rewards": None, "sample.rewards": ["good", "bad"]},
    ),
    "the step and the sampling": (
        {},
        {"temperature": 0.7, "top_k": -1, "global_steps": 12, "timing": {"gen": 1.0}},
        {
            "step": 12,
            "meta": {
                "source": "memory",
                "mask_source": "response_mask",
                "old_log_probs_source": "unknown",
                "sampling": {"temperature": 0.7, "top_k": -1},
            },
        },
    ),
}


@pytest.mark.parametrize(("changes", "expected"), FIELDS.values(), ids=FIELDS)
def test_what_stands_in_for_what(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    has(built(**changes), expected)


@pytest.mark.parametrize(("columns", "info", "expected"), COLUMNS.values(), ids=COLUMNS)
def test_columns_and_facts_of_all(
    columns: dict[str, Any], info: dict[str, Any], expected: dict[str, Any]
) -> None:
    fields = small_batch()
    has(
        batch_from_fields(fields, source="memory", columns=columns, info=info), expected
    )


@pytest.mark.parametrize("whole", ["prompts", "input_ids", "attention_mask"])
def test_a_mask_of_rows_of_prompt_and_response_is_cut_to_the_response(
    whole: str,
) -> None:
    rows = [torch.tensor([5, 6]), torch.tensor([7, 8])]
    lengths = (3, 2) if whole == "prompts" else (5, 4)
    fields = {
        "responses": rows,
        "rollout_log_probs": [torch.zeros(2)] * 2,
        "old_log_probs": [torch.ones(2)] * 2,
        "response_mask": [torch.tensor([0, 0, 0, 1, 0]), torch.tensor([0, 0, 1, 1])],
        whole: [torch.ones(length) for length in lengths],
    }

    batch = batch_from_fields(fields, source="memory")
    assert batch.response_mask.tolist() == [1, 0, 1, 1]


def test_nested_fields_need_no_padding() -> None:
    rows = {
        name: torch.nested.as_nested_tensor(
            [value[0], value[1, :1]], layout=torch.jagged
        )
        for name, value in small_batch().items()
        if name not in {"prompts", "attention_mask"}
    }
    batch = batch_from_fields(rows, source="memory")

    assert batch.offsets.tolist() == [0, 4, 5]
    assert batch.lengths.tolist() == [4, 1]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]


def test_padded_fields_are_not_copied() -> None:
    fields = small_batch()
    batch = batch_from_fields(fields, source="memory")

    shared = fields["old_log_probs"].data_ptr()
    assert batch.log_probs("old").data_ptr() == shared


def test_a_field_is_looked_up_once() -> None:
    class Counting(dict[str, torch.Tensor]):
        reads: list[str] = []  # noqa: RUF012 one test

        def get(self, name: str, default: Any = None) -> Any:
            self.reads.append(name)
            return super().get(name, default)

    fields = Counting(small_batch())
    batch_from_fields(fields, source="memory")

    read = [name for name in fields.reads if name in fields and "mask" not in name]
    assert sorted(read) == [
        "old_log_probs",
        "prompts",
        "responses",
        "rollout_log_probs",
    ]


def test_only_plain_columns_are_kept() -> None:
    columns = {
        "uid": ["a", "a"],
        "turns": np.array([2, 3], dtype=np.int32),
        "env": ["shop", None],
        "done": [True, False],
        "score": [0.5, np.float32(1.5)],
        "chat": [[{"role": "user"}], []],
        "short": ["a"],
    }
    batch = batch_from_fields(small_batch(), source="memory", columns=columns)

    assert batch.group_ids == ("a", "a")
    kept = {name: values.tolist() for name, values in batch.sample_columns.items()}
    assert kept == {
        "turns": [2, 3],
        "env": ["shop", None],
        "done": [True, False],
        "score": [0.5, 1.5],
    }
    assert batch.sample_columns["turns"].dtype == np.int32


def test_no_samples_are_a_batch_too() -> None:
    empty = {name: value[:0] for name, value in small_batch().items()}
    batch = batch_from_fields(
        {**empty, "rm_scores": torch.zeros(0, 4)}, source="memory", columns={"uid": []}
    )

    assert batch.num_samples == 0
    assert batch.num_rounds == 0
