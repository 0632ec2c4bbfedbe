"""Files that the released SkyRL dumped, and others in its layout."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.containers import open_container
from rounddiag.loaders.pickle.placeholders import Name, Node
from rounddiag.loaders.source import Source
from tests.loaders.skyrl_writer import small_batch, stored, write, write_state

DATA = Path(__file__).parents[2] / "data"
NEWEST = DATA / "skyrl-0.3.0_default_global_step_7_training_input.pkl"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "global_step_3_training_input.pkl"


def test_the_stand_in_writes_the_layout_of_the_release(path: Path) -> None:
    ours = open_container(Source.of_file(write(path, small_batch())))
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


def test_the_metadata_is_kept() -> None:
    assert load(NEWEST).meta["metadata"] == {
        "response_length": 7,
        "avg_response_length": 14 / 3,
        "avg_final_rewards": 0.5,
        "pad_size": 1,
    }


def test_rows_that_are_steps_keep_what_tells_them_and_are_in_no_group(
    path: Path,
) -> None:
    names = ["task-0_0", "task-0_0"]
    fields = {**small_batch(), "is_last_step": torch.tensor([False, True])}
    batch = load(write(path, fields, {"trajectory_ids": names}))
    columns = {name: list(values) for name, values in batch.sample_columns.items()}

    assert batch.group_ids is None
    assert columns == {"is_last_step": [False, True], "trajectory_ids": names}
    assert "sample_by='trajectory_ids'" in batch.meta["rows"]


def test_the_layout_of_0_1_is_refused_with_the_one_that_opens(path: Path) -> None:
    class TrainingInputBatch:
        """Pickled by its name."""

    TrainingInputBatch.__qualname__ = "TrainingInputBatch"
    home = "skyrl_train.training_batch"
    TrainingInputBatch.__module__ = home
    modules = {"skyrl_train": ModuleType("skyrl_train"), home: ModuleType(home)}
    modules[home].TrainingInputBatch = TrainingInputBatch  # type: ignore[attr-defined]
    with patch.dict(sys.modules, modules):
        path.write_bytes(pickle.dumps(TrainingInputBatch()))
    with pytest.raises(LoadError, match=r"SkyRL 0\.1: a layout .* 0\.3\.0: that file"):
        load(path)


def test_half_precision_is_kept_as_it_is() -> None:
    batch = load(DATA / "skyrl-0.3.0_bf16_global_step_7_training_input.pkl")

    assert batch.log_probs("old").dtype == torch.bfloat16


def test_without_boundaries_samples_of_the_same_prompt_are_a_group(path: Path) -> None:
    batch = load(write(path, small_batch()))

    assert batch.group_ids[0] == batch.group_ids[1]
    assert batch.meta["group_source"] == "samples whose prompts have the same tokens"
    assert batch.step == 3


def test_group_ids_that_are_still_there_are_taken(path: Path) -> None:
    batch = load(write(path, small_batch(), {"uids": ["a", "b"]}))

    assert batch.group_ids == ("a", "b")
    assert not batch.sample_columns


def test_rewards_that_are_still_there_are_summed(path: Path) -> None:
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.5]])
    batch = load(write(path, {**small_batch(), "rewards": rewards}))

    assert batch.rewards.tolist() == [1.0, 0.5]


def test_tensors_of_the_layout_without_a_format_are_read(path: Path) -> None:
    content = {name: stored(value) for name, value in small_batch().items()}
    for value in content.values():
        if value is not None:
            del value["format"]
    batch = load(write_state(path, {"batch_dict": content, "metadata": None}))

    assert batch.require_ids().tolist() == [10, 3, 11, 12, 13]


def test_a_sample_that_was_taken_out_of_the_loss_has_no_rounds(path: Path) -> None:
    fields = small_batch()
    fields["loss_mask"][0] = 0
    batch = load(write(path, fields))

    assert batch.num_samples == 2
    assert batch.rounds.sample.tolist() == [1]


def test_an_empty_response_is_all_prompt(path: Path) -> None:
    fields = small_batch()
    fields["response_mask"][0] = 0
    fields["loss_mask"][0] = 0
    batch = load(write(path, fields))

    assert batch.lengths.tolist() == [0, 2]
    assert batch.prompt_ids.tolist() == [1, 2, 10, 3, 11, 1, 2]
