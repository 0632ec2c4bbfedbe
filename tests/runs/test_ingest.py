"""Files of a framework become step files, again and again with the same result."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import partial
from io import BytesIO
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tqdm import auto as tqdm_auto

import rounddiag as rd
from rounddiag.capture.step_file import save_in
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.runs import ingestion
from rounddiag.runs.engines import map_items
from rounddiag.vision import EncodedScreenshot
from tests.runs.step_folders import small_dump

VERL = Path("sample_data/image_window_verl.pkl")
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def verl_steps(folder: Path, *steps: int) -> Path:
    """verl's file, whose own step is 1584, without its step under several names."""
    folder.mkdir(exist_ok=True)
    for step in steps:
        tensors = small_dump(step)
        torch.save(tensors, folder / f"global_step_{step}.pt")
    return folder


def times(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("*.parquet")}


def test_the_step_files_hold_what_the_files_hold(tmp_path: Path) -> None:
    done = rd.ingest(verl_steps(tmp_path / "raw", 1, 2), tmp_path / "out")
    assert (done.written, done.unchanged, done.failed) == ((1, 2), (), {})
    run = rd.open_run(tmp_path / "out")
    assert run.summary()["mean"].tolist() == [0.25, 0.25, 0.5, 0.5]
    first, again = rd.open_run(tmp_path / "raw").batch(2), run.batch(2)
    assert torch.equal(first.require_ids(), again.require_ids())
    assert again.step == 2
    assert again.meta["original_source"].endswith("global_step_2.pt")


def test_a_second_call_writes_only_what_is_new(tmp_path: Path) -> None:
    raw, out = verl_steps(tmp_path / "raw", 1, 2), tmp_path / "out"
    rd.ingest(raw, out)
    before = times(out)
    verl_steps(raw, 3)
    done = rd.ingest(raw, out)
    assert (done.written, done.unchanged) == ((3,), (1, 2))
    assert {name: times(out)[name] for name in before} == before
    torch.save(small_dump(8), raw / "global_step_2.pt")
    assert rd.ingest(raw, out).written == (2,)
    assert rd.open_run(out).summary()["mean"].tolist()[2] == 2.0
    assert rd.ingest(raw, out, images="none").written == (1, 2, 3)


def test_bad_files_stop_nothing_and_are_listed(tmp_path: Path) -> None:
    raw = verl_steps(tmp_path / "raw", 1, 3)
    (raw / "global_step_2.pt").write_bytes(b"PK\x03\x04 cut off")
    done = rd.ingest(raw, tmp_path / "out")
    assert done.written == (1, 3)
    assert [Path(name).name for name in done.failed] == ["global_step_2.pt"]
    lines = str(done).splitlines()
    assert lines[0].endswith("2 steps written, 0 unchanged, 1 failed")
    assert lines[1].startswith("failed: ")
    assert lines[1].count(tmp_path.name) == 1
    assert "expected" in lines[1]
    assert sorted(times(tmp_path / "out")) == ["step_1.parquet", "step_3.parquet"]


