"""What a line pasted into a trainer saved, under the trainer's own names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.frameworks.verl import roll_fields
from tests.loaders.facts import has, plain

DATA = Path(__file__).parents[2] / "data"


def trl() -> dict[str, torch.Tensor]:
    """Two prompts, padded to the left; a tool speaks in the first completion."""
    return {
        "prompt_ids": torch.tensor([[0, 1, 2], [1, 2, 3]]),
        "prompt_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]),
        "completion_ids": torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]),
        "tool_mask": torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]]),
        "sampling_per_token_logps": torch.tensor([[-1.0, 0, -2, 0], [-3, -4, 0, 0]]),
        "old_per_token_logps": torch.tensor([[-1.5, -9, -2, -9], [-3, -4, -9, -9]]),
        "ref_per_token_logps": torch.tensor([[-1.25, -9, -2, -9], [-3, -4, -9, -9]]),
        "advantages": torch.tensor([0.5, -0.5]),
        "num_items_in_batch": torch.tensor(4),
        "pixel_values": torch.zeros(4, 2),
    }


def openrlhf() -> dict[str, torch.Tensor]:
    """Prompts of two and one token; per token, the first is left out."""
    return {
        "sequences": torch.tensor([[1, 2, 5, 6, 7], [1, 8, 9, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "action_mask": torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0]]),
        "action_log_probs": torch.tensor([[0.0, -1, 0, -2], [-3, -4, 0, 0]]),
        "rollout_log_probs": torch.tensor([[0.0, -1.5, 0, -2], [-3, -4, 0, 0]]),
        "base_action_log_probs": torch.tensor([[0.0, -1.25, 0, -2], [-3, -4, 0, 0]]),
        "returns": torch.zeros(2, 4),
        "rewards": torch.tensor([1.0, 0.0]),
    }


def areal() -> dict[str, torch.Tensor]:
    """As OpenRLHF's; the trainer's values stand one place before their token."""
    return {
        "input_ids": torch.tensor([[1, 2, 5, 6, 7], [1, 8, 9, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "loss_mask": torch.tensor([[0, 0, 1, 0, 1], [0, 1, 1, 0, 0]]),
        "logprobs": torch.tensor([[0.0, 0, -1.5, 0, -2], [0, -3, -4, 0, 0]]),
        "prox_logp": torch.tensor([[-9.0, -1, 0, -2, -9], [-3, -4, -9, -9, -9]]),
        "versions": torch.tensor([[-1, -1, 4, -1, 5], [-1, 4, 4, 0, 0]]),
    }


def roll() -> dict[str, torch.Tensor]:
    """As OpenRLHF's, with masks of the whole sequence."""
    fields = openrlhf()
    return {
        "input_ids": fields["sequences"],
        "attention_mask": fields["attention_mask"],
        "response_mask": torch.tensor([[0, 0, 1, 0, 1], [0, 1, 1, 0, 0]]),
        "infer_logprobs": fields["rollout_log_probs"],
        "old_log_probs": fields["action_log_probs"],
        "scores": torch.tensor([[0.0, 0, 0, 0, 1], [0, 0, 0.5, 0, 0]]),
    }


TEXTS = {k: v for k, v in trl().items() if not k.startswith("prompt")}
WHOLE = {
    "response_ids": [5, 6, 7, 8, 9],
    "response_mask": [1, 0, 1, 1, 1],
    "rollout_log_probs": [-1.5, 0.0, -2.0, -3.0, -4.0],
    "old_log_probs": [-1.0, 0.0, -2.0, -3.0, -4.0],
    "prompt_ids": [1, 2, 1],
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "TRL": (
        {**trl(), "global_step": 40},
        {
            "response_ids": [5, 6, 7, 8, 9],
            "response_mask": [1, 0, 1, 1, 1],
            "rollout_log_probs": [-1.0, 0.0, -2.0, -3.0, -4.0],
            "old_log_probs": [-1.5, -9.0, -2.0, -3.0, -4.0],
            "score.ref": [-1.25, -9.0, -2.0, -3.0, -4.0],
            "prompt_ids": [1, 2, 1, 2, 3],
            "lengths": [3, 2],
            "step": 40,
            "sample.advantages": [0.5, -0.5],
            "advantages": [0.5, 0.0, 0.5, -0.5, -0.5],
            "meta.left_out": ["num_items_in_batch", "pixel_values"],
            "meta.mask_source": "completion_mask * tool_mask",
            "meta.old_log_probs_source": "a pass of its own",
        },
    ),
    "TRL without prompts": (TEXTS, {"group_ids": None}),
    "TRL with groups": (
        {**trl(), "uid": ["a", "b"]},
        {"group_ids": ["a", "b"], "meta.group_source": None},
    ),
    "OpenRLHF": (
        openrlhf(),
        {
            **WHOLE,
            "rewards": [1.0, 0.0],
            "score.ref": [-1.25, 0.0, -2.0, -3.0, -4.0],
            "meta.left_out": ["returns"],
            "meta.mask_source": "action_mask",
        },
    ),
    "AReaL": (areal(), WHOLE),
}


