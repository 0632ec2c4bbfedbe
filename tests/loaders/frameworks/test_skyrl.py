"""Files that the released SkyRL dumped, and others in its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rounddiag.loaders import load
from rounddiag.loaders.containers import open_container
from rounddiag.loaders.pickle.placeholders import Name, Node
from rounddiag.loaders.source import Source
from tests.loaders.facts import has
from tests.loaders.skyrl_writer import small_batch, stored, write, write_state

DATA = Path(__file__).parents[2] / "data"
NEWEST = DATA / "skyrl-0.3.0_default_global_step_7_training_input.pkl"
FIELDS = small_batch()
STEP_NAMES = ["task-0_0", "task-0_0"]
UNLIKE_0 = torch.tensor([[0.0] * 3, [0.0, 1.0, 1.0]])
BOUNDARIES: list[list[Any]] = [
    *([(0, 1 << 60)], [(1, 0)], [(0, 2), (0, 2)], ["ab"], [3], [(None, 2)])
]
# Fields and metadata beside the small batch, and what the batch has.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "rows that are steps are in no group": (
        {"is_last_step": torch.tensor([False, True])},
        {"trajectory_ids": STEP_NAMES},
        {
            "group_ids": None,
            "sample_columns": {
                "is_last_step": [False, True],
                "trajectory_ids": STEP_NAMES,
            },
        },
    ),
    "samples of the same prompt, where no boundaries are known": (
        {},
        {},
        {
            "meta.group_source": "samples whose prompts have the same tokens",
            "step": 3,
        },
    ),
    "group ids that are still there": (
        {},
        {"uids": ["a", "b"]},
        {"group_ids": ["a", "b"], "sample_columns": {}},
    ),
    "rewards of tokens": (
        {"rewards": torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.5]])},
        {},
        {"rewards": [1.0, 0.5]},
    ),
    "a sample that was taken out of the loss": (
        {"loss_mask": UNLIKE_0},
        {},
        {"num_samples": 2, "rounds.sample": [1]},
    ),
    "rows that all pad": (
        {"loss_mask": torch.zeros(2, 3)},
        {"pad_size": 2},
        {"num_samples": 0},
    ),
    "an empty response is all prompt": (
        {"loss_mask": UNLIKE_0, "response_mask": UNLIKE_0},
        {},
        {"lengths": [0, 2], "prompt_ids": [1, 2, 10, 3, 11, 1, 2]},
    ),
    "pictures alone make no groups": (
        {"pixel_values": [torch.zeros(0, 1)] * 2},
        {},
        {"group_ids": None, "images": None},
    ),
    "no log-probs of training": (
        {"action_log_probs": None},
        {},
        {"old_log_probs": None},
    ),
    "no log-probs of sampling": (
        {"rollout_logprobs": None},
        {},
        {"rollout_log_probs": None},
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "global_step_3_training_input.pkl"


@pytest.mark.parametrize(("fields", "metadata", "expected"), CASES.values(), ids=CASES)
def test_a_batch_is_read(
    fields: dict[str, Any],
    metadata: dict[str, Any],
    expected: dict[str, Any],
    path: Path,
) -> None:
    has(load(write(path, {**FIELDS, **fields}, metadata or None)), expected)


@pytest.mark.parametrize("boundaries", BOUNDARIES)
def test_boundaries_that_lie_number_no_row_twice(
    path: Path, boundaries: list[Any]
) -> None:
    write(path, FIELDS, {"policy_mini_batch_boundaries": boundaries})
    found = load(path).sample_columns["policy_mini_batch"].tolist()
    assert found in ([None] * 2, [0, 0])


def test_samples_of_a_prompt_are_a_group_and_steps_can_be_joined(path: Path) -> None:
    first, second = load(write(path, FIELDS)).group_ids
    assert first == second
    batch = load(write(path, FIELDS, {"trajectory_ids": STEP_NAMES}))
    assert "sample_by='trajectory_ids'" in batch.meta["rows"]


def test_the_stand_in_writes_the_layout_of_the_release(path: Path) -> None:
    ours = open_container(Source.of_file(write(path, FIELDS)))
    theirs = open_container(Source.of_file(NEWEST))
    assert isinstance(ours, Node)
    assert isinstance(theirs, Node)
    assert layout(ours) == layout(theirs)


def layout(node: Node) -> tuple[object, ...]:
    """Return what is called, and the keys of the state and of one tensor in it."""
    match node.args:
        case (Name(cls), {"batch_dict": {"sequences": dict(tensor)}, **others}):
            return node.name, cls, list(tensor), list(others)
    return ()


def test_metadata_and_half_precision_are_kept() -> None:
    assert load(NEWEST).meta["metadata"] == {
        "response_length": 7,
        "avg_response_length": 14 / 3,
        "avg_final_rewards": 0.5,
        "pad_size": 1,
    }
    batch = load(DATA / "skyrl-0.3.0_bf16_global_step_7_training_input.pkl")
    assert batch.log_probs("old").dtype == torch.bfloat16


def test_tensors_of_the_layout_without_a_format_are_read(path: Path) -> None:
    content = {name: stored(value) for name, value in FIELDS.items()}
    for value in content.values():
        if value is not None:
            del value["format"]
    batch = load(write_state(path, {"batch_dict": content, "metadata": None}))
    has(batch, {"response_ids": [10, 3, 11, 12, 13]})