def test_two_files_of_one_step_are_not_both_written(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("a_1.pkl", "b_2.pkl"):  # both say step 1584
        shutil.copy(VERL, raw / name)
    done = rd.ingest(raw, tmp_path / "out", images="none")
    assert done.written == (1584,)
    ((name, error),) = done.failed.items()
    assert name.endswith("b_2.pkl")
    assert "step 1584 here and in a_1.pkl" in error


def test_of_two_files_of_one_step_at_the_same_moment_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    for name in ("a_1.pkl", "b_2.pkl"):  # both say step 1584
        shutil.copy(VERL, raw / name)
    both = Barrier(2)

    def save_together(*args: Any) -> None:
        both.wait(60)  # neither has found a file of the other
        save_in(*args)

    monkeypatch.setattr(ingestion, "save_in", save_together)
    monkeypatch.setattr(ingestion, "map_items", partial(map_items, num_threads=2))
    done = rd.ingest(raw, out, images="none")
    assert done.written == (1584,)
    ((name, error),) = done.failed.items()
    kept = {"a_1.pkl": "b_2.pkl", "b_2.pkl": "a_1.pkl"}[Path(name).name]
    assert f"step 1584 here and in {kept}" in error
    entry = rd.load(out / "step_1584.parquet").meta["ingested"]
    assert entry["files"].startswith(f"{kept}:")
    # The other one is refused again, and nothing is written.
    again = rd.ingest(raw, out, images="none")
    assert (again.written, again.unchanged) == ((), (1584,))
    assert again.failed == done.failed


@pytest.mark.parametrize("images", ["thumbnails", "none", "full"])
def test_screenshots_are_small_absent_or_exact(
    tmp_path: Path, images: ingestion.ImageOption
) -> None:
    rd.ingest(VERL, tmp_path, images=images)
    batch, original = rd.open_run(tmp_path).batch(1584), rd.load(VERL)
    if images == "none":
        assert batch.images is None
        return
    shots, first = batch.images[0], original.images[0]
    assert [shot.position for shot in shots] == [shot.position for shot in first]
    if images == "full":
        assert [shot.png() for shot in shots] == [shot.png() for shot in first]
    else:
        assert [shot.read().data[:2] for shot in shots] == [b"\xff\xd8"] * len(first)  # type: ignore[attr-defined]
        assert [shot.seen_size for shot in shots] == [shot.size for shot in first]


def test_options_reach_the_loader(tmp_path: Path) -> None:
    dump = small_dump(1)
    dump["mine"] = dump.pop("old_log_probs")
    raw = tmp_path / "step_1.pt"
    torch.save(dump, raw)
    done = rd.ingest(raw, tmp_path / "out", columns={"old_log_probs": "mine"})
    assert done.written == (1,)


def test_other_options_convert_again(tmp_path: Path) -> None:
    dump = small_dump(1)
    dump["mine"], dump["other"] = dump.pop("old_log_probs"), dump["rollout_log_probs"]
    raw, out = tmp_path / "step_1.pt", tmp_path / "out"
    torch.save(dump, raw)
    rd.ingest(raw, out, columns={"old_log_probs": "mine"})
    done = rd.ingest(raw, out, columns={"old_log_probs": "other"})
    assert (done.written, done.unchanged) == ((1,), ())
    assert rd.open_run(out).summary()["mean"].tolist() == [0.0, 0.0]
    again = rd.ingest(raw, out, columns={"old_log_probs": "other"})
    assert (again.written, again.unchanged) == ((), (1,))


def test_a_thumbnail_is_never_larger_than_its_screenshot(tmp_path: Path) -> None:
    batch = rd.load(VERL)
    plain, noise = BytesIO(), BytesIO()
    Image.new("RGB", (640, 480), "white").save(plain, format="PNG")
    pixels = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(noise, format="PNG")
    shots = [
        EncodedScreenshot(data=one.getvalue(), round=0, position=-1)
        for one in (plain, noise)
    ]
    batch = replace(batch[:2], images=tuple((shot,) for shot in shots))
    rd.save(batch, tmp_path / "step_1.parquet")
    rd.ingest(tmp_path / "step_1.parquet", tmp_path / "out")
    kept = rd.load(next((tmp_path / "out").glob("*.parquet"))).images
    assert kept is not None
    sizes = [[len(shot.read().data) for shot in row] for row in kept]  # type: ignore[attr-defined]
    assert sizes[0] == [len(plain.getvalue())]  # its JPEG has 5,427 bytes
    assert sizes[1][0] < len(noise.getvalue())


def test_unknown_options_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RounddiagError, match="`images`: expected one of"):
        rd.ingest(VERL, tmp_path, images="small")  # type: ignore[arg-type]
    with pytest.raises(RounddiagError, match="`engine`: expected one of"):
        rd.ingest(VERL, tmp_path, engine="spark")  # type: ignore[arg-type]
    with pytest.raises(LoadError, match="expected a folder of step files"):
        rd.ingest(tmp_path, tmp_path / "out")


