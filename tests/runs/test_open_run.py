"""Which files a run has, and what is read of them."""

from __future__ import annotations

import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Timer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import LoadError
from rounddiag.runs.folder import RunFolder
from tests.runs.step_folders import scaled_batch, small_dump, write_steps

HEALTHY = "sample_data/healthy.parquet"


def test_steps_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {10: 1, 9: 1, 100: 1}))
    assert run.steps == (9, 10, 100)
    assert len(run) == 3
    assert "steps: 3, from 9 to 100" in repr(run)
    assert ">3, from 9 to 100</td>" in run._repr_html_()


def test_a_step_is_read_from_the_name_then_the_file_then_counted(
    tmp_path: Path,
) -> None:
    rd.save(scaled_batch(7), tmp_path / "a.parquet")
    rd.save(scaled_batch(7), tmp_path / "global_step_8.parquet")
    rd.save(replace(scaled_batch(0), step=None), tmp_path / "c_5.parquet")
    assert rd.open_run(tmp_path).steps == (5, 7, 8)


def test_the_files_of_the_ranks_of_a_step_are_one_batch(tmp_path: Path) -> None:
    for rank in (0, 1):
        rd.save(scaled_batch(4), tmp_path / f"step_4_rank_{rank}.parquet")
    run = rd.open_run(tmp_path)
    assert run.steps == (4,)
    assert run.batch(4).num_samples == 6
    assert run.sample(4, 5).num_tokens == 1
    assert run.summary()["num_samples"].tolist() == [6, 4]


def test_two_files_of_a_step_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_steps(tmp_path / name, {3: 1})
    with pytest.raises(LoadError, match=r"step 3 in a/step_3\.parquet, b/"):
        rd.open_run(tmp_path)
    assert rd.open_run(tmp_path / "a").steps == (3,)


def test_a_glob_and_a_single_file_are_runs_too(tmp_path: Path) -> None:
    write_steps(tmp_path, {1: 1, 2: 1, 12: 1})
    assert rd.open_run(tmp_path / "step_1*.parquet").steps == (1, 12)
    assert rd.open_run(tmp_path / "step_2.parquet").steps == (2,)


def test_a_worker_in_another_folder_opens_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_steps(tmp_path / "runs", {1: 1, 2: 1})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sent = [pickle.dumps(RunFolder(name)) for name in ("runs", "runs/step_*.parquet")]
    monkeypatch.chdir(tmp_path / "elsewhere")
    steps = [[one.step for one in pickle.loads(one).steps()] for one in sent]  # noqa: S301 ours
    assert steps == [[1, 2], [1, 2]]


def test_partial_and_foreign_files_are_no_steps(tmp_path: Path) -> None:
    write_steps(tmp_path, {1: 1})
    (tmp_path / ".step_2.parquet.0.partial").write_bytes(b"PAR1")
    (tmp_path / "log_step_3.txt").write_text("loss")
    assert rd.open_run(tmp_path).steps == (1,)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("lr: 1")
    with pytest.raises(LoadError, match=r"expected a folder of step .*config\.yaml"):
        rd.open_run(tmp_path)
    with pytest.raises(LoadError, match="found no file"):
        rd.open_run(tmp_path / "nowhere")


def test_an_unknown_step_is_an_error(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1, 2: 1}))
    with pytest.raises(LoadError, match="expected one of the steps 1, 2; found 3"):
        run.batch(3)


def test_a_batch_is_that_of_its_file(tmp_path: Path) -> None:
    shutil.copy(HEALTHY, tmp_path / "step_0.parquet")
    batch, expected = rd.open_run(tmp_path).batch(0), rd.load(HEALTHY)
    assert torch.equal(batch.log_probs("old"), expected.log_probs("old"))
    assert batch.sample_ids == expected.sample_ids
    assert batch.meta["source"] == str(tmp_path / "step_0.parquet")


