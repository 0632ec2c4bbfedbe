"""Files of verl and of what is built on it, read without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rounddiag as rd
from rounddiag.capture import save_batch
from rounddiag.loaders import load
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.source import Source, Span
from rounddiag.loaders.torch_file import read_torch
from tests.loaders.facts import has
from tests.loaders.verl_writer import (
    Consolidated,
    borrowed_names,
    roll_pickled,
    small_batch,
    write,
)

DATA = Path(__file__).parents[2] / "data"
PADDED = sorted(DATA.glob("*_default.pkl")) + sorted(DATA.glob("*_numpy.pkl"))
NESTED = sorted(DATA.glob("*-nested.pkl"))
JAGGED = sorted(DATA.glob("*_v1-jagged.pt"))


@pytest.mark.parametrize("path", PADDED, ids=lambda path: path.stem)
def test_a_data_proto_says_where_its_numbers_come_from(path: Path) -> None:
    batch = load(path)
    assert batch.step == 7
    assert {k: v for k, v in batch.meta.items() if k != "checks"} == {
        "source": str(path),
        "mask_source": "response_mask",
        "input_ids": "equal",
        "old_log_probs_source": "a pass of its own",
        "sampling": {"temperature": 1.0, "top_p": 0.95},
        "left_out": ["raw_prompt", "timing"],
    }
    # Patch i of a sample has the value i / 16; CLIP's scale makes 0.5 a colour of
    # 0.5 * 0.26862954 + 0.48145466 = 0.6158 of 255.
    colors = [shot.image().getpixel((0, 0)) for shot in batch.images[0]]
    assert colors == [(123, 117, 104), (157, 150, 139)]
    assert [[shot.round for shot in row] for row in batch.images] == [[0, 1], [0], []]


@pytest.mark.parametrize("path", [*PADDED, *NESTED, *JAGGED], ids=lambda p: p.stem)
def test_position_ids_keep_their_four_rows_and_lose_their_padding(path: Path) -> None:
    places = load(path).position_ids
    assert [tuple(ids.shape) for ids in places] == [(4, 15), (4, 10), (4, 5)]
    assert places[2].tolist() == [[0, 1, 2, 3, 4]] * 4


@pytest.mark.slow
def test_no_framework_and_no_pandas_is_imported() -> None:
    code = (
        "import sys, rounddiag\n"
        "batch = rounddiag.load(sys.argv[1])\n"
        "names = {'verl', 'ray', 'tensordict', 'pandas', 'pyarrow', 'pickle5'}\n"
        "print(sorted(names & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code, str(PADDED[0])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def parts(path: Path) -> tuple[Node, Node]:
    """Return the DataProto and its TensorDict, as they stand in the file."""
    whole = Source.of_file(path).whole()
    with whole.open() as stream:
        proto = PickleMachine(whole, stream).run()
    assert isinstance(proto, Node)
    assert isinstance(proto.state, tuple)
    assert isinstance(proto.state[0], Span)
    batch = read_torch(proto.state[0])
    assert isinstance(batch, Node)
    return proto, batch


def test_a_file_of_the_writer_has_the_parts_of_a_real_one(tmp_path: Path) -> None:
    columns = {"multi_modal_inputs": [{"pixel_values": torch.zeros(99)}, {}]}
    ours = parts(write(tmp_path / "a.pkl", small_batch(), columns))
    theirs = parts(DATA / "verl-0.9.1_tensordict-0.10.0_default.pkl")
    for mine, real in zip(ours, theirs, strict=True):
        assert mine.name == real.name
        assert [type(arg) for arg in mine.args] == [type(arg) for arg in real.args]
    assert described(ours[1]) == described(theirs[1])
    found, wanted = pixels(ours[0]), pixels(theirs[0])
    numpy_1 = str(found[0]).replace("numpy.core", "numpy._core")
    assert (numpy_1, *found[1:]) == wanted


def described(batch: Node) -> tuple[object, ...]:
    """Return how `responses` is described; its numbers are the file's own."""
    metadata, storage = batch.args
    assert isinstance(metadata, dict)
    assert isinstance(storage, Node)
    leaf = metadata["leaves"]["responses"]
    return metadata["cls"], storage.name, leaf[0], [type(value) for value in leaf]


