"""SQL over the step files gives what the frames hold, and changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import struct
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.runs import Run
from rounddiag.runs import sql as sql_module
from tests.runs.step_folders import scaled_batch, write_steps

pytestmark = pytest.mark.skipif(
    find_spec("duckdb") is None, reason="DuckDB is not installed"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    for step, name in enumerate(("healthy", "image_window")):
        shutil.copy(f"sample_data/{name}.parquet", folder / f"step_{step}.parquet")
    return rd.open_run(folder)


@pytest.mark.parametrize("name", ["it's", "both \" and '", "a\\b", "a\nb", "[1]{x}*"])
def test_the_folder_can_have_any_name(tmp_path: Path, name: str) -> None:
    run = rd.open_run(write_steps(tmp_path / name, {1: 1, 2: 1}))
    found = run.query("SELECT step, count(*) AS num FROM tokens GROUP BY 1 ORDER BY 1")
    assert found.to_numpy().tolist() == [[1, 8], [2, 8]]


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1, 2: 1}))
    run.summary()
    (tmp_path / "step_2.parquet").unlink()
    with pytest.raises(LoadError, match=r"step_2\.parquet.*`run\.refresh\(\)` looks"):
        run.query("SELECT count(*) FROM tokens")


def test_a_file_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1, 2: 1}))
    assert run.query("SELECT count(*) AS n FROM tokens")["n"].tolist() == [16]
    file = tmp_path / "step_2.parquet"
    size, time = file.stat().st_size, file.stat().st_mtime_ns
    file.touch()
    with pytest.raises(LoadError) as raised:
        run.query("SELECT count(*) FROM tokens WHERE step = 1")
    assert str(raised.value) == (
        f"{file}: expected the file as it was when the run looked for it; found one"
        " that was written at another time. `run.refresh()` looks for the files again."
    )
    rd.save(scaled_batch(2)[:1], file)
    os.utime(file, ns=(time, time))
    now = file.stat().st_size
    found = f"found one of {now:,} bytes instead of {size:,}"
    with pytest.raises(LoadError, match=found):
        run.query("SELECT count(*) FROM tokens")
    # What the statement got wrong is said only of files that are as they were.
    with pytest.raises(LoadError, match=found):
        run.query("SELECT nothing FROM tokens")
    run.refresh()
    assert run.query("SELECT count(*) AS n FROM tokens")["n"].tolist() == [11]


def test_a_file_that_is_replaced_while_it_is_queried_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1, 2: 1}))
    check = sql_module._check_statement

    def checked(*args: Any) -> None:
        check(*args)
        write_steps(tmp_path, {2: 4})

    monkeypatch.setattr(sql_module, "_check_statement", checked)
    with pytest.raises(LoadError, match=r"step_2\.parquet: expected the file as it"):
        run.query("SELECT max(diff) FROM tokens")


def test_tokens_are_those_of_the_token_frame(run: Run) -> None:
    found = run.query(
        "SELECT sample, round, token, diff, position FROM tokens WHERE step = 1"
        " ORDER BY ALL"
    )
    expected = rd.token_frame(run.batch(1), ["position"])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)


def test_rounds_are_those_of_the_round_frame(run: Run) -> None:
    columns = "sample, round, start, num_tokens, mean_abs_diff, mean_diff, max_abs_diff"
    found = run.query(
        f"SELECT {columns} FROM rounds WHERE step = 0 ORDER BY ALL"  # noqa: S608 a literal
    )
    expected = rd.round_frame(run.batch(0))[columns.split(", ")]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-5)


def test_samples_and_steps_join(run: Run) -> None:
    found = run.query(
        "SELECT step, count(*) AS num, avg(samples.reward) AS mean,"
        " any_value(steps.reward) AS reward, sum(samples.num_tokens) AS tokens"
        " FROM samples JOIN steps USING (step) GROUP BY step ORDER BY step"
    )
    assert found["num"].tolist() == [64, 64]
    assert found["mean"].tolist() == found["reward"].tolist() == [0.359375, 0.359375]
    assert found["tokens"].tolist() == [4143, 4143]


def test_ranks_are_counted_on_and_round_ids_split(tmp_path: Path) -> None:
    for rank in (0, 1):
        batch = scaled_batch(4)
        ids = torch.tensor([[0, 7, 7, 7, 7, 7]] * 3).reshape(-1)
        batch = replace(batch, round_ids=ids)
        rd.save(batch, tmp_path / f"step_4_rank_{rank}.parquet")
    run = rd.open_run(tmp_path)
    found = run.query("SELECT sample, round, num_tokens FROM rounds ORDER BY ALL")
    expected = rd.round_frame(run.batch(4))[["sample", "round", "num_tokens"]]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert found["sample"].max() == 5


def test_a_footer_that_says_false_things_of_its_columns_is_not_believed(
    tmp_path: Path,
) -> None:
    path = write_steps(tmp_path, {1: 1}) / "step_1.parquet"
    stored = pq.read_table(path)
    rewards = pa.array([0.25, 0.5, 11.25], pa.float32())
    pq.write_table(stored.append_column("reward", rewards), path, compression="none")
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    largest, false = (struct.pack("<f", value) for value in (11.25, 0.5))
    assert largest in whole[footer:]
    path.write_bytes(whole[:footer] + whole[footer:].replace(largest, false))
    run = rd.open_run(tmp_path)
    for sql in (
        "SELECT sample FROM samples WHERE reward > 1",
        "SELECT sample FROM rows ORDER BY reward DESC LIMIT 1",
        "SELECT sample FROM samples WHERE reward = (SELECT max(reward) FROM samples)",
    ):
        assert run.query(sql)["sample"].tolist() == [2]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("DROP VIEW tokens", "1 statement of kind DROP"),
        ("SELECT 1; SELECT 2", "2 statements of kind SELECT, SELECT"),
        ("COPY samples TO 'samples.csv'", "1 statement of kind COPY"),
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM tokens", "nothing"),
        ("SELECT * FROM read_text('README.md')", "disabled"),
        ("SELECT * FROM glob('*')", "disabled"),
    ],
)
def test_what_does_not_only_read_the_run_is_an_error(
    run: Run, sql: str, found: str
) -> None:
    with pytest.raises(RounddiagError, match=f"`sql`: .*{re.escape(found)}"):
        run.query(sql)


def test_a_query_without_end_is_interrupted(run: Run) -> None:
    message = r"`sql`: expected a query that ends within 0\.2 s; found one that was st"
    with pytest.raises(RounddiagError, match=message):
        run.query("SELECT count(*) FROM range(10000000000000)", time_limit=0.2)
    assert run.query("SELECT 1 AS one", time_limit=0.2)["one"].tolist() == [1]


def test_files_of_a_framework_are_to_be_converted(tmp_path: Path) -> None:
    shutil.copy("sample_data/image_window_verl.pkl", tmp_path / "step_3.pkl")
    with pytest.raises(LoadError, match=r"Convert them with `rounddiag\.ingest"):
        rd.open_run(tmp_path).query("SELECT 1")


def test_a_url_is_copied_first(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(write_steps(tmp_path, {1: 1, 2: 4})), "/sql", recursive=True)
    try:
        found = rd.open_run("memory://sql").query("SELECT count(*) AS n FROM tokens")
        assert found["n"].tolist() == [16]
    finally:
        memory.rm("/sql", recursive=True)


@pytest.mark.parametrize("read", ["batch", "summary", "query"])
def test_a_file_of_another_size_behind_a_url_is_an_error(
    tmp_path: Path, read: str
) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(write_steps(tmp_path, {1: 1})), "/replaced", recursive=True)
    try:
        run = rd.open_run("memory://replaced")
        if read == "query":
            run.summary()  # else the step would be left out
        size = memory.size("/replaced/step_1.parquet")
        memory.pipe("/replaced/step_1.parquet", b"PAR1")
        found = rf"step_1\.parquet: .* found one of 4 bytes instead of {size:,}"
        calls: dict[str, Callable[[], object]] = {
            "batch": lambda: run.batch(1),
            "summary": run.summary,
            "query": lambda: run.query("SELECT 1"),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the step that is left out
            with pytest.raises(LoadError, match=found):
                calls[read]()
    finally:
        memory.rm("/replaced", recursive=True)


def test_a_name_with_the_signs_of_a_glob_is_that_file_alone(tmp_path: Path) -> None:
    for name, step in (("run[1]", 1), ("run1", 2)):
        write_steps(tmp_path / name, {step: 1})
    found = rd.open_run(tmp_path / "run[1]").query("SELECT DISTINCT step FROM tokens")
    assert found["step"].tolist() == [1]


def test_where_no_step_can_be_read_the_error_is_that_of_a_step(tmp_path: Path) -> None:
    path = write_steps(tmp_path, {1: 1.0}) / "step_1.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["response_mask"]), path)
    run = rd.open_run(tmp_path)
    message = r"step_1\.parquet.*response_mask"
    with pytest.raises(LoadError, match=message), pytest.warns(match="1 step"):
        run.query("SELECT 1")
    with pytest.raises(RounddiagError, match="one SELECT statement; found 7"):
        rd.open_run("sample_data/healthy.parquet").query(7)  # type: ignore[arg-type]