@pytest.mark.parametrize("sample", [0, 33, 63])
def test_a_sample_is_that_of_its_batch(tmp_path: Path, sample: int) -> None:
    shutil.copy(HEALTHY, tmp_path / "step_0.parquet")
    one, expected = rd.open_run(tmp_path).sample(0, sample), rd.load(HEALTHY)[sample]
    assert torch.equal(one.require_ids(), expected.require_ids())
    assert torch.equal(one.log_probs("old"), expected.log_probs("old"))
    assert one.sample_ids == expected.sample_ids
    assert one.sample_columns.keys() == expected.sample_columns.keys()
    assert one.sample_columns["original_sample"].tolist() == [sample]
    names = [name for name in one.round_columns if name != "sample"]
    for name in names:
        assert one.round_columns[name].tolist() == expected.round_columns[name].tolist()
    assert one.images is not None
    assert expected.images is not None
    pictures = [[shot.png() for shot in batch.images[0]] for batch in (one, expected)]
    assert pictures[0] == pictures[1]


def test_of_a_sample_one_row_group_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [torch.zeros(140_000) for _ in range(3)]
    batch = rd.Batch.from_rows(
        response_ids=[row.long() for row in rows],
        response_mask=[row.long() + 1 for row in rows],
        rollout_log_probs=rows,
        old_log_probs=[row - sample for sample, row in enumerate(rows)],
        step=0,
    )
    rd.save(batch, tmp_path / "step_0.parquet")
    read: list[list[int]] = []
    original = pq.ParquetFile.read_row_groups

    def recorded(
        self: pq.ParquetFile, groups: list[int], *rest: object, **options: bool
    ) -> object:
        read.append([*groups])
        return original(self, groups, *rest, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", recorded)
    one = rd.open_run(tmp_path).sample(0, 2)
    assert one.log_probs("old").tolist() == [-2.0] * 140_000
    assert {tuple(groups) for groups in read} == {(2,)}


def test_an_unknown_sample_is_an_error(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1}))
    for sample in (3, -1):
        with pytest.raises(LoadError, match=f"a sample from 0 to 2; found {sample}"):
            run.sample(1, sample)


@pytest.mark.parametrize("name", ["step_1.parquet", "step_1.pt"])
def test_a_step_without_samples_says_so(tmp_path: Path, name: str) -> None:
    if name.endswith(".pt"):
        dump = {key: rows[:0] for key, rows in small_dump(1).items()}
        torch.save(dump, tmp_path / name)
    else:
        rd.save(scaled_batch(1).where([False] * 3), tmp_path / name)
    with pytest.raises(LoadError, match="expected a step with samples; found one with"):
        rd.open_run(tmp_path).sample(1, 0)


def test_a_file_that_is_gone_is_a_load_error(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1, 2: 1}))
    (tmp_path / "step_2.parquet").unlink()
    with pytest.raises(LoadError, match=r"step_2.parquet.*`run.refresh\(\)` looks"):
        run.batch(2)
    with pytest.raises(LoadError, match=r"step_2.parquet"):
        run.sample(2, 0)


def test_a_framework_s_files_are_a_run_that_says_so(tmp_path: Path) -> None:
    for step in (3, 4):
        target = tmp_path / f"global_step_{step}" / "batch.pkl"
        target.parent.mkdir()
        shutil.copy("sample_data/image_window_verl.pkl", target)
    run = rd.open_run(tmp_path)
    assert run.steps == (3, 4)
    assert "of a framework; `rounddiag.ingest` makes them faster" in repr(run)
    expected = rd.round_summary(rd.load("sample_data/image_window_verl.pkl"))
    summary = run.summary()
    np.testing.assert_allclose(
        summary.loc[summary["step"] == 4, "mean"], expected["mean"]
    )
    assert run.sample(3, 1).num_samples == 1


def test_a_url_is_read_through_fsspec(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(write_steps(tmp_path, {1: 1, 2: 4})), "/bucket/run", recursive=True)
    try:
        run = rd.open_run("memory://bucket/run")
        assert run.steps == (1, 2)
        assert run.summary()["mean"].tolist()[2:] == [10 / 6, 6.0]
        assert run.batch(2).num_samples == 3
        assert sorted(memory.ls("/bucket/run", detail=False)) == [
            "/bucket/run/step_1.parquet",
            "/bucket/run/step_2.parquet",
        ]
        assert rd.open_run("memory://bucket/run").sample(1, 1).num_tokens == 4
    finally:
        memory.rm("/bucket", recursive=True)


def test_a_url_without_the_package_of_its_storage_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = pytest.importorskip("fsspec.core")

    def missing(_: str) -> None:
        msg = "Install s3fs to access S3"
        raise ImportError(msg)

    monkeypatch.setattr(core, "url_to_fs", missing)
    with pytest.raises(LoadError, match="found Install s3fs to access S3"):
        rd.open_run("s3://bucket/run")


