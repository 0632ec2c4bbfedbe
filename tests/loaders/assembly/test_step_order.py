"""The order of rows that are steps, where no column counts them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rounddiag import Batch, check, round_summary
from rounddiag.batch.trajectories import join_rows
from rounddiag.loaders import load, save
from rounddiag.vision import EncodedScreenshot

NO_ORDER = (
    "rows are steps that were not joined (`order_by` names the column with the step"
    ' number; `order_by="row"` is the order of the file): no known column counts the'
    " steps, and their prompts do not prove an order; save it in the trainer, in"
    ' verl-agent by `batch.non_tensor_batch["step_idx"] = np.full(batch_size, _step)`'
)


def rows_of(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    diffs: Sequence[float],
    names: Sequence[str],
    **others: Any,
) -> Batch:
    """One row a step, whose diff is the same at all tokens."""
    texts = [torch.tensor(row) for row in responses]
    return Batch.from_rows(
        response_ids=texts,
        response_mask=[torch.ones(len(row)) for row in texts],
        rollout_log_probs=[torch.full((len(row),), -1.0) for row in texts],
        old_log_probs=[
            torch.full((len(row),), diff - 1)
            for row, diff in zip(texts, diffs, strict=True)
        ],
        prompt_ids=[torch.tensor(row) for row in prompts],
        sample_columns={"traj_uid": np.array([*names], dtype=object)},
        **others,
    )


def shuffled_chat(order: Sequence[int], *, window: int = 99) -> Batch:
    """Five steps of one chat; the prompt of each has the last turns before it."""
    turns = [[100 * step + k for k in range(5)] + [2] for step in range(5)]
    past = [turns[max(0, i - window) : i] for i in range(5)]
    prompts = [[1, *chain.from_iterable(past[i]), 70 + i] for i in range(5)]
    diffs = [0.0, 0.1, 0.2, 0.3, 0.4]
    pick: Any = lambda values: [values[i] for i in order]  # noqa: E731
    return rows_of(pick(prompts), pick(turns), pick(diffs), ["a"] * 5)


def means(batch: Batch) -> list[float]:
    return [round(x, 6) for x in round_summary(batch)["mean_abs_diff"]]


def test_rows_of_a_balanced_batch_are_put_in_the_order_of_their_prompts() -> None:
    for window in (99, 1):  # the whole history, or the last turn alone
        batch = join_rows(shuffled_chat([3, 0, 4, 2, 1], window=window), "traj_uid")

        assert means(batch) == [0.0, 0.1, 0.2, 0.3, 0.4]
        assert batch.meta["rows"] == (
            "5 rows joined into 1 sample by `traj_uid`, ordered by their prompts, which"
            " contain the step before"
        )
        assert batch.round_columns["row"].tolist() == [1, 4, 3, 0, 2]


def test_a_prompt_that_goes_on_from_another_is_later_whatever_was_written() -> None:
    # The template dropped the thoughts: no prompt has a whole response.
    prompts = [[1, 5, 7, 6, 8, 9], [1, 5], [1, 5, 7, 6]]
    responses = [[9], [7, 7], [8, 8]]
    batch = join_rows(rows_of(prompts, responses, [0.2, 0, 0.1], "aaa"), "traj_uid")

    assert means(batch) == [0.0, 0.1, 0.2]


def test_screenshots_and_lengths_of_prompts_prove_no_order() -> None:
    shot = EncodedScreenshot(data=b"")
    images = tuple((shot,) * count for count in range(1, 8))
    prompts = [[i, *[9] * size] for i, size in enumerate((1, 4, 9, 10, 12, 13, 20))]
    responses = [[50 + i] for i in range(7)]
    rows = rows_of(prompts, responses, [0.0] * 7, "a" * 7, images=images)

    assert join_rows(rows, "traj_uid").meta["rows"] == NO_ORDER


def test_rows_whose_order_nothing_proves_get_no_round_numbers(tmp_path: Path) -> None:
    # Every step sees the task and its own screen alone.
    prompts = [[1, 30], [1, 10], [1, 20]]
    rows = rows_of(prompts, [[3], [4], [5]], [0.3, 0.1, 0.2], "aaa")
    save(rows, tmp_path / "a.parquet")

    batch = load(tmp_path / "a.parquet", sample_by="traj_uid")

    assert batch.num_samples == 3
    assert batch.meta["rounds"] == "unknown"
    assert batch.meta["rows"] == NO_ORDER
    failed = {one.name: one.detail for one in check(batch).failed}
    assert failed == {
        "the rounds are known": f"every row counts its rounds from 0: {NO_ORDER}"
    }
    joined = load(tmp_path / "a.parquet", sample_by="traj_uid", order_by="row")
    assert means(joined) == [0.3, 0.1, 0.2]
    assert joined.meta["rows"].endswith("in the order of the file")
    assert check(joined).failed == ()
    assert joined.meta["contexts"] == "0 appended, 2 rewritten, 1 of them at round 1"


def test_a_response_that_two_steps_share_orders_nothing() -> None:
    # Both say the same; each prompt quotes it, which proves no order.
    same = [8, 8, 7, 7, 6, 6, 2]
    prompts = [[1, *same, 5], [2, *same, 5]]
    batch = join_rows(rows_of(prompts, [same, same], [0, 0.1], "aa"), "traj_uid")
    assert batch.meta["rows"] == NO_ORDER


def test_short_responses_stand_in_prompts_by_chance() -> None:
    prompts, responses = [[1, 5, 6, 7], [1, 9, 9]], [[4, 4, 4], [5, 6, 7]]
    batch = join_rows(rows_of(prompts, responses, [0, 0.1], "aa"), "traj_uid")
    assert batch.meta["rows"] == NO_ORDER


def test_rows_that_load_leaves_apart_say_that_their_rounds_are_unknown(
    tmp_path: Path,
) -> None:
    save(shuffled_chat([1, 0, 2, 3, 4]), tmp_path / "a.parquet")

    batch = load(tmp_path / "a.parquet")

    hint = "rows are steps of trajectories: load(..., sample_by='traj_uid') joins them"
    assert [(one.name, one.detail) for one in check(batch).failed] == [
        ("the rounds are known", f"every row counts its rounds from 0: {hint}")
    ]