def pixels(proto: Node) -> tuple[object, ...]:
    """Return the names on the way to the pixels of the first sample."""
    assert isinstance(proto.state, tuple)
    column = proto.state[1]["multi_modal_inputs"]
    tensor = column.state[4][0]["pixel_values"]
    return column.name, tensor.name, tensor.args[0].name, type(tensor.args[0].args[0])


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
    hint = "rows are steps of trajectories: load(..., sample_by='traj_uid') joins them"
    has(load(path), {"meta.rows": hint, "rounds.sample": [0, 1, 2, 3]})
    expected = {
        "rounds.sample": [0, 0, 1, 1],
        "rounds.round": [0, 1, 0, 1],
        "response_ids": [11, 12, 16, 17, 18, 14, 19, 20],
        "old_log_probs": [-1, -2, 0, -5, -6, -3, 0, -7],
        "group_ids": ["g", "g"],
        "rewards": [1.0, 0.5],
        "round.row_reward": [0.0, 1.0, 0.0, 0.5],
        "sample.episode_rewards": [1.0, 0.5],
        "round.is_action_valid": [1, 1, 0, 1],
    }
    has(load(path, sample_by="traj_uid", order_by="row"), expected)


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
    assert "sample_by=['episode_ids', 'trajectory_ids']" in load(path).meta["rows"]
    expected = {
        "sample_ids": ["task_0_task_solver", "task_1_task_solver"],
        "round.row": [2, 0, 1, 3],
        "round.is_last_step": [False, True, False, True],
        "sample.step_nums": [2, 2],
    }
    has(load(path, sample_by=["episode_ids", "trajectory_ids"]), expected)


def test_rows_of_agent_lightning_are_joined_in_the_order_of_turns() -> None:
    path = DATA / "agentlightning-0.3.0_transition.pkl"
    assert "sample_by='rollout_id_list'" in load(path).meta["rows"]
    expected = {
        "sample_ids": ["rollout-b", "rollout-a"],
        "group_ids": ["task", "task"],
        "response_ids": [5, 6, 7, 3, 8, 9, 9],
        "rounds.num_tokens": [3, 1, 2],
        "round.turn_index_list": [0, 1, 0],
        "sample.is_drop_mask": [False, False],
        "rewards": [0.0, 1.0],
        "meta.rows": "3 rows joined into 2 samples by `rollout_id_list`, ordered by"
        " `turn_index_list`",
    }
    has(load(path, sample_by="rollout_id_list"), expected)


def test_a_data_proto_of_skyrl_agent_is_one_of_verl(tmp_path: Path) -> None:
    # It writes another file before the training engine has computed anything.
    (tmp_path / "current_batch_after_gen.pkl").write_bytes(b"")
    path = write(tmp_path / "current_batch_after_step.pkl", small_batch())
    has(load(tmp_path), {"meta.source": str(path), "meta.rows": None})


def test_scores_of_another_shape_are_left_out_and_named(tmp_path: Path) -> None:
    """verl's on-policy distillation has several per token of prompt and response."""
    fields = small_batch()
    num_samples, width = fields["attention_mask"].shape
    teacher = torch.full((num_samples, width, 3), -1.0)
    ref = fields["old_log_probs"] - 1
    tensors = {**fields, "teacher_logprobs": teacher, "ref_log_prob": ref}
    save_batch(tensors, tmp_path / "saved.parquet")
    for path in (write(tmp_path / "a.pkl", tensors), tmp_path / "saved.parquet"):
        batch = load(path)
        assert list(batch.scores) == ["ref"]
        assert batch.meta["left_out"] == ["teacher_logprobs"]


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
    expected = {
        "rounds.sample": [0, 0, 1],
        "response_ids": [5, 6, 7, 8, 9],
        "rollout_log_probs": [-1, 0, -2, -3, -4],
        "old_log_probs": [-1.5, -9, -2.5, -3, -4.5],
        "prompt_ids": [1, 2, 3, 4],
        "group_ids": ["g", "g"],
        "step": 7,
        "meta.old_log_probs_source": "a pass of its own",
    }
    has(load(path), expected)
    joined = {"response_ids": [8, 9, 1, 2, 5, 6, 7], "rounds.num_tokens": [2, 1, 1]}
    has(load(path, sample_by="traj_id"), joined)