def start(raw: Path, out: Path) -> BaseProcess:
    """Ingest in a process of its own, a fork of this one, which imported torch."""
    process = get_context("fork").Process(target=ingest_all, args=(raw, out))
    process.start()
    return process


def ingest_all(raw: Path, out: Path) -> None:
    torch.set_num_threads(1)  # the threads of the parent are not in the fork
    assert rd.ingest(raw, out).failed == {}


@FORKS
def test_a_killed_ingestion_goes_on_where_it_was(tmp_path: Path) -> None:
    raw, out = verl_steps(tmp_path / "raw", *range(1, 13)), tmp_path / "out"
    process = start(raw, out)
    while len(times(out)) < 3 and process.is_alive():
        time.sleep(0.005)
    process.kill()
    process.join()
    before = times(out)
    assert 3 <= len(before) <= 12
    done = rd.ingest(raw, out)
    assert len(done.unchanged) == len(before)
    assert {name: times(out)[name] for name in before} == before
    rd.ingest(raw, tmp_path / "whole")
    pd.testing.assert_frame_equal(
        rd.open_run(out).summary(), rd.open_run(tmp_path / "whole").summary()
    )


@FORKS
def test_two_at_once_give_one_result(tmp_path: Path) -> None:
    raw, out = verl_steps(tmp_path / "raw", *range(1, 9)), tmp_path / "out"
    processes = [start(raw, out), start(raw, out)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert rd.open_run(out).summary()["mean"].tolist()[::2] == [
        0.25 * step for step in range(1, 9)
    ]
    assert [*out.glob(".*.partial")] == []
    assert rd.ingest(raw, out).unchanged == tuple(range(1, 9))


@FORKS
def test_one_of_two_that_is_killed_does_the_other_no_harm(tmp_path: Path) -> None:
    raw, out = verl_steps(tmp_path / "raw", *range(1, 25)), tmp_path / "out"
    one, other = start(raw, out), start(raw, out)
    while len(times(out)) < 3 and one.is_alive():
        time.sleep(0.005)
    one.kill()
    one.join()
    other.join()
    assert other.exitcode == 0
    assert rd.ingest(raw, out).unchanged == tuple(range(1, 25))
    assert rd.open_run(out).summary()["mean"].tolist()[::2] == [
        0.25 * step for step in range(1, 25)
    ]


def test_a_file_has_its_name_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def stopped(path: Path) -> None:
        with path.open("rb+") as file:
            file.truncate(100)
        seen.append(sorted(times(path.parent)))
        message = "the disk is full"
        raise OSError(message)

    raw, out = verl_steps(tmp_path / "raw", 1, 2), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("rounddiag.loaders.parquet.writer.write_digest", stopped)
        done = rd.ingest(raw, out)
    assert seen == [[], []]
    assert all("the disk is full" in error for error in done.failed.values())
    assert len(done.failed) == 2
    assert [*out.iterdir()] == []
    assert rd.ingest(raw, out).written == (1, 2)


def test_urls_are_read_and_written(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(verl_steps(tmp_path / "raw", 1, 2)), "/in", recursive=True)
    try:
        assert rd.ingest("memory://in", "memory://out").written == (1, 2)
        assert rd.ingest("memory://in", "memory://out").unchanged == (1, 2)
        assert rd.open_run("memory://out").summary()["mean"].tolist()[2] == 0.5
    finally:
        memory.rm("/in", recursive=True)
        memory.rm("/out", recursive=True)


def test_the_bar_counts_files_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[tqdm_auto.tqdm[Any]] = []

    class Bar(tqdm_auto.tqdm):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            bars.append(self)

    monkeypatch.setattr(tqdm_auto, "tqdm", Bar)
    raw = verl_steps(tmp_path / "raw", 1, 2)
    (raw / "global_step_2.pt").write_bytes(b"PK" * 1_000_000)  # counts as a file too
    rd.ingest(raw, tmp_path / "out")
    (bar,) = bars
    assert (bar.n, bar.total, bar.unit, bar.desc) == (2, 2, "file", "ingest")
    assert bar.postfix == "2 MB"
