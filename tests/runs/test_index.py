"""The index gives what the files hold, and never anything older."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import LoadError
from rounddiag.runs import Run, step_tables
from rounddiag.runs import index as index_module
from rounddiag.runs import run as run_module
from rounddiag.schema import METRICS, RUN, STEPS
from tests.runs.step_folders import MEANS, write_steps


def means(run: Run) -> list[float]:
    return [round(mean, 6) for mean in run.summary()["mean"]]


def expected(*factors: float) -> list[float]:
    return [round(factor * mean, 6) for factor in factors for mean in MEANS]


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> None:
        message = "a step file was read"
        raise AssertionError(message)

    monkeypatch.setattr(run_module, "measure_step", read)


def test_the_summary_has_a_row_per_step_and_round(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {0: 1, 10: 2}))
    summary = run.summary()
    assert summary[["step", "round"]].to_numpy().tolist() == [
        [0, 0],
        [0, 1],
        [10, 0],
        [10, 1],
    ]
    assert [*summary] == [column.name for column in RUN.columns]
    assert summary.dtypes.astype(str).to_dict() == {
        column.name: column.dtype for column in RUN.columns
    }
    assert means(run) == expected(1, 2)
    of_file = rd.round_summary(rd.load(tmp_path / "step_10.parquet"))
    found = summary[summary["step"] == 10].drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, of_file)


def test_the_second_call_reads_the_index_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rd.open_run(write_steps(tmp_path, {0: 1, 10: 2})).summary()
    forbid_reading(monkeypatch)
    again = rd.open_run(tmp_path).summary()
    pd.testing.assert_frame_equal(again, first)


def test_new_and_rewritten_files_are_read_again(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {0: 1, 10: 2}))
    assert means(run) == expected(1, 2)
    write_steps(tmp_path, {10: 8, 20: 4})
    assert means(rd.open_run(tmp_path)) == expected(1, 8, 4)
    (tmp_path / "step_0.parquet").unlink()
    assert means(rd.open_run(tmp_path)) == expected(8, 4)


def test_a_file_that_is_replaced_while_the_run_is_open(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {0: 1, 10: 2}))
    old = (tmp_path / "step_10.parquet").stat()
    write_steps(tmp_path, {10: 8})
    with pytest.warns(
        UserWarning, match=r"step_10\.parquet: .* as it was.*found one of .*refresh"
    ):
        assert means(run) == expected(1)
    assert run.refresh() == (10,)
    assert means(run) == expected(1, 8)
    # What was read in between is not taken for the rows of the old file.
    write_steps(tmp_path, {10: 2})
    os.utime(tmp_path / "step_10.parquet", ns=(old.st_atime_ns, old.st_mtime_ns))
    assert means(rd.open_run(tmp_path)) == expected(1, 2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the indexes of this test alone."""
    monkeypatch.setenv("ROUNDDIAG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def index_in(cache: Path) -> Path:
    """The file of the only index."""
    (path,) = cache.iterdir()
    return path


def rewrite(change: Callable[[bytes], bytes], path: Path) -> None:
    path.write_bytes(change(path.read_bytes()))


def forge(tables: dict[str, bytes], path: Path) -> None:
    """Write these tables with a digest that is right."""
    index_module._write(path, tables)


def put_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def put_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "a folder": put_a_folder,
    "a pipe": put_a_pipe,
    "empty": partial(rewrite, lambda _: b""),
    "garbage": partial(rewrite, lambda _: b"PAR1 and nothing else"),
    "cut off": partial(rewrite, lambda data: data[:-20]),
    "one byte": partial(rewrite, lambda data: data[:-1] + b"?"),
    "no tables": partial(forge, {}),
    "tables of nothing": partial(forge, {"rounds": b"", "steps": b"PAR1"}),
    "no head": partial(rewrite, lambda _: index_module._digest(b"[") + b"["),
}


