"""Weight versions within a row: of samples' ranges, and of their rounds."""

from __future__ import annotations

import numpy as np
import pytest

from rounddiag.checks.rows import ONE_VERSION
from tests.checks.chats import PASSED, came_to, chat, untestable


def sampled(**columns: list[object]) -> tuple[str, str, tuple[int, ...]]:
    arrays = {name: np.array(values, dtype=object) for name, values in columns.items()}
    return came_to(ONE_VERSION, chat([[1], [2]], [[1], [1]], sample_columns=arrays))


def by_round(*versions: object) -> tuple[str, str, tuple[int, ...]]:
    """Check two samples of two rounds each."""
    columns = {
        "sample": np.array([0, 0, 1, 1]),
        "round": np.array([0, 1, 0, 1]),
        "weight_version": np.array(versions, dtype=object),
    }
    batch = chat([[1, 2, 3]] * 2, [[1, 0, 1]] * 2, round_columns=columns)
    return came_to(ONE_VERSION, batch)


def test_a_range_of_steps_is_mixed() -> None:
    assert sampled(min_global_steps=[7, 7], max_global_steps=[7, 8]) == (
        "failed",
        "1 sample written by more than one version, which is not always a fault"
        " (`min_global_steps`"
        " and `max_global_steps`): sample 1 by 7, 8",
        (1,),
    )


def test_one_step_is_not() -> None:
    assert sampled(min_global_steps=[7, 8], max_global_steps=[7, 8]) == PASSED


@pytest.mark.parametrize(("low", "high"), [("lowest", "highest"), ("min", "max")])
def test_ranges_of_versions_have_several_names(low: str, high: str) -> None:
    columns: dict[str, list[object]] = {
        f"{low}_weight_version": ["2", "4"],
        f"{high}_weight_version": ["6", "4"],
    }
    assert sampled(**columns)[2] == (0,)


def test_rounds_of_several_versions_are_mixed() -> None:
    assert by_round("v1", "v1", "v1", "v2\n") == (
        "failed",
        "1 sample written by more than one version, which is not always a fault"
        r" (`weight_version`):"
        r" sample 1 by v1, v2\n",
        (1,),
    )


def test_samples_may_differ_from_each_other() -> None:
    assert by_round("v1", "v1", "v2", "v2") == PASSED


def test_a_version_that_is_not_known_is_none() -> None:
    assert by_round("v1", None, float("nan"), "v2") == PASSED


def test_rounds_of_samples_that_are_not_there_are_not_looked_at() -> None:
    columns = {
        "sample": np.array([-1, 9, 9]),
        "round": np.array([0, 0, 1]),
        "weight_version": np.array(["v1", "v1", "v2"]),
    }
    batch = chat([[1]], [[1]], round_columns=columns)
    assert came_to(ONE_VERSION, batch) == PASSED


def test_without_columns_it_is_not_testable() -> None:
    needed = (
        "needs `weight_version` in `round_columns`, or `min_global_steps` and"
        " `max_global_steps` in `sample_columns`"
    )
    assert sampled() == untestable(needed)
    assert sampled(min_global_steps=[1, 2]) == untestable(needed)
    assert sampled(min_length=[1, 2], max_length=[3, 4]) == untestable(needed)
