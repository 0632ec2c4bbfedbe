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

from rounddiag import Batch, round_frame, token_frame
from rounddiag.batch.trajectories import join_rows
from rounddiag.core import sample_frame
from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from rounddiag.loaders.assembly.concatenation import concatenate
from rounddiag.vision import EncodedScreenshot
from tests.batches import padded


def column(*values: object) -> np.ndarray[Any, Any]:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


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
            "sample_columns": {"traj_uid": column("a", "a", "b")}
            | {"when": np.array([1, 0, 0])},
            **others,
        },
    )


def test_rows_of_a_trajectory_become_one_sample() -> None:
    batch = join_rows(steps(), "traj_uid", "row")

    # Padding is gone, and the second row's prompt stands before its response.
    assert batch.offsets.tolist() == [0, 7, 10]
    assert batch.lengths.tolist() == [7, 3]
    assert batch.require_ids().tolist() == [0, 1, 93, 94, 3, 4, 5, 6, 7, 8]
    assert batch.response_mask.tolist() == [1, 1, 0, 0, 1, 0, 1, 1, 0, 0]
    assert batch.log_probs("old").tolist() == [-1, -2, 0, 0, -3, 7, -4, -5, 7, 7]
    assert batch.log_probs("rollout").tolist() == [-1, -1, 0, 0, *[-1] * 6]
    assert batch.prompt_ids.tolist() == [91, 95]
    assert batch.rounds.sample.tolist() == [0, 0, 0, 1]
    assert batch.rounds.round.tolist() == [0, 1, 2, 0]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1, 1]
    assert batch.sample_ids == ("a", "b")
    assert batch.sample_columns["num_rows"].tolist() == [2, 1]
    assert batch.meta["rows"] == (
        "3 rows joined into 2 samples by `traj_uid`, in the order of the file"
    )


def test_a_column_puts_the_steps_in_order() -> None:
    batch = join_rows(steps(), "traj_uid", "when")

    assert batch.prompt_ids.tolist() == [93, 94, 95]
    assert batch.require_ids().tolist() == [3, 4, 5, 91, 0, 1, 6, 7, 8]
    assert batch.round_columns["row"].tolist() == [1, 1, 0, 2]
    assert batch.meta["rows"].endswith("by `traj_uid`, ordered by `when`")


def test_known_columns_put_steps_in_order_by_themselves() -> None:
    for name, order in (
        ("turn_index_list", np.array([1, 0, 0])),
        ("step_ids", np.array(["t_step10", "t_step9", "t_step0"])),
    ):
        columns = {"traj_uid": column("a", "a", "b"), name: order}
        batch = join_rows(steps(sample_columns=columns), "traj_uid")
        assert batch.round_columns["row"].tolist() == [1, 1, 0, 2]
        assert batch.meta["rows"].endswith(f"ordered by `{name}`")


USUAL = (
    *("turn", "turn_idx", "turn_id", "turn_index", "step_index", "step_id"),
    *("env_step", "round", "round_idx"),
)


def joined_by(name: str, values: np.ndarray[Any, Any]) -> Batch:
    columns = {"traj_uid": column("a", "a", "b"), name: values}
    return join_rows(steps(sample_columns=columns), "traj_uid")


@pytest.mark.parametrize("values", [np.array([1, 0, 0]), column(7.0, 2.0, 2.0)])
@pytest.mark.parametrize("name", USUAL)
def test_usual_names_count_the_steps_too(
    name: str, values: np.ndarray[Any, Any]
) -> None:
    batch = joined_by(name, values)
    assert batch.prompt_ids.tolist() == [93, 94, 95]
    assert batch.meta["rows"].endswith(f"ordered by `{name}`")


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 1, 0]),
        np.array([1.5, 0.5, 0.0]),
        np.array([True, False, False]),
        column("1", "0", "0"),
        column(1, None, 0),
    ],
)
def test_a_usual_name_that_holds_no_numbers_of_steps_is_passed_over(
    values: np.ndarray[Any, Any],
) -> None:
    batch = joined_by("turn", values)
    assert batch.num_samples == 3
    assert "): `turn` cannot be their numbers, and" in batch.meta["rows"]


def test_the_step_of_the_trainer_counts_no_steps() -> None:
    batch = joined_by("step", np.array([40, 40, 40]))
    assert "): no known column counts the steps, and" in batch.meta["rows"]