@pytest.mark.parametrize("damage", [*DAMAGES])
@pytest.mark.filterwarnings("ignore:.*the index cannot be written")
def test_an_index_that_was_not_written_so_is_made_again(
    tmp_path: Path, cache: Path, damage: str
) -> None:
    folder = write_steps(tmp_path / "run", {0: 1, 1: 2})
    steps = rd.open_run(folder).step_summary()
    DAMAGES[damage](index_in(cache))
    run = rd.open_run(folder)
    assert means(run) == expected(1, 2)
    pd.testing.assert_frame_equal(run.step_summary(), steps)


def other_of_size(folder: Path, step: int, size: int) -> float:
    """Write another file of a step, of this size; return its factor."""
    for factor in range(3, 100):
        path = write_steps(folder, {step: factor}) / f"step_{step}.parquet"
        if path.stat().st_size == size:
            return factor
    raise AssertionError(size)


def test_what_lies_beside_the_files_is_neither_read_nor_written(
    tmp_path: Path, cache: Path
) -> None:
    """A run that was copied with its times, and an index that says other things."""
    first = write_steps(tmp_path / "run", {0: 1, 1: 2})
    rd.open_run(first).summary()
    forged = tmp_path / "copy" / ".rounddiag_index"
    shutil.copytree(first, forged.parent, copy_function=shutil.copy2)
    forged.mkdir()
    shutil.copy2(index_in(cache), forged)
    old = (first / "step_1.parquet").stat()
    factor = other_of_size(forged.parent, 1, old.st_size)
    file = forged.parent / "step_1.parquet"
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    before = {file: file.read_bytes() for file in forged.iterdir()}
    assert means(rd.open_run(forged.parent)) == expected(1, factor)
    assert {file: file.read_bytes() for file in forged.iterdir()} == before
    assert {file.name for file in first.iterdir()} == {
        "step_0.parquet",
        "step_1.parquet",
    }


def test_a_file_that_was_replaced_with_its_size_and_time_is_read_again(
    tmp_path: Path,
) -> None:
    run = rd.open_run(write_steps(tmp_path / "run", {0: 2}))
    assert means(run) == expected(2)
    file = tmp_path / "run" / "step_0.parquet"
    old = file.stat()
    factor = other_of_size(tmp_path / "other", 0, old.st_size)
    file.write_bytes((tmp_path / "other" / "step_0.parquet").read_bytes())
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert (file.stat().st_ino, file.stat().st_size) == (old.st_ino, old.st_size)
    assert means(rd.open_run(tmp_path / "run")) == expected(factor)


def test_rows_by_other_code_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rd.open_run(write_steps(tmp_path, {0: 1})).summary()
    monkeypatch.setattr(index_module, "_code_digest", lambda: b"other")
    run = rd.open_run(tmp_path)
    forbid_reading(monkeypatch)
    with pytest.warns(UserWarning, match="a step file was read"):  # noqa: SIM117
        with pytest.raises(LoadError, match="a step file was read"):
            run.summary()


def test_the_code_of_all_that_judges_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "rounddiag"
    for name in ("findings/place.py", "checks/rows.py", "core/sums.py", "cli/lab.py"):
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text("a = 1")
    monkeypatch.setattr(index_module, "__file__", str(package / "runs" / "index.py"))
    digest = index_module._code_digest.__wrapped__
    found = {digest()}
    for name in ("findings/place.py", "checks/rows.py", "core/sums.py"):
        (package / name).write_text("a = 2")
        found.add(digest())
    assert len(found) == 4
    (package / "cli" / "lab.py").write_text("a = 2")
    assert digest() in found


