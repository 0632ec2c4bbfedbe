"""What others save as a DataProto, laid out as their sources do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch

import rounddiag as rd
from rounddiag.capture import save_batch
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.verl_writer import roll_pickled, small_batch, write

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def step_rows() -> dict[str, Tensor]:
    """Four rows of a prompt token and one or two response tokens, then padding."""
    ids = torch.arange(10, 22).reshape(4, 3)
    real = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 0]])
    mask = real[:, 1:]
    return {
        "prompts": ids[:, :1],
        "responses": ids[:, 1:],
        "input_ids": ids,
        "attention_mask": real,
        "response_mask": mask,
        "rollout_log_probs": -1.0 * mask,
        "old_log_probs": -torch.arange(1.0, 9).reshape(4, 2) * mask,
    }


def test_verl_agent_has_a_row_a_step(tmp_path: Path) -> None:
    columns = {
        "uid": ["g", "g", "g", "g"],
        "traj_uid": ["t0", "t1", "t0", "t1"],
        "active_masks": [True, True, True, True],
        "is_action_valid": [1, 0, 1, 1],
        "rewards": [0.0, 0.0, 1.0, 0.5],
        "episode_rewards": [1.0, 0.5, 1.0, 0.5],
    }
    path = write(tmp_path / "a.pkl", step_rows(), columns)

    rows = load(path)
    batch = load(path, sample_by="traj_uid", order_by="row")

    hint = "rows are steps of trajectories: load(..., sample_by='traj_uid') joins them"
    assert rows.meta["rows"] == hint
    assert rows.rounds.sample.tolist() == [0, 1, 2, 3]
    assert batch.rounds.sample.tolist() == [0, 0, 1, 1]
    assert batch.rounds.round.tolist() == [0, 1, 0, 1]
    assert batch.require_ids().tolist() == [11, 12, 16, 17, 18, 14, 19, 20]
    assert batch.log_probs("old").tolist() == [-1, -2, 0, -5, -6, -3, 0, -7]
    assert batch.group_ids == ("g", "g")
    assert batch.rewards.tolist() == [1.0, 0.5]
    assert batch.round_columns["row_reward"].tolist() == [0.0, 1.0, 0.0, 0.5]
    assert batch.sample_columns["episode_rewards"].tolist() == [1.0, 0.5]
    assert batch.round_columns["is_action_valid"].tolist() == [1, 1, 0, 1]


def test_rllm_names_a_trajectory_by_its_episode_too(tmp_path: Path) -> None:
    # Its `trajectory_ids` and `step_ids` are the same in all rollouts of a task, and
    # `step_nums` is how many steps there are.
    columns = {
        "episode_ids": ["task_0", "task_1", "task_0", "task_1"],
        "trajectory_ids": ["task_solver"] * 4,
        "step_ids": [f"task_solver_step{step}" for step in (10, 9, 9, 10)],
        "step_nums": [2, 2, 2, 2],
        "is_last_step": [True, False, False, True],
    }
    path = write(tmp_path / "a.pkl", step_rows(), columns)

    hint = load(path).meta["rows"]
    batch = load(path, sample_by=["episode_ids", "trajectory_ids"])

    assert "sample_by=['episode_ids', 'trajectory_ids']" in hint
    assert batch.sample_ids == ("task_0_task_solver", "task_1_task_solver")
    assert batch.round_columns["row"].tolist() == [2, 0, 1, 3]
    assert batch.round_columns["is_last_step"].tolist() == [False, True, False, True]
    assert batch.sample_columns["step_nums"].tolist() == [2, 2]


def test_a_data_proto_of_skyrl_agent_is_one_of_verl(tmp_path: Path) -> None:
    # It writes another file before the training engine has computed anything.
    (tmp_path / "current_batch_after_gen.pkl").write_bytes(b"")
    path = write(tmp_path / "current_batch_after_step.pkl", small_batch())

    batch = load(tmp_path)

    assert batch.meta["source"] == str(path)
    assert "rows" not in batch.meta


def test_scores_of_another_shape_are_left_out_and_named(tmp_path: Path) -> None:
    """verl's on-policy distillation has several per token of prompt and response."""
    fields = small_batch()
    num_samples, width = fields["attention_mask"].shape
    teacher = torch.full((num_samples, width, 3), -1.0)
    ref = fields["old_log_probs"] - 1
    tensors = {**fields, "teacher_logprobs": teacher, "ref_log_prob": ref}
    path = write(tmp_path / "step.pkl", tensors)

    batch = load(path)

    assert list(batch.scores) == ["ref"]
    assert batch.meta["left_out"].count("teacher_logprobs") == 1

    save_batch(tensors, tmp_path / "saved.parquet")
    saved = load(tmp_path / "saved.parquet")

    assert list(saved.scores) == ["ref"]
    assert saved.meta["left_out"] == ["teacher_logprobs"]