def test_watch_yields_new_and_rewritten_steps(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1}))
    write_steps(tmp_path, {1: 2, 2: 1})
    assert list(run.watch(every=0.01, timeout=0.05)) == [1, 2]
    assert run.steps == (1, 2)


def test_a_folder_that_is_away_is_waited_for(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path / "run", {1: 1}))
    watched = run.watch(every=0.01, timeout=5)
    write_steps(tmp_path / "run", {2: 1})
    assert next(watched) == 2
    (tmp_path / "run").rename(tmp_path / "away")
    Timer(0.1, (tmp_path / "away").rename, [tmp_path / "run"]).start()
    Timer(0.3, write_steps, [tmp_path / "run", {3: 1}]).start()
    assert next(watched) == 3
    assert run.steps == (1, 2, 3)
    assert not (tmp_path / "away").exists()


def test_links_and_pipes_among_the_steps_are_failures(tmp_path: Path) -> None:
    folder = write_steps(tmp_path / "run", {1: 1, 2: 1})
    write_steps(tmp_path / "other", {3: 1})
    (folder / "step_3.parquet").symlink_to("../other/step_3.parquet")
    (folder / "step_4.parquet").symlink_to("nothing")
    (folder / "step_5.parquet").symlink_to("step_5.parquet")
    os.mkfifo(folder / "step_6.parquet")
    (folder / "step_7.parquet").symlink_to("step_2.parquet")
    (folder / "step_8.parquet").mkdir()
    (folder / "more").symlink_to(tmp_path / "other")
    run = rd.open_run(folder)
    with pytest.warns(UserWarning, match=r"4 steps left out.*step 3: .* is outside"):
        assert run.summary()["step"].unique().tolist() == [1, 2, 7]
    found = {step: text.split("'")[2] for step, text in run.failed.items()}
    assert {step: text.partition(" (")[0][:30] for step, text in found.items()} == {
        3: ", which is outside. Copy the f",
        4: ", which does not exist. Copy t",
        5: ", which cannot be opened",
        6: ", which is no regular file. Co",
    }


def test_a_refresh_elsewhere_hides_no_step_from_watch(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1}))
    watched = run.watch(every=0.01, timeout=5)
    write_steps(tmp_path, {2: 1})
    assert next(watched) == 2
    write_steps(tmp_path, {3: 1})
    assert run.refresh() == (3,)
    assert next(watched) == 3


def test_a_step_whose_number_no_table_holds_is_a_failure(tmp_path: Path) -> None:
    write_steps(tmp_path, {1: 1, 2**63: 1})
    run = rd.open_run(tmp_path)
    with pytest.warns(
        UserWarning, match=r"expected a step of at most 92233720368547758"
    ):
        assert run.summary()["step"].unique().tolist() == [1]
    assert run.diagnose().frame["step"].tolist() == [1]


def test_a_link_under_the_step_of_a_file_takes_its_place_in_no_table(
    tmp_path: Path,
) -> None:
    write_steps(tmp_path, {5: 1})
    (tmp_path / "step_5.parquet").rename(tmp_path / "x_7.parquet")
    (tmp_path / "step_5.parquet").symlink_to("nothing")
    run = rd.open_run(tmp_path)
    assert run.steps == (5,)
    assert run.batch(5).num_samples == 3


def test_watch_ends_with_the_error_of_two_files_of_a_step(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {5: 1}))
    shutil.copy(tmp_path / "step_5.parquet", tmp_path / "x_7.parquet")
    with pytest.raises(LoadError, match="expected one file per step"):
        next(run.watch(every=0.01, timeout=5))


def test_a_file_whose_columns_have_no_names_in_utf_8_is_a_failed_step(
    tmp_path: Path,
) -> None:
    write_steps(tmp_path, {1: 1})
    pq.write_table(pa.table({"abcdefgh": [1]}), tmp_path / "x_7.parquet")
    data = (tmp_path / "x_7.parquet").read_bytes()
    (tmp_path / "x_7.parquet").write_bytes(data.replace(b"abcdefgh", b"abcd\xffefg"))
    run = rd.open_run(tmp_path)
    assert run.steps == (1, 7)
    with pytest.warns(UserWarning, match="step left out.*step 7: .*can't decode byte"):
        assert [*run.step_summary()["step"]] == [1]
    assert [*run.failed] == [7]