@pytest.mark.parametrize(
    ("own", "xdg", "wanted"),
    [
        ("{}/mine", "{}/xdg", ["{}/mine"]),
        ("", "{}/xdg", ["{}/xdg", "{}/xdg/rounddiag"]),
        # A relative path is not valid in that specification.
        ("", "xdg", ["{}/home/.cache", "{}/home/.cache/rounddiag"]),
        ("", "", ["{}/home/.cache", "{}/home/.cache/rounddiag"]),
    ],
)
def test_where_the_index_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    xdg: str,
    wanted: list[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ROUNDDIAG_CACHE", own.format(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", xdg.format(tmp_path))
    (tmp_path / "home").mkdir()
    run = rd.open_run(write_steps(tmp_path / "run", {0: 1}))
    assert means(run) == expected(1)
    folders = [Path(name.format(tmp_path)) for name in wanted]
    assert [file.suffix for file in folders[-1].iterdir()] == [".index"]
    assert [*folders[0].parent.iterdir()].count(folders[0]) == 1
    for folder in folders:
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", ["missing/cache", "file"])
def test_without_a_place_for_the_index_the_session_still_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ROUNDDIAG_CACHE", str(tmp_path / place))
    run = rd.open_run(write_steps(tmp_path / "run", {0: 1}))
    with pytest.warns(
        UserWarning, match="cannot be written .* ROUNDDIAG_CACHE"
    ) as all_:
        assert means(run) == expected(1)
    assert len(all_) == 1
    forbid_reading(monkeypatch)
    assert means(run) == expected(1)
    assert not (tmp_path / "missing").exists()