@pytest.mark.parametrize(("fields", "expected"), CASES.values(), ids=CASES)
def test_fields_are_a_batch_in_memory_and_in_a_file(
    fields: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    has(load(fields), expected)
    rows = {
        name: list(value)
        if isinstance(value, torch.Tensor) and value.dim() > 1
        else value
        for name, value in fields.items()
    }
    torch.save(rows, tmp_path / "step_40.pt")
    has(load(tmp_path / "step_40.pt"), expected)


def test_roll_s_fields_are_those_of_verl() -> None:
    expected = {
        "prompts": [[1, 2], [1]],
        "responses": [[5, 6, 7], [8, 9]],
        "response_mask": [[1, 0, 1], [1, 1]],
        "rollout_log_probs": [[-1.5, 0.0, -2.0], [-3.0, -4.0]],
        "old_log_probs": [[-1.0, 0.0, -2.0], [-3.0, -4.0]],
        "rm_scores": [[0.0, 0.0, 1.0], [0.0, 0.5]],
    }
    fields = roll()
    assert plain(roll_fields(fields, "f")) == expected
    del fields["old_log_probs"], expected["old_log_probs"]
    assert plain(roll_fields(fields, "f")) == expected


def test_samples_of_one_prompt_are_a_group() -> None:
    fields = trl()
    fields["prompt_ids"][1] = torch.tensor([9, 1, 2])
    fields["prompt_mask"][1] = torch.tensor([0, 1, 1])
    first, second = load(fields).group_ids or ()
    assert first == second


def test_trl_s_fields_have_the_width_of_the_completions() -> None:
    message = (
        "expected 2 rows, as long as those of `completion_ids`; found 2 of 2 rows with"
        " another length, by 1: 0, 1 (row 0 has 3, and 4 there)."
    )
    with pytest.raises(LoadError, match=re.escape(message)):
        load({**trl(), "old_per_token_logps": torch.zeros(2, 3)})


@pytest.mark.parametrize(
    ("write_fields", "key", "lacks"),
    [
        (trl, "sampling_per_token_logps", "rollout"),
        (trl, "old_per_token_logps", "old"),
        (openrlhf, "rollout_log_probs", "rollout"),
        (openrlhf, "action_log_probs", "old"),
        (areal, "prox_logp", "old"),
    ],
)
def test_log_probs_of_one_engine_are_absent(
    write_fields: Any, key: str, lacks: str
) -> None:
    whole = load(write_fields())
    batch = load({k: v for k, v in write_fields().items() if k != key})
    (other,) = {"old", "rollout"} - {lacks}
    assert batch.lacks(lacks) is not None
    assert torch.equal(batch.log_probs(other), whole.log_probs(other))


def test_a_folder_of_the_real_datasets_opens() -> None:
    names = {"rollout_log_probs": "sampler", "old_log_probs": "trainer"}
    batch = load(DATA / "datasets-5.2.0", columns={**names, "group_ids": "task"})
    has(batch, {"group_ids": ["task 0", "task 0", "task 1", "task 1"]})
    diff = batch.log_probs("old") - batch.log_probs("rollout")
    assert torch.allclose(diff, torch.full_like(diff, -0.25))
    assert [[shot.size for shot in row] for row in batch.images] == [
        *([], [(4, 3)], [], [(4, 3)])
    ]