def roll_batch() -> dict[str, Tensor]:
    """Two sequences of five tokens; log-probs of all but the first."""
    return {
        "input_ids": torch.tensor([[1, 2, 5, 6, 7], [0, 3, 4, 8, 9]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]),
        "response_mask": torch.tensor([[0, 0, 1, 0, 1], [0, 0, 0, 1, 1]]),
        "infer_logprobs": torch.tensor([[0.0, -1, 0, -2], [0, 0, -3, -4]]),
        "old_log_probs": torch.tensor([[-9.0, -1.5, -9, -2.5], [-9, -9, -3, -4.5]]),
    }


def test_a_data_proto_of_roll_opens(tmp_path: Path) -> None:
    path = tmp_path / "step_000003.pkl"
    columns = {"traj_group_id": ["g", "g"], "traj_id": ["g_0", "g_0"], "step": [1, 0]}
    path.write_bytes(roll_pickled(roll_batch(), columns))

    rows = load(path)
    batch = load(path, sample_by="traj_id")

    assert rows.rounds.sample.tolist() == [0, 0, 1]
    assert rows.require_ids().tolist() == [5, 6, 7, 8, 9]
    assert rows.log_probs("rollout").tolist() == [-1, 0, -2, -3, -4]
    assert rows.log_probs("old").tolist() == [-1.5, -9, -2.5, -3, -4.5]
    assert rows.prompt_ids.tolist() == [1, 2, 3, 4]
    assert rows.group_ids == ("g", "g")
    assert rows.step == 7
    assert rows.meta["old_log_probs_source"] == "a pass of its own"
    assert batch.require_ids().tolist() == [8, 9, 1, 2, 5, 6, 7]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]


def test_a_dump_of_rolls_rollouts_lacks_the_trainer(tmp_path: Path) -> None:
    path = tmp_path / "step_000003.pkl"
    fields = roll_batch()
    del fields["old_log_probs"]
    path.write_bytes(roll_pickled(fields))

    batch = load(path)
    assert batch.old_log_probs is None
    assert batch.rollout_log_probs is not None


def test_old_log_probs_that_roll_left_at_zero_are_not_measurable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "step_000003.pkl"
    zeros = torch.zeros(2, 4)
    path.write_bytes(roll_pickled({**roll_batch(), "old_log_probs": zeros}))

    batch = load(path)

    assert rd.diagnose(batch).reason == (
        "`old_log_probs` are 0 at all 4 generated tokens: none was computed, or saved"
    )


def test_tensors_that_roll_keeps_elsewhere_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "step_000003.pkl"
    path.write_bytes(roll_pickled({}))
    message = (
        f"{path}: expected ROLL's tensors; found a DataProto without any:"
        " `transfer_backend` keeps them elsewhere. Run ROLL without"
        " `transfer_backend`, and save the batch again."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load(path)


def arpo_batch() -> dict[str, Tensor]:
    """Whole sequences as responses: a padded prompt, a round, an image, a round."""
    ids = torch.tensor([[0, 1, 5, 6, 9, 7], [1, 2, 8, 0, 0, 0]])
    mask = torch.tensor([[0, 0, 1, 1, 0, 1], [0, 0, 1, 0, 0, 0]])
    return {
        "input_ids": ids,
        "responses": ids.clone(),
        "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]),
        "response_mask": mask,
        "position_ids": torch.arange(6).repeat(2, 4, 1),
        "rollout_log_probs": -1.0 * mask,
        "old_log_probs": -2.0 * mask,
    }


@pytest.mark.parametrize("width", [6, 5])
def test_responses_that_are_whole_sequences_are_divided(
    width: int, tmp_path: Path
) -> None:
    # In ARPO `responses` are `input_ids`, and what is computed of them may lack the
    # first token, which nothing predicts.
    fields = arpo_batch()
    for name in ("rollout_log_probs", "old_log_probs"):
        fields[name] = fields[name][:, 6 - width :]

    batch = load(write(tmp_path / "a.pkl", fields, {"uid": ["g", "g"]}))

    assert batch.prompt_ids.tolist() == [1, 1, 2]
    assert batch.prompt_offsets.tolist() == [0, 1, 3]
    assert batch.require_ids().tolist() == [5, 6, 9, 7, 8]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]
    assert batch.log_probs("old").tolist() == [-2, -2, 0, -2, -2]
    assert batch.log_probs("rollout").tolist() == [-1, -1, 0, -1, -1]
    assert batch.position_ids is not None
    assert [tuple(ids.shape) for ids in batch.position_ids] == [(4, 5), (4, 3)]
    assert batch.meta["prompts"] == (
        "`responses` are whole sequences, as `input_ids`: the prompt is what precedes"
        " the first token that the model wrote"
    )


def test_responses_as_wide_as_other_input_ids_are_no_whole_sequences(
    tmp_path: Path,
) -> None:
    fields = small_batch()
    fields["input_ids"] = fields["responses"] + 1
    del fields["attention_mask"]

    batch = load(write(tmp_path / "a.pkl", fields))

    assert "prompts" not in batch.meta
    assert batch.prompt_ids.tolist() == [1, 2, 0, 3]