def test_log_probs_that_roll_did_not_compute_are_absent_or_not_measurable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "step_000003.pkl"
    rollouts = {k: v for k, v in roll_batch().items() if k != "old_log_probs"}
    path.write_bytes(roll_pickled(rollouts))
    expected = {"old_log_probs": None, "rollout_log_probs": [-1, 0, -2, -3, -4]}
    has(load(path), expected)
    path.write_bytes(roll_pickled({**rollouts, "old_log_probs": torch.zeros(2, 4)}))
    assert rd.diagnose(load(path)).reason == (
        "`old_log_probs` are 0 at all 4 generated tokens: none was computed, or saved"
    )


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
    expected = {
        "prompt_ids": [1, 1, 2],
        "prompt_offsets": [0, 1, 3],
        "response_ids": [5, 6, 9, 7, 8],
        "rounds.num_tokens": [2, 1, 1],
        "old_log_probs": [-2, -2, 0, -2, -2],
        "rollout_log_probs": [-1, -1, 0, -1, -1],
        "meta.prompts": "`responses` are whole sequences, as `input_ids`: the prompt is"
        " what precedes the first token that the model wrote",
    }
    has(batch, expected)
    assert [tuple(ids.shape) for ids in batch.position_ids] == [(4, 5), (4, 3)]


def test_responses_as_wide_as_other_input_ids_are_no_whole_sequences(
    tmp_path: Path,
) -> None:
    fields = small_batch()
    fields["input_ids"] = fields["responses"] + 1
    del fields["attention_mask"]
    batch = load(write(tmp_path / "a.pkl", fields))
    has(batch, {"meta.prompts": None, "prompt_ids": [1, 2, 0, 3]})


def payload(path: Path, *, is_empty: bool = True, **others: Any) -> Path:
    """Write a V1 payload; the mask of its second row is empty, or the small batch's."""
    fields = small_batch()
    if is_empty:
        fields["response_mask"] = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0]])
    with borrowed_names():
        torch.save({"tensordict": Consolidated(fields), **others}, path)
    return path


# The facts of a payload, and what the batch has.
PAYLOADS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "padding by its tag": (
        {
            "tags": [{"is_padding": False, "status": "done"}, {"is_padding": True}],
            "keys": ["g_x_0_0", "g_x_1_2"],
        },
        {
            "meta.num_dropped_rows": 1,
            "sample_ids": ["g_x_0_0"],
            "group_ids": ["g_x"],
            "sample.status": ["done"],
            "sample.session": ["0"],
        },
    ),
    "padding by its group and empty mask": (
        {"keys": ["g0_0_0", "pad0a1b_0_0"]},
        {"meta.num_dropped_rows": 1, "group_ids": ["g0"]},
    ),
    "tokens in a row of that group": (
        {"keys": ["pad0_0_0", "g0_0_0"]},
        {"meta.num_dropped_rows": None, "sample_ids": ["pad0_0_0", "g0_0_0"]},
    ),
    "another group": (
        {"keys": ["a", "pad"]},
        {"meta.num_dropped_rows": None, "sample_ids": ["a", "pad"]},
    ),
    "the temperature of the queue": (
        {"global_steps": 7, "extra_info": {"temperature": 0.7}},
        {"step": 7, "meta.sampling": {"temperature": 0.7}, "meta.left_out": None},
    ),
    "the temperature of the payload": (
        {"global_steps": 7, "temperature": 0.7},
        {"step": 7, "meta.sampling": {"temperature": 0.7}},
    ),
    "outputs of one session in their order": (
        {"is_empty": False, "keys": ["g_x_0_10", "g_x_0_9"]},
        {
            "sample_ids": ["g_x_0"],
            "group_ids": ["g_x"],
            "sample.session": ["0"],
            "response_ids": [9, 1, 2, 5, 6, 7, 8],
            "rounds.num_tokens": [1, 2, 1],
            "round.row": [1, 0, 0],
            "round.index": ["9", "10", "10"],
            "round.row_id": ["g_x_0_9", "g_x_0_10", "g_x_0_10"],
            "meta.rows": "2 rows joined into 1 sample by `uid`, `session`, ordered by"
            " `index`",
        },
    ),
}


@pytest.mark.parametrize(("facts", "expected"), PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_of_the_v1_trainer(
    facts: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    has(load(payload(tmp_path / "a.pt", **facts)), expected)