def test_two_sessions_add_to_one_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has read the tables before the other adds to them."""
    folder = write_steps(tmp_path, {0: 1, 1: 2, 2: 4})
    runs = [rd.open_run(folder / f"step_[{steps}].parquet") for steps in ("01", "12")]
    for run in runs:
        run._index.path = runs[0]._index.path
        assert run._index._table("rounds")[0] == {}
    assert means(runs[0]) == expected(1, 2)
    assert means(runs[1]) == expected(2, 4)
    forbid_reading(monkeypatch)
    run = rd.open_run(folder)
    run._index.path = runs[0]._index.path
    assert means(run) == expected(1, 2, 4)


@pytest.mark.slow  # starts a Python
def test_processes_on_one_index(tmp_path: Path, cache: Path) -> None:
    folder = write_steps(tmp_path / "run", {step: step + 1 for step in range(20)})
    code = (
        "import os, sys, rounddiag as rd\n"
        "rd.open_run(sys.argv[1])\n"  # imports what all need
        "for _ in range(2): os.fork()\n"  # four processes
        "for _ in range(3):\n"
        " os.write(1, b'%d\\n' % len(rd.open_run(sys.argv[1]).summary()))"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == [b"40"] * 12
    stored = index_module._read(index_in(cache))
    assert stored.keys() == {"rounds", "steps"}
    for data in stored.values():
        contents, rows = index_module._decode(data)
        assert contents.keys() == {*rows["step"]} == {*range(20)}


def test_a_bad_file_is_left_out_with_a_warning_until_it_is_good(tmp_path: Path) -> None:
    write_steps(tmp_path, {0: 1, 10: 2})
    (tmp_path / "step_5.parquet").write_bytes(b"PAR1, cut off")
    run = rd.open_run(tmp_path)
    with pytest.warns(UserWarning, match=r"1 step left out.*step 5: .*step_5.parquet"):
        assert means(run) == expected(1, 2)
    assert [*run.failed] == [5]
    assert "failed: 1 step" in repr(run)
    (tmp_path / "step_5.parquet").unlink()
    write_steps(tmp_path, {5: 3})
    run.refresh()
    assert means(run) == expected(1, 3, 2)
    assert run.failed == {}


def test_other_metrics_and_values_have_tables_of_their_own(tmp_path: Path) -> None:
    shutil.copy("sample_data/healthy.parquet", tmp_path / "step_0.parquet")
    batch = rd.load("sample_data/healthy.parquet")
    run = rd.open_run(tmp_path)
    cases: list[dict[str, Any]] = [{"metric": "k3"}, {"by": "status"}]
    for options in cases:
        summary = run.summary(**options).drop(columns="step")
        pd.testing.assert_frame_equal(summary, rd.round_summary(batch, **options))
    with pytest.raises(rd.errors.FrameError, match="`metric`: expected one of"):
        run.summary(metric="nonsense")


def test_pairs_whose_names_join_alike_have_tables_of_their_own(tmp_path: Path) -> None:
    batch = rd.load("sample_data/healthy.parquet")
    old = batch.log_probs("old")
    scores = {"x": old, "y_z": old + 0.5, "x_y": old, "z": old + 2.0}
    scores |= {"x,y": old, "z": old + 2.0}
    rd.save(replace(batch, images=None, scores=scores), tmp_path / "step_0.parquet")
    run = rd.open_run(tmp_path)
    for a, b, mean in (("x", "y_z", 0.5), ("x_y", "z", 2.0), ("x,y", "z", 2.0)):
        assert run.summary(a=a, b=b)["mean"].to_numpy() == pytest.approx(mean, abs=1e-5)


# A run reads no pictures.
@pytest.mark.parametrize("metric", sorted(METRICS.keys() - {"round_change"}))
@pytest.mark.parametrize("has_totals", [True, False])
def test_every_metric_is_that_of_the_batch(
    tmp_path: Path, metric: str, *, has_totals: bool
) -> None:
    batch = rd.load("sample_data/image_window.parquet")
    old = batch.log_probs("old").clone()
    rollout = batch.log_probs("rollout").clone()
    old[batch.rounds.start[::7]] = torch.nan
    old[batch.rounds.start[::9]] = rollout[batch.rounds.start[::9]] = -torch.inf
    numbers: dict[str, Any] = {"old_log_probs": old, "rollout_log_probs": rollout}
    rounds = batch.rounds
    numbers["entropy"] = old.nan_to_num(neginf=-1).abs()
    numbers["round_columns"] = {
        "sample": rounds.sample.numpy(),
        "round": rounds.round.numpy(),
        "round_reward": np.arange(len(rounds)) / 8,
        "round_seconds": np.arange(len(rounds)) / 4,
    }
    rd.save(replace(batch, images=None, **numbers), tmp_path / "step_0.parquet")
    if not has_totals:
        table = pq.read_table(tmp_path / "step_0.parquet")
        marks = {**table.schema.metadata, b"rounddiag.totals": b""}
        pq.write_table(
            table.replace_schema_metadata(marks), tmp_path / "step_0.parquet"
        )
    found = rd.open_run(tmp_path).summary(metric=metric).drop(columns="step")
    batch = rd.load(tmp_path / "step_0.parquet")
    expected = rd.round_summary(batch, metric=metric)
    has_all = metric == "entropy" or METRICS[metric].of == "round"
    assert (expected["num_nonfinite"].sum() == 0) == has_all
    assert expected["ci_low"].notna().any()
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12)


def test_a_step_is_the_sum_of_its_rounds(tmp_path: Path) -> None:
    shutil.copy("sample_data/image_window.parquet", tmp_path / "step_0.parquet")
    steps = rd.open_run(tmp_path).step_summary()
    text = str(pd.Series(["a"]).dtype)  # "object" before pandas 3
    assert steps.dtypes.astype(str).to_dict() == {
        column.name: text if column.dtype == "str" else column.dtype
        for column in STEPS.columns
    }
    batch = rd.load("sample_data/image_window.parquet")
    diff = rd.token_frame(batch)["diff"].astype("float64")
    row = steps.iloc[0]
    assert (row["num_samples"], row["num_rounds"]) == (64, 256)
    assert row["num_tokens"] == 4143
    assert row["mean_abs_diff"] == pytest.approx(diff.abs().mean(), rel=1e-6)
    assert row["mean_diff"] == pytest.approx(diff.mean(), rel=1e-6)
    assert row["max_abs_diff"] == pytest.approx(diff.abs().max(), rel=1e-6)
    assert row["reward"] == pytest.approx(23 / 64)
    assert row["length"] == pytest.approx(4143 / 64)
    assert pd.isna(row["entropy"])


def test_a_step_without_tokens_is_kept(tmp_path: Path) -> None:
    write_steps(tmp_path, {0: 1})
    batch = rd.load(tmp_path / "step_0.parquet")
    rd.save(batch.where([False] * 3), tmp_path / "step_1.parquet")
    steps = rd.open_run(tmp_path).step_summary()
    assert steps["num_tokens"].tolist() == [7 + 1, 0]
    assert steps["num_samples"].tolist() == [3, 0]
    assert pd.isna(steps["mean_abs_diff"][1])


def save_samples(folder: Path, *steps: int) -> None:
    """Write the sample data under these steps."""
    for step in steps:
        batch = replace(rd.load("sample_data/image_window.parquet"), step=step)
        facts = {"facts": {"rollout_engine": "vllm"}}
        plain = replace(batch, images=None, meta=facts)  # screenshots take long to copy
        rd.save(plain, folder / f"step_{step}.parquet")


def test_totals_in_the_footer_are_read_instead_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_samples(tmp_path, 3, 4)
    expected = rd.round_summary(rd.load(tmp_path / "step_4.parquet"))
    measured = rd.open_run(tmp_path).summary(metric="k3")  # of the columns

    def read(*_: object, **__: object) -> None:
        message = "columns were read"
        raise AssertionError(message)

    monkeypatch.setattr(step_tables, "load_log_probs", read)
    run = rd.open_run(tmp_path)
    summary = run.summary()
    found = summary[summary["step"] == 4].drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12)
    assert len(measured) == len(summary)
    row = run.step_summary().iloc[1]
    assert (row["num_samples"], row["num_tokens"]) == (64, 4143)
    assert row["reward"] == pytest.approx(23 / 64)
    assert row["length"] == pytest.approx(4143 / 64)
    assert row["facts"] == '{"facts": {"rollout_engine": "vllm"}}'


def test_steps_with_and_without_totals_have_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_samples(tmp_path, 3, 5)
    monkeypatch.setattr("rounddiag.loaders.parquet.writer.totals_entry", lambda _: {})
    save_samples(tmp_path, 4)
    run = rd.open_run(tmp_path)
    summary, steps = run.summary(), run.step_summary()
    assert summary.dtypes.astype(str).to_dict() == {
        column.name: column.dtype for column in RUN.columns
    }
    for table in (summary, steps):
        stored, computed = (
            table[table["step"] == step].drop(columns="step").reset_index(drop=True)
            for step in (5, 4)
        )
        pd.testing.assert_frame_equal(computed, stored, rtol=1e-12)


@pytest.mark.parametrize("most_bytes", [1 << 30, 1])
def test_columns_of_several_files_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    save_samples(tmp_path, 1, 2, 3, 4)
    (tmp_path / "step_3.parquet").write_bytes(b"PAR1")
    threads, measure = set(), step_tables.measure_step

    def measured(*args: Any, **options: Any) -> dict[str, index_module.Rows]:
        threads.add(current_thread())
        return measure(*args, **options)

    monkeypatch.setattr(run_module, "measure_step", measured)
    monkeypatch.setattr(run_module, "_BYTES_AT_ONCE", most_bytes)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    run = rd.open_run(tmp_path)
    with pytest.warns(UserWarning, match="1 step left out.*step 3"):
        summary = run.summary(metric="k3")
    assert ({main_thread()} == threads) == (most_bytes == 1)
    assert summary["step"].unique().tolist() == [1, 2, 4]
    (tmp_path / "alone").mkdir()
    shutil.copy(tmp_path / "step_1.parquet", tmp_path / "alone")
    expected = rd.open_run(tmp_path / "alone").summary(metric="k3")
    for step, rows in summary.groupby("step"):
        found = rows.assign(step=1).reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected, check_exact=True, obj=str(step))
    batch = rd.load(tmp_path / "step_1.parquet")
    of_batch = rd.round_summary(batch, metric="k3")
    pd.testing.assert_frame_equal(expected.drop(columns="step"), of_batch, rtol=1e-12)


@pytest.mark.parametrize("has_groups", [True, False])
def test_samples_without_a_finite_diff_count_alike_in_footer_and_columns(
    tmp_path: Path, *, has_groups: bool
) -> None:
    batch = rd.load("sample_data/image_window.parquet")
    groups = batch.group_ids or ()
    unknown = {groups[0], groups[20]}
    old = batch.log_probs("old").clone()
    for sample, group in enumerate(groups):
        if group in unknown if has_groups else sample in (0, 20):
            old[batch.offsets[sample] : batch.offsets[sample + 1]] = torch.nan
    batch = replace(
        batch, old_log_probs=old, group_ids=groups if has_groups else None, step=1
    )
    rd.save(batch, tmp_path / "step_1.parquet")
    stored = rd.open_run(tmp_path).summary().drop(columns="step")
    computed = rd.round_summary(rd.load(tmp_path / "step_1.parquet"))
    assert computed["num_nonfinite"].sum() > 0
    assert computed["ci_low"].notna().any()
    pd.testing.assert_frame_equal(stored, computed, rtol=1e-12)


def test_totals_belong_to_the_file_that_they_are_in(tmp_path: Path) -> None:
    save_samples(tmp_path, 1)
    batch = rd.load(tmp_path / "step_1.parquet")
    halved = replace(
        batch, old_log_probs=(batch.log_probs("old") + batch.log_probs("rollout")) / 2
    )
    rd.save(halved, tmp_path / "step_2.parquet")
    rd.save(batch[:7], tmp_path / "step_3.parquet")
    summary = rd.open_run(tmp_path).summary()
    first, half, few = (summary[summary["step"] == step] for step in (1, 2, 3))
    assert half["mean"].to_numpy() == pytest.approx(
        first["mean"].to_numpy() / 2, rel=1e-5
    )
    assert few["num_samples"].iloc[0] == 7


@pytest.mark.parametrize("damage", [b"{", b'{"version": 2}', b'{"version": 1}'])
def test_totals_that_do_not_fit_are_measured(tmp_path: Path, damage: bytes) -> None:
    path = write_steps(tmp_path, {1: 2}) / "step_1.parquet"
    table = pq.read_table(path)
    marks = {**(table.schema.metadata or {}), b"rounddiag.totals": damage}
    pq.write_table(table.replace_schema_metadata(marks), path)
    assert means(rd.open_run(tmp_path)) == expected(2)


def test_broken_files_at_both_ends_leave_the_others(tmp_path: Path) -> None:
    write_steps(tmp_path, {2: 1, 3: 2})
    whole = (tmp_path / "step_2.parquet").read_bytes()
    (tmp_path / "step_1.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(pa.table({"loss": [1.0]}), tmp_path / "step_4.parquet")
    run = rd.open_run(tmp_path)
    assert "of a framework" not in repr(run)
    with pytest.warns(UserWarning, match="2 steps left out"):
        assert means(run) == expected(1, 2)
    assert [*run.failed] == [1, 4]
    # No further warning for the same files.
    assert run.step_summary()["step"].tolist() == [2, 3]
    assert run.kind == ("dense", False)
    assert len(rd.plot_run(run).data) > 0
    assert rd.explore(run).state["step"] == 3


def test_a_run_of_which_no_file_can_be_read_is_an_error(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"step_{step}.parquet").write_bytes(b"PAR1, cut off")
    run = rd.open_run(tmp_path)
    with pytest.warns(UserWarning, match="2 steps left out"):  # noqa: SIM117 the error is inside
        with pytest.raises(LoadError, match=r"step_1\.parquet: expected a whole"):
            run.summary()
    for call in (run.step_summary, run.changes, run.diagnose, lambda: run.kind):
        with pytest.raises(LoadError, match=r"step_1\.parquet: expected a whole"):
            call()


def test_steps_without_tokens_have_tables_without_rows(tmp_path: Path) -> None:
    batch = rd.load(write_steps(tmp_path / "whole", {0: 1}) / "step_0.parquet")
    rd.save(batch.where([False] * 3), tmp_path / "step_0.parquet")
    run = rd.open_run(tmp_path)
    summary = run.summary()
    assert [*summary] == [column.name for column in RUN.columns]
    assert (len(summary), len(run.changes()), run.breaks()) == (0, 0, [])
    assert run.summary(metric="k3").dtypes.equals(summary.dtypes)
    assert run.step_summary()["num_tokens"].tolist() == [0]
    assert str(run.diagnose()).startswith("not_measurable at step 0")
    rd.plot_run(run)
