"""Rows that are steps, joined into samples."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch, token_frame
from rounddiag.batch.trajectories import join_rows
from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from rounddiag.loaders.assembly.concatenation import concatenate
from rounddiag.vision import EncodedScreenshot
from tests.batches import padded
from tests.loaders.facts import has
from tests.loaders.values import objects


def steps(**others: Any) -> Batch:
    """Three rows: the second and the first are steps of trajectory a, in that order."""
    return padded(
        [[1, 1, 0], [1, 0, 1], [1, 0, 0]],
        [[-1.0, -2.0, 7.0], [-3.0, 7.0, -4.0], [-5.0, 7.0, 7.0]],
        torch.full((3, 3), -1.0),
        **{
            "lengths": torch.tensor([2, 3, 3]),
            "prompt_ids": torch.tensor([[0, 91], [93, 94], [0, 95]]),
            "prompt_mask": torch.tensor([[0, 1], [1, 1], [0, 1]]),
            "sample_columns": {"traj_uid": objects("a", "a", "b")}
            | {"when": np.array([1, 0, 0])},
            **others,
        },
    )


THREES, ONES = torch.full((3, 3), 3.0), torch.ones(3, 3, dtype=torch.int64)
NAN = float("nan")
SHOTS = [
    EncodedScreenshot(data=b"a", round=0, position=-1),
    EncodedScreenshot(data=b"b", round=1, position=1),
    EncodedScreenshot(data=b"c", round=None),
]
NAMES = {"traj_uid": objects("a", "a", "b")}


def of_rounds(*rows: tuple[int, int, int]) -> dict[str, Any]:
    names = ("sample", "round", "version")
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return {"round_columns": {name: np.array(values) for name, values in columns}}


# What the rows have in addition, and the samples in the order of the file.
JOINED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rows of two trajectories": (
        {},
        # Padding is gone, and the second row's prompt stands before its response.
        {
            "offsets": [0, 7, 10],
            "lengths": [7, 3],
            "response_ids": [0, 1, 93, 94, 3, 4, 5, 6, 7, 8],
            "response_mask": [1, 1, 0, 0, 1, 0, 1, 1, 0, 0],
            "old_log_probs": [-1, -2, 0, 0, -3, 7, -4, -5, 7, 7],
            "rollout_log_probs": [-1, -1, 0, 0, *[-1] * 6],
            "prompt_ids": [91, 95],
            "rounds.sample": [0, 0, 0, 1],
            "rounds.round": [0, 1, 2, 0],
            "rounds.num_tokens": [2, 1, 1, 1],
            "sample_ids": ["a", "b"],
            "sample.num_rows": [2, 1],
            "meta.rows": "3 rows joined into 2 samples by `traj_uid`, in the order of"
            " the file",
        },
    ),
    "round ids go on dividing": (
        {"round_ids": torch.tensor([[1, 2, 2], [2, 2, 2], [2, 2, 2]])},
        {"rounds.num_tokens": [1, 1, 1, 1, 1]},
    ),
    "what nobody computed for an observation is NaN, a log-prob 0": (
        {"entropy": THREES, "advantages": THREES, "scores": {"ref": THREES}},
        {
            "entropy": [3, 3, None, None, *[3] * 6],
            "advantages": [3, 3, None, None, *[3] * 6],
            "score.ref": [3, 3, 0, 0, *[3] * 6],
        },
    ),
    "masks and whole numbers are 0 there": (
        {"loss_mask": ONES, "advantages": ONES},
        {
            "loss_mask": [1, 1, 0, 0, *[1] * 6],
            "advantages": [1, 1, 0, 0, *[1] * 6],
        },
    ),
    "rewards are those of the last row": (
        {"rewards": torch.tensor([0.5, 2.0, 9.0])},
        {"rewards": [2, 9], "round.row_reward": [0.5, 2, 2, 9]},
    ),
    "rewards that agree are no column of rounds": (
        {"rewards": torch.tensor([NAN, NAN, 9.0])},
        {"round.row_reward": None},
    ),
    "columns that agree are of samples, others of rounds": (
        {
            "sample_columns": {
                **NAMES,
                "task": objects("x", "x", None),
                "valid": np.array([True, False, True]),
            },
            "sample_ids": ("r0", "r1", "r2"),
        },
        {
            "sample.task": ["x", None],
            "sample.valid": None,
            "round.valid": [True, False, False, True],
            "round.row_id": ["r0", "r1", "r1", "r2"],
        },
    ),
    "groups of rows that agree": (
        {"group_ids": ("g", "g", "h")},
        {"group_ids": ["g", "h"]},
    ),
    "groups of rows that do not": (
        {"group_ids": ("g", "h", "h")},
        {"group_ids": None, "round.row_group_id": ["g", "h", "h", "h"]},
    ),
    "columns of rounds go with their rounds": (
        of_rounds((1, 1, 11), (0, 0, 0)),
        {"round.round": [0, 1, 2, 0], "round.version": [0, None, 11, None]},
    ),
    # The first has a round more than the mask, and two rows are of one round.
    "rows of rounds that the mask does not have": (
        of_rounds((0, 0, 10), (0, 1, 11), (1, 0, 12), (1, 0, 13), (2, 0, 14)),
        {
            "round.version": [10, 13, None, 14],
            "meta.left_out": ["2 rows of `round_columns`"],
        },
    ),
    "rows of such rounds alone": (
        of_rounds((0, 7, 1)),
        {"meta.left_out": ["1 row of `round_columns`"]},
    ),
    "ids of the sampler": (
        {"rollout_ids": tuple(torch.tensor(ids) for ids in ([1], [2, 3], [4]))},
        {"rollout_ids": [[1, 93, 94, 2, 3], [4]]},
    ),
    # Prompts of 1, 2 and 1 tokens, responses of 2, 3 and 3.
    "position ids end to end": (
        {
            "position_ids": tuple(
                torch.arange(size).expand(2, size) for size in (3, 5, 4)
            )
        },
        {
            "position_ids": [[[0, 1, 2, 0, 1, 2, 3, 4]] * 2, [[0, 1, 2, 3]] * 2],
            "meta.left_out": None,
        },
    ),
    "position ids that do not fit": (
        {"position_ids": tuple(torch.arange(size) for size in (3, 4, 4))},
        {"position_ids": None, "meta.left_out": ["position_ids"]},
    ),
    "a column that would hide the keys": (
        {"sample_columns": {**NAMES, "round": np.array([8, 9, 9])}},
        {"round.round": [0, 1, 2, 0], "meta.left_out": ["round"]},
    ),
    "facts about screenshots speak of rows": (
        {
            "meta": {
                "screenshots": ["sample 1: its grids are odd", "and 3 more samples"]
            }
        },
        {"meta.screenshots": ["row 1: its grids are odd", "and 3 more samples"]},
    ),
}


@pytest.mark.parametrize(("others", "expected"), JOINED.values(), ids=JOINED)
def test_rows_are_joined(others: dict[str, Any], expected: dict[str, Any]) -> None:
    has(join_rows(steps(**others), "traj_uid", "row"), expected)


USUAL = (
    *("turn", "turn_idx", "turn_id", "turn_index", "step_index", "step_id"),
    *("env_step", "round", "round_idx"),
)
# A column that puts the second row first, and of those that do not, what is said.
ORDERS: list[tuple[str, np.ndarray[Any, Any]]] = [
    ("turn_index_list", np.array([1, 0, 0])),
    ("step_ids", np.array(["t_step10", "t_step9", "t_step0"])),
    *((name, np.array([1, 0, 0])) for name in USUAL),
    *((name, objects(7.0, 2.0, 2.0)) for name in USUAL),
]
NO_ORDERS: list[tuple[str, np.ndarray[Any, Any], str]] = [
    *(
        ("turn", values, "): `turn` cannot be their numbers, and")
        for values in (
            np.array([1, 1, 0]),
            np.array([1.5, 0.5, 0.0]),
            np.array([True, False, False]),
            objects("1", "0", "0"),
            objects(1, None, 0),
        )
    ),
    # The step of the trainer counts no steps.
    ("step", np.array([40, 40, 40]), "): no known column counts the steps, and"),
]


@pytest.mark.parametrize(("name", "values"), ORDERS)
def test_known_and_usual_names_count_the_steps(
    name: str, values: np.ndarray[Any, Any]
) -> None:
    batch = join_rows(steps(sample_columns={**NAMES, name: values}), "traj_uid")
    has(batch, {"prompt_ids": [93, 94, 95], "round.row": [1, 1, 0, 2]})
    assert batch.meta["rows"].endswith(f"ordered by `{name}`")


@pytest.mark.parametrize(("name", "values", "said"), NO_ORDERS)
def test_what_holds_no_numbers_of_steps_is_passed_over(
    name: str, values: np.ndarray[Any, Any], said: str
) -> None:
    columns = {**NAMES, name: values}
    batch = join_rows(steps(sample_columns=columns), "traj_uid")
    assert batch.num_samples == 3
    assert said in batch.meta["rows"]
    columns["step_idx"] = np.array([1, 0, 0])
    batch = join_rows(steps(sample_columns=columns), "traj_uid")
    assert batch.meta["rows"].endswith("ordered by `step_idx`")


def test_a_column_that_is_named_puts_the_steps_in_order() -> None:
    batch = join_rows(steps(), "traj_uid", "when")
    has(batch, {"response_ids": [3, 4, 5, 91, 0, 1, 6, 7, 8]})
    assert batch.meta["rows"].endswith("by `traj_uid`, ordered by `when`")
    frame = token_frame(batch, ["row", "when", "traj_uid"])
    assert frame["row"].tolist() == [1, 1, 0, 0, 2]
    assert frame["when"].tolist() == [0, 0, 1, 1, 0]
    assert frame["traj_uid"].tolist() == ["a"] * 4 + ["b"]
    assert frame["diff"].tolist() == [-2, -3, 0, -1, -4]


def test_rounds_of_two_rows_never_become_one() -> None:
    empty = replace(steps(), prompt_ids=None, prompt_offsets=None)
    whole = replace(empty, response_mask=torch.tensor([1, 1, 0, 1, 1, 1, 1, 0, 0]))
    expected = {
        "response_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "rounds.num_tokens": [2, 3, 1],
        "prompt_ids": None,
    }
    has(join_rows(whole, "traj_uid", "row"), expected)


def test_images_count_their_rounds_and_positions_on() -> None:
    images = ((SHOTS[0], SHOTS[2]), tuple(SHOTS), (SHOTS[2],))
    batch = join_rows(steps(images=images), "traj_uid", "row")
    places = [[(shot.round, shot.position) for shot in row] for row in batch.images]
    # Of the second row: -1 is the last token of its prompt, at position 3. Its third
    # picture is known from the first row.
    assert places == [[(0, -1), (1, None), (1, 3), (2, 5)], [(None, None)]]


def test_one_or_several_columns_name_a_trajectory() -> None:
    columns = {"episode": objects("e", "e", "f"), "agent": np.array([0, 1, 0])}
    columns |= {"a": objects("x_y", "x", "z"), "b": objects("z", "y_z", "z")}
    columns |= {"some": objects(None, None, "a"), "x": np.array([NAN, NAN, 1])}
    batch = steps(sample_columns=columns, group_ids=("g", "g", "g"))
    for by, names in [
        (["episode", "agent"], ["e_0", "e_1", "f_0"]),
        (("uid", "agent"), ["g_0", "g_1"]),
        (["a", "b"], ["x_y_z", "x_y_z", "z_z"]),  # alike when joined, and two
        ("some", ["row 0", "row 1", "a"]),  # rows without a name stay alone
    ]:
        has(join_rows(batch, by, "row"), {"sample_ids": names})
    assert join_rows(batch, "x", "row").num_samples == 3


TWO_STEPS = {"traj_uid": objects("a", "a", "a"), "step_idx": np.array([0, 4, 4])}
NO_NAME = "expected the name of a column with one value per row; found 'trajuid', where"
REFUSED: dict[str, tuple[dict[str, Any], tuple[Any, ...], str]] = {
    "two rows of one step": (
        TWO_STEPS,
        ("traj_uid",),
        "`step_idx`: expected one row per step of each trajectory; found rows 1 and 2,"
        " both step 4 of trajectory 'a'.",
    ),
    "two rows of one step that is named": (
        TWO_STEPS,
        ("traj_uid", "step_idx"),
        "`step_idx`: expected one row per step of each trajectory; found rows 1 and 2,",
    ),
    "an unknown name": (
        NAMES,
        ("trajuid",),
        f"`sample_by`: {NO_NAME} there are traj_u",
    ),
    "an unknown order": (NAMES, ("traj_uid", "trajuid"), f"`order_by`: {NO_NAME}"),
    **{
        f"an order of {found}": (
            {**NAMES, "when": objects(*values)},
            ("traj_uid", "when"),
            "`order_by`: expected numbers, or texts, in all rows of the column 'when';"
            f" found {found}. Pass another column",
        )
        for values, found in list[tuple[tuple[Any, ...], str]](
            [
                ((1, None, 2), "1, None, 2"),
                (("a", "b", None), "'a', 'b', None"),
                ((1.0, NAN, 2.0), "1.0, nan, 2.0"),
                ((1, "a", 2), "1, 'a', 2"),
            ]
        )
    },
}


@pytest.mark.parametrize(("columns", "by", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_joined_is_an_error(
    columns: dict[str, Any], by: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(LoadError, match=f"^{re.escape(message)}"):
        join_rows(steps(sample_columns=columns), *by)


def test_a_batch_without_rows_or_tokens_is_joined_too() -> None:
    assert len(join_rows(steps()[:0], "traj_uid")) == 0
    nothing = replace(steps(), response_mask=torch.zeros(9))
    assert join_rows(nothing, "traj_uid", "row").num_rounds == 0


def test_load_joins_or_says_how(tmp_path: Path) -> None:
    save(steps(), tmp_path / "a.parquet")
    hint = "rows are steps of trajectories: load(..., sample_by='traj_uid') joins them"
    has(load(tmp_path / "a.parquet"), {"num_samples": 3, "meta.rows": hint})
    joined = load(tmp_path / "a.parquet", sample_by="traj_uid", order_by="when")
    assert joined.num_samples == 2
    save(joined, tmp_path / "b.parquet")
    again = load(tmp_path / "b.parquet")
    assert token_frame(again, ["row"]).equals(token_frame(joined, ["row"]))
    with pytest.raises(LoadError, match="`order_by`: expected it together with `samp"):
        load(tmp_path / "a.parquet", order_by="when")
    save(steps()[1:], tmp_path / "c.parquet")  # one row a trajectory needs no hint
    assert "rows" not in load(tmp_path / "c.parquet").meta


@st.composite
def rows_of_steps(draw: st.DrawFn) -> tuple[Batch, list[int]]:
    """Rows with random masks and prompts, and an order in which to put them."""
    count = draw(st.integers(0, 6))
    masks = [draw(st.lists(st.integers(0, 1), max_size=5)) for _ in range(count)]
    prompts = [draw(st.integers(0, 3)) for _ in range(count)]
    names = [draw(st.integers(0, 2)) for _ in range(count)]
    numbers = iter(range(1, 100))
    old = [[-float(next(numbers)) for _ in mask] for mask in masks]
    batch = Batch.from_rows(
        response_ids=[torch.zeros(len(mask), dtype=torch.int64) for mask in masks],
        response_mask=[torch.tensor(mask, dtype=torch.int64) for mask in masks],
        old_log_probs=[torch.tensor(row) for row in old],
        rollout_log_probs=[torch.zeros(len(mask)) for mask in masks],
        prompt_ids=[torch.ones(size, dtype=torch.int64) for size in prompts],
        sample_columns={
            "name": np.array(names, dtype=np.int64),
            "when": np.arange(count),
        },
    )
    return batch, draw(st.permutations(range(count)))


@given(rows_of_steps())
def test_joining_keeps_each_token_and_the_order_in_a_trajectory(
    drawn: tuple[Batch, list[int]],
) -> None:
    batch, _ = drawn
    joined = join_rows(batch, "name", "when")

    before = token_frame(batch, ["name"])
    after = token_frame(joined, ["name", "row"])

    for name in {*before["name"]}:
        mine = after[after["name"] == name]
        assert (
            mine["diff"].tolist() == before.loc[before["name"] == name, "diff"].tolist()
        )
        assert mine["row"].is_monotonic_increasing
    assert len(after) == len(before)
    assert joined.num_rounds == batch.num_rounds
    rows = after.groupby(["sample", "round"])["row"].nunique()
    assert (rows == 1).all()


@given(rows_of_steps())
def test_rows_in_another_order_make_the_same_trajectories(
    drawn: tuple[Batch, list[int]],
) -> None:
    batch, order = drawn
    parts = [batch[row] for row in order]
    shuffled = concatenate(parts) if parts else batch
    one, other = (join_rows(rows, "name", "when") for rows in (batch, shuffled))

    def found(joined: Batch) -> dict[object, list[float]]:
        frame = token_frame(joined, ["name"])
        return {k: v.tolist() for k, v in frame.groupby("name")["diff"]}

    assert found(one) == found(other)
