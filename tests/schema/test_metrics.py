"""Names of metrics, and of the columns that have their means."""

from __future__ import annotations

import re

import pytest

import rounddiag as rd
from rounddiag import stats
from rounddiag.errors import FrameError
from rounddiag.schema import (
    CELLS,
    MEAN_COLUMNS,
    METRICS,
    ROUNDS,
    SUMMARY,
    TableSchema,
    mean_column,
    metric_name,
)
from tests.batches import hand_batch


def test_a_metric_is_found_by_its_name_and_by_its_column() -> None:
    assert [metric_name(name) for name in METRICS] == [*METRICS]
    assert [metric_name(mean_column(name)) for name in METRICS] == [*METRICS]


def names(table: TableSchema) -> set[str]:
    return {column.name for column in table.columns}


def test_columns_of_means_are_columns_of_frames() -> None:
    assert {*MEAN_COLUMNS.values()} <= names(ROUNDS)


def test_tables_follow_from_the_metrics() -> None:
    means = {metric.mean_column.name: metric for metric in METRICS.values()}
    in_summary = {name for name, metric in means.items() if metric.in_summary}
    assert names(SUMMARY) & {*means} == in_summary
    assert {*means} <= names(CELLS)
    assert names(ROUNDS) & {*means} == {"mean_abs_diff", "mean_diff", "k3"}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("k_3", "Did you mean 'k3'?"),
        ("ABS_DIFF", "Did you mean 'abs_diff'?"),
        ("max_abs_diff", "Did you mean 'abs_diff'?"),
        ("reward", "Did you mean 'round_reward'?"),
        ("?!", "Name one of these."),
        (["k3"], "Name one of these."),
    ],
)
def test_the_nearest_name_is_suggested(name: str, advice: str) -> None:
    message = f"`metric`: expected one of {sorted(METRICS)}; found {name!r}. {advice}"
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        metric_name(name)


@pytest.mark.parametrize("metric", ["abs_diff", "diff"])
def test_either_name_gives_the_same(metric: str) -> None:
    batch, column = hand_batch(), mean_column(metric)
    for x in ("round", "token", "probability"):
        means = stats.means_by(batch, x, metric=column)
        assert means.equals(stats.means_by(batch, x, metric=metric))
    for plot in (rd.plot_conditional, rd.plot_positions):
        assert plot(batch, metric=column) == plot(batch, metric=metric)
    assert rd.plot_compare([batch, batch], metric=column) == rd.plot_compare(
        [batch, batch], metric=metric
    )
