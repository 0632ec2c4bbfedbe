"""Many columns, entries and keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rounddiag import Batch, plot_compare, plot_rounds, round_summary
from rounddiag.loaders import load
from rounddiag.loaders import plain_columns as columns
from rounddiag.loaders.json_lines import JsonLines, Record
from rounddiag.loaders.plain_columns import with_round_records
from rounddiag.stats import compare_batches
from rounddiag.vision import Action, parse_action
from rounddiag.widgets.images import describe_actions
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.serialization import serialize
from rounddiag.widgets.session import Session
from tests.figures.plots import words
from tests.loaders.wide_files import WRITERS, of_other_keys, of_rounds, write_lines

COUNT = 300
WIDE = [name for name in WRITERS if not name.startswith(("other_keys", "rounds"))]


@pytest.mark.parametrize("name", WIDE)
def test_every_column_of_a_wide_file_is_read(name: str, tmp_path: Path) -> None:
    WRITERS[name](COUNT, tmp_path / name)
    columns = load(tmp_path / name).sample_columns
    assert [columns[f"fact_{i}"].tolist() for i in (0, 299)] == [[0, 1], [299, 300]]


def test_keys_of_single_rows_are_counted_where_they_are_most_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_ALLOWED_CELLS", 0)
    path = tmp_path / "a.jsonl"
    write_lines(of_other_keys(400), path)  # 2,000 values: 64 * 2,000 / 400 columns
    batch = load(path)
    assert len(batch.sample_columns) == 320 - 4
    assert batch.meta["left_out"] == ["84 columns with few values"]


def test_each_row_of_a_table_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def record(lines: JsonLines, number: int, line: bytes) -> Record:
        read.append(number)
        return parse(lines, number, line)

    parse = JsonLines._record
    monkeypatch.setattr(JsonLines, "_record", record)
    write_lines(of_other_keys(3), tmp_path / "a.jsonl")
    assert load(tmp_path / "a.jsonl").num_samples == 3
    assert read == [1, 1, 2, 3]  # the first names the format


def test_entries_of_other_keys_are_counted_where_they_are_most_of_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entries of dictionaries, and records of rounds, become columns as keys do."""
    monkeypatch.setattr(columns, "_ALLOWED_CELLS", 0)
    monkeypatch.setattr(columns, "_MAX_CELLS_PER_VALUE", 2)
    rows = [
        {**row, "extra_fields": {"all": 7, f"one_{i}": i}}
        for i, row in enumerate(of_other_keys(4))
    ]
    batch = load(rows, columns={"response_ids": "response_ids"})
    assert batch.sample_columns["all"].tolist() == [7] * 4
    assert [n for n in batch.sample_columns if n.startswith("one_")] == [
        *("one_0", "one_1", "one_2")
    ]
    assert "1 column with few values" in batch.meta["left_out"]
    calls = [[{"all": 7, f"one_{i}": i}] for i in range(4)]
    found = with_round_records(batch, calls)
    names = ["sample", "round", "all", "one_0", "one_1", "one_2"]
    assert [*found.round_columns] == names
    assert "1 column with few values" in found.meta["left_out"]


@pytest.fixture(scope="module")
def long() -> Batch:
    """One sample of 20,000 rounds."""
    return of_rounds(20_000)


@pytest.mark.slow
def test_many_rounds_are_summarised_and_drawn(long: Batch) -> None:
    batch = long
    assert len(round_summary(batch)) == 20_000
    figure = plot_rounds(batch)
    assert max(len(trace.x) for trace in figure.data) <= 2001
    assert "drawn: one round in 10" in words(figure)


@pytest.mark.slow
def test_many_rounds_are_compared(long: Batch) -> None:
    same = replace(long, old_log_probs=long.rollout_log_probs)
    found = compare_batches([same, long])
    assert len(found) == 20_000
    # A hundredth of the log-probs, which are -0.01, -0.03, ..., -0.99 again and again.
    assert found["difference"][:3].tolist() == pytest.approx(
        [1e-4, 3e-4, 5e-4], rel=1e-4
    )
    assert found["difference"].mean() == pytest.approx(0.005, rel=1e-4)
    figure = plot_compare([same, long])
    assert "drawn: one round in 10" in words(figure)


def test_only_rounds_of_enough_samples_have_an_interval_of_differences(
    long: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def interval(*sums: Any, **_: bool) -> tuple[float, float, float]:
        calls.append(sums)
        return 0.0, 0.0, 0.0

    monkeypatch.setattr("rounddiag.stats.comparison.difference_interval", interval)
    assert compare_batches([long, long])["ci_low"].isna().all()
    assert calls == []
    own = load("sample_data/healthy.parquet")
    found = compare_batches([own, own])
    # Samples of 7 of the 16 groups at least reach 7 of its 8 rounds.
    assert found["ci_low"].notna().sum() == len(calls) == 7
    num_groups = [weights.shape[1] for _, _, weights in calls]
    assert (num_groups[0], min(num_groups)) == (16, 7)


@pytest.mark.slow
def test_many_rounds_are_explored(long: Batch) -> None:
    handle = RequestHandler(Session(long, {}), lambda: None)
    overview: Any = handle("overview", {"theme": "light"})
    assert overview["head"]["num_rounds"] == 20_000
    reply: Any = handle("trajectory", {"sample": 0})
    plain: Any = serialize(reply)[0]
    assert len(plain["rounds"]) == 20_000
    assert len(plain["gaps"]) == 20_000


def test_an_action_that_many_rounds_repeat_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = []

    def read(text: str) -> Action:
        texts.append(text)
        return parse_action(text)

    monkeypatch.setattr("rounddiag.widgets.images.parse_action", read)
    found = describe_actions(["click(3, 4)", "wait()"] * 1000, [None] * 2000)
    assert [action["kind"] for action in found[:3]] == ["click", "wait", "click"]
    assert texts == ["click(3, 4)", "wait()", ""]  # no round has a recorded action