@pytest.mark.parametrize("order_by", [None, "step_idx"])
def test_two_rows_of_one_step_are_an_error(order_by: str | None) -> None:
    order = {"step_idx": np.array([0, 4, 4])}
    columns = {"traj_uid": column("a", "a", "a"), **order}
    message = (
        "`step_idx`: expected one row per step of each trajectory; found rows 1 and 2,"
        " both step 4 of trajectory 'a'. Remove one of them, or pass the columns that"
        " distinguish the trajectories as `sample_by`."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        join_rows(steps(sample_columns=columns), "traj_uid", order_by)


def test_every_generated_token_can_still_say_its_row() -> None:
    batch = join_rows(steps(), "traj_uid", "row")

    frame = token_frame(batch, ["row", "when", "traj_uid"])

    assert frame["row"].tolist() == [0, 0, 1, 1, 2]
    assert frame["when"].tolist() == [1, 1, 0, 0, 0]
    assert frame["traj_uid"].tolist() == ["a"] * 4 + ["b"]
    assert frame["diff"].tolist() == [0, -1, -2, -3, -4]


def test_rounds_of_two_rows_never_become_one() -> None:
    empty = replace(steps(), prompt_ids=None, prompt_offsets=None)
    whole = replace(empty, response_mask=torch.tensor([1, 1, 0, 1, 1, 1, 1, 0, 0]))

    batch = join_rows(whole, "traj_uid", "row")

    assert batch.response_mask.tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert batch.rounds.num_tokens.tolist() == [2, 3, 1]
    assert batch.prompt_ids is None


def test_round_ids_of_a_row_go_on_dividing() -> None:
    ids = torch.tensor([[1, 2, 2], [2, 2, 2], [2, 2, 2]])

    batch = join_rows(steps(round_ids=ids), "traj_uid", "row")

    assert batch.rounds.num_tokens.tolist() == [1, 1, 1, 1, 1]


def test_what_nobody_computed_for_an_observation_is_nan_and_log_probs_are_0() -> None:
    threes = torch.full((3, 3), 3.0)

    batch = join_rows(
        steps(entropy=threes, advantages=threes, scores={"ref": threes}),
        "traj_uid",
        "row",
    )

    assert batch.entropy.isnan().tolist() == [False, False, True, True, *[False] * 6]
    assert torch.equal(batch.advantages.isnan(), batch.entropy.isnan())
    assert batch.scores["ref"].tolist() == [3, 3, 0, 0, *[3] * 6]


def test_masks_and_whole_numbers_are_0_there() -> None:
    ones = torch.ones(3, 3, dtype=torch.int64)

    batch = join_rows(steps(loss_mask=ones, advantages=ones), "traj_uid", "row")

    assert batch.loss_mask.tolist() == [1, 1, 0, 0, *[1] * 6]
    assert batch.advantages.tolist() == [1, 1, 0, 0, *[1] * 6]


def test_rewards_are_those_of_the_last_row_and_each_rows_stand_with_its_rounds() -> (
    None
):
    batch = join_rows(steps(rewards=torch.tensor([0.5, 2.0, 9.0])), "traj_uid", "row")

    assert batch.rewards.tolist() == [2, 9]
    assert batch.round_columns["row_reward"].tolist() == [0.5, 2, 2, 9]
    assert sample_frame(batch)["reward"].tolist() == [2, 9]


def test_rewards_that_agree_are_no_column_of_rounds() -> None:
    nan = float("nan")
    batch = join_rows(steps(rewards=torch.tensor([nan, nan, 9.0])), "traj_uid", "row")

    assert "row_reward" not in batch.round_columns


def test_columns_that_agree_are_of_samples_and_others_of_rounds() -> None:
    columns = {
        "traj_uid": column("a", "a", "b"),
        "task": column("x", "x", None),
        "valid": np.array([True, False, True]),
    }
    batch = join_rows(
        steps(sample_columns=columns, sample_ids=("r0", "r1", "r2")), "traj_uid", "row"
    )

    assert batch.sample_columns["task"].tolist() == ["x", None]
    assert "valid" not in batch.sample_columns
    assert batch.round_columns["valid"].tolist() == [True, False, False, True]
    assert batch.round_columns["row_id"].tolist() == ["r0", "r1", "r1", "r2"]


def test_groups_stay_where_all_rows_of_each_trajectory_agree() -> None:
    same = join_rows(steps(group_ids=("g", "g", "h")), "traj_uid", "row")
    other = join_rows(steps(group_ids=("g", "h", "h")), "traj_uid", "row")

    assert same.group_ids == ("g", "h")
    assert other.group_ids is None
    assert other.round_columns["row_group_id"].tolist() == ["g", "h", "h", "h"]


def test_columns_of_rounds_go_with_their_rounds() -> None:
    columns = {
        "sample": np.array([1, 0]),
        "round": np.array([1, 0]),
        "version": np.array([11, 0]),
    }
    frame = round_frame(join_rows(steps(round_columns=columns), "traj_uid", "row"))

    assert frame["version"].fillna(-1).tolist() == [0, -1, 11, -1]


def test_rows_of_rounds_that_the_mask_does_not_have_are_counted() -> None:
    # The first has a round more than the mask, and two rows are of one round.
    columns = {
        "sample": np.array([0, 0, 1, 1, 2]),
        "round": np.array([0, 1, 0, 0, 0]),
        "version": np.array([10, 11, 12, 13, 14]),
    }
    batch = join_rows(steps(round_columns=columns), "traj_uid", "row")

    found = round_frame(batch)["version"]
    assert found.fillna(-1).tolist() == [10, 13, -1, 14]
    assert batch.meta["left_out"] == ["2 rows of `round_columns`"]


def test_rows_of_rounds_alone_are_all_counted() -> None:
    columns = {"sample": np.array([0]), "round": np.array([7])}

    batch = join_rows(steps(round_columns=columns), "traj_uid", "row")

    assert batch.meta["left_out"] == ["1 row of `round_columns`"]


def test_images_count_their_rounds_and_positions_on() -> None:
    shots = [
        EncodedScreenshot(data=b"a", round=0, position=-1),
        EncodedScreenshot(data=b"b", round=1, position=1),
        EncodedScreenshot(data=b"c", round=None),
    ]
    batch = join_rows(
        steps(images=((shots[0], shots[2]), tuple(shots), (shots[2],))),
        "traj_uid",
        "row",
    )

    assert batch.images is not None
    places = [[(shot.round, shot.position) for shot in row] for row in batch.images]
    # Of the second row: -1 is the last token of its prompt, at position 3. Its third
    # picture is known from the first row.
    assert places == [[(0, -1), (1, None), (1, 3), (2, 5)], [(None, None)]]


def test_the_samplers_own_ids_are_joined_alike() -> None:
    own = tuple(torch.tensor(ids) for ids in ([1], [2, 3], [4]))

    batch = join_rows(steps(rollout_ids=own), "traj_uid", "row")

    assert batch.rollout_ids is not None
    assert [ids.tolist() for ids in batch.rollout_ids] == [[1, 93, 94, 2, 3], [4]]


def test_position_ids_are_those_of_the_rows_end_to_end() -> None:
    # Prompts of 1, 2 and 1 tokens, responses of 2, 3 and 3.
    places = tuple(torch.arange(size).expand(3, size) for size in (3, 5, 4))

    batch = join_rows(steps(position_ids=places), "traj_uid", "row")

    assert batch.position_ids is not None
    assert [ids[2].tolist() for ids in batch.position_ids] == [
        [0, 1, 2, 0, 1, 2, 3, 4],
        [0, 1, 2, 3],
    ]
    assert "left_out" not in batch.meta


def test_position_ids_that_do_not_fit_are_left_out_and_named() -> None:
    places = tuple(torch.arange(size) for size in (3, 4, 4))

    batch = join_rows(steps(position_ids=places), "traj_uid", "row")

    assert batch.position_ids is None
    assert batch.meta["left_out"] == ["position_ids"]


def test_a_column_that_would_hide_the_keys_is_left_out_and_named() -> None:
    columns = {"traj_uid": column("a", "a", "b"), "round": np.array([8, 9, 9])}

    batch = join_rows(steps(sample_columns=columns), "traj_uid", "row")

    assert batch.round_columns["round"].tolist() == [0, 1, 2, 0]
    assert batch.meta["left_out"] == ["round"]


def test_facts_about_screenshots_speak_of_rows() -> None:
    facts = ["sample 1: its grids are odd", "and 3 more samples"]
    batch = join_rows(steps(meta={"screenshots": facts}), "traj_uid", "row")

    assert batch.meta["screenshots"] == [
        "row 1: its grids are odd",
        "and 3 more samples",
    ]


def test_several_columns_name_a_trajectory_together() -> None:
    columns = {"episode": column("e", "e", "f"), "agent": np.array([0, 1, 0])}
    batch = steps(sample_columns=columns, group_ids=("g", "g", "g"))

    assert join_rows(batch, ["episode", "agent"], "row").sample_ids == (
        "e_0",
        "e_1",
        "f_0",
    )
    assert join_rows(batch, ("uid", "agent"), "row").sample_ids == ("g_0", "g_1")


def test_rows_without_a_name_stay_alone() -> None:
    columns = {"traj_uid": column(None, None, "a"), "x": np.array([np.nan, np.nan, 1])}
    batch = steps(sample_columns=columns)

    assert join_rows(batch, "traj_uid", "row").sample_ids == ("row 0", "row 1", "a")
    assert join_rows(batch, "x", "row").num_samples == 3


def test_an_unknown_column_is_an_error_that_lists_those_there_are() -> None:
    message = (
        "`{}`: expected the name of a column with one value per row; found 'trajuid',"
        " where there are traj_uid, when. Pass one of them."
    )
    for option, names in (
        ("sample_by", ("trajuid",)),
        ("order_by", ("traj_uid", "trajuid")),
    ):
        expected = f"^{re.escape(message.format(option))}$"
        with pytest.raises(LoadError, match=expected):
            join_rows(steps(), *names)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ((1, None, 2), "1, None, 2"),
        (("a", "b", None), "'a', 'b', None"),
        ((1.0, float("nan"), 2.0), "1.0, nan, 2.0"),
        ((1, "a", 2), "1, 'a', 2"),
    ],
)
def test_what_cannot_be_put_in_order_is_an_error(values: Any, found: str) -> None:
    columns = {"traj_uid": column("a", "a", "b"), "when": column(*values)}
    message = (
        "`order_by`: expected numbers, or texts, in all rows of the column 'when';"
        f' found {found}. Pass another column, or "row" for the order of the file.'
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        join_rows(steps(sample_columns=columns), "traj_uid", "when")


def test_a_known_column_that_has_no_order_is_passed_over() -> None:
    columns = {
        "traj_uid": column("a", "a", "b"),
        "turn_index_list": column(1, None, 0),
        "step_idx": np.array([1, 0, 0]),
    }
    batch = join_rows(steps(sample_columns=columns), "traj_uid")

    assert batch.meta["rows"].endswith("ordered by `step_idx`")


def test_names_that_read_alike_when_joined_are_two_trajectories() -> None:
    columns = {"a": column("x_y", "x", "z"), "b": column("z", "y_z", "z")}

    batch = join_rows(steps(sample_columns=columns), ["a", "b"])

    assert batch.sample_ids == ("x_y_z", "x_y_z", "z_z")


def test_a_batch_without_rows_or_tokens_is_joined_too() -> None:
    assert len(join_rows(steps()[:0], "traj_uid")) == 0
    nothing = replace(steps(), response_mask=torch.zeros(9))
    assert join_rows(nothing, "traj_uid", "row").num_rounds == 0


def test_load_joins_or_says_how(tmp_path: Path) -> None:
    save(steps(), tmp_path / "a.parquet")

    rows = load(tmp_path / "a.parquet")
    joined = load(tmp_path / "a.parquet", sample_by="traj_uid", order_by="when")

    assert rows.num_samples == 3
    assert rows.meta["rows"] == (
        "rows are steps of trajectories: load(..., sample_by='traj_uid') joins them"
    )
    assert joined.num_samples == 2
    save(joined, tmp_path / "b.parquet")
    again = load(tmp_path / "b.parquet")
    assert token_frame(again, ["row"]).equals(token_frame(joined, ["row"]))


def test_one_row_a_trajectory_needs_no_hint(tmp_path: Path) -> None:
    save(steps()[1:], tmp_path / "a.parquet")
    assert "rows" not in load(tmp_path / "a.parquet").meta


def test_order_by_alone_is_an_error(tmp_path: Path) -> None:
    save(steps(), tmp_path / "a.parquet")
    message = (
        "`order_by`: expected it together with `sample_by`; found it alone."
        " Pass the columns that identify a trajectory as `sample_by`."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load(tmp_path / "a.parquet", order_by="when")


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
