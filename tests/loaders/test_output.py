"""What is written replaces only its own kind, and never what is read."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import rounddiag as rd
from rounddiag.capture import Recorder, save_batch
from rounddiag.cli import main
from rounddiag.errors import OutputError, RounddiagError
from rounddiag.proof.saving import PROOF
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch

pytestmark = pytest.mark.usefixtures("drawn_once")
FIELDS = rd.load("sample_data/image_window.parquet")


def save_recorded(batch: rd.Batch, path: Path) -> None:
    """Save as a trainer does."""
    fields = {
        "responses": batch.require_ids().reshape(1, -1),
        "response_mask": batch.response_mask.reshape(1, -1),
        "rollout_log_probs": batch.log_probs("rollout").reshape(1, -1),
        "old_log_probs": batch.log_probs("old").reshape(1, -1),
    }
    save_batch(fields, path)


def save_proof(batch: rd.Batch, path: Path) -> None:
    from rounddiag.proof.saving import write_proof

    write_proof({}, batch, path)


WRITERS: dict[str, Callable[[rd.Batch, Path], object]] = {
    "save": rd.save,
    "save_batch": save_recorded,
    "report": rd.report,
    "proof": save_proof,
    "export_rescore": rd.export_rescore,
}


def others() -> dict[str, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = BytesIO()
    pq.write_table(pa.table({"a": [1]}), table)
    return {
        "text": b"notes of a month",
        "a page": b"<!doctype html><title>mine</title>",
        "a table": table.getvalue(),
        "a batch cut off": Path("sample_data/healthy.parquet").read_bytes()[:-9],
        "JSON": b'{"a": 1}',
    }


@pytest.mark.parametrize("link", ["none", "symbolic", "hard"])
@pytest.mark.parametrize("writer", [*WRITERS])
def test_no_file_of_another_kind_is_replaced(
    writer: str, link: str, tmp_path: Path
) -> None:
    batch = hand_batch()
    for name, content in others().items():
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "file"
        file.write_bytes(content)
        path = folder / "link"
        if link == "none":
            path = file
        elif link == "hard":
            os.link(file, path)
        else:
            path.symlink_to(file)
        with pytest.raises(RounddiagError, match=r"expected .*Pass another"):
            WRITERS[writer](batch, path)
        assert file.read_bytes() == content
        assert path.samefile(file)
        assert len([*folder.iterdir()]) == (1 if link == "none" else 2)


@pytest.mark.parametrize("writer", [*WRITERS])
def test_its_own_kind_is_replaced_and_what_is_empty(
    writer: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    if writer == "export_rescore":
        path.mkdir()
    else:
        path.touch()
    WRITERS[writer](hand_batch(), path)
    if writer != "export_rescore":
        before = path.stat().st_ino
        WRITERS[writer](hand_batch(), path)
        assert path.stat().st_ino != before


@pytest.mark.parametrize("writer", [*WRITERS])
def test_what_is_no_file_is_left_alone(writer: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    for name in ("pipe", "folder"):
        with pytest.raises(RounddiagError, match=f"{name}: expected"):
            WRITERS[writer](hand_batch(), tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "pipe").is_fifo()


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds a step, under several names."""
    monkeypatch.chdir(tmp_path)
    buffer = BytesIO()
    Image.effect_noise((1600, 900), 50).save(buffer, format="PNG")
    shot = EncodedScreenshot(data=buffer.getvalue(), round=0)
    batch = hand_batch()
    folder = tmp_path / "run"
    folder.mkdir()
    images = ((shot,), *[()] * (len(batch) - 1))
    rd.save(replace(batch, images=images, step=1), folder / "step_1.parquet")
    os.link(folder / "step_1.parquet", tmp_path / "hard.parquet")
    (tmp_path / "symbolic.parquet").symlink_to(folder / "step_1.parquet")
    return folder


NAMES = [
    *("run/step_1.parquet", "run/../run//step_1.parquet"),
    *("hard.parquet", "symbolic.parquet"),
]


@pytest.mark.parametrize("source", NAMES)
def test_a_batch_is_not_saved_over_its_own_file(source: str, read: Path) -> None:
    before = (read / "step_1.parquet").read_bytes()
    batch = rd.load(source)
    for name in (*NAMES, str(Path.cwd() / "run" / "step_1.parquet")):
        for part in (batch, batch[:1], rd.load(name)):
            with pytest.raises(OutputError, match="found the file that is read"):
                rd.save(part, name, redact=part is not batch)
    assert (read / "step_1.parquet").read_bytes() == before
    rd.save(batch, "other.parquet")  # a file that it was not read from
    rd.save(batch[:1], "other.parquet")


def test_a_batch_of_several_files_is_not_saved_over_one_of_them(tmp_path: Path) -> None:
    for rank in range(2):
        rd.save(hand_batch(), tmp_path / f"step_1_rank_{rank}.parquet")
    batch = rd.load(tmp_path)
    for source in (batch, rd.load(f"{tmp_path}/*.parquet")):
        with pytest.raises(OutputError, match="found the file that is read"):
            rd.save(source, tmp_path / "step_1_rank_1.parquet")
    rd.save(batch, tmp_path / "step_2.parquet")


@pytest.mark.parametrize("out", ["run", "run/../run", "linked"])
def test_ingestion_replaces_no_file_that_it_reads(out: str, read: Path) -> None:
    Path("linked").symlink_to(read)
    before = (read / "step_1.parquet").read_bytes()
    for source in ("run", "linked", "run/step_1.parquet", "hard.parquet"):
        done = rd.ingest(source, out)
        assert (done.written, len(done.failed)) == ((), 1)
        assert "expected a new name" in str(done)
    assert (read / "step_1.parquet").read_bytes() == before


def test_ingestion_replaces_only_what_it_has_written(read: Path) -> None:
    rd.ingest("run", "out")
    rd.ingest("run", "out", images="none")
    assert rd.load("out/step_1.parquet").images is None
    # Not though they are files of an ingestion: they are read.
    shutil.copytree("out", "again")
    before = Path("out/step_1.parquet").read_bytes()
    assert len(rd.ingest("out", "out", images="full").failed) == 1
    assert len(rd.ingest("out", read).failed) == 1  # of a trainer
    assert rd.ingest("out", "again", images="full").written == (1,)
    assert Path("out/step_1.parquet").read_bytes() == before


def test_ingestion_replaces_nothing_in_a_storage_that_it_reads(read: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(read), "/raw", recursive=True)
    memory.pipe_file("/other/step_1.parquet", b"mine")
    try:
        before = memory.cat_file("/raw/step_1.parquet")
        for out in ("memory://raw", "memory://other"):
            assert len(rd.ingest("memory://raw", out).failed) == 1
        assert memory.cat_file("/raw/step_1.parquet") == before
        assert memory.cat_file("/other/step_1.parquet") == b"mine"
        with Recorder("memory://other", every=1) as recorder:
            recorder.step(1, fields())
        assert recorder.errors == 1
        assert memory.cat_file("/other/step_1.parquet") == b"mine"
    finally:
        memory.rm("/raw", recursive=True)
        memory.rm("/other", recursive=True)


def fields() -> dict[str, Any]:
    import torch

    ones = torch.ones(2, 3)
    return {
        "responses": ones.long(),
        "response_mask": ones,
        "rollout_log_probs": -ones,
        "old_log_probs": -ones,
    }


@pytest.mark.parametrize(
    "command",
    [
        ["report", "run/step_1.parquet", "-o", "run/step_1.parquet"],
        ["report", "run", "-o", "hard.parquet"],
        ["prove", "run/step_1.parquet", "--model", "none", "-o", "symbolic.parquet"],
        ["ingest", "run", "-o", "run"],
    ],
)
def test_no_command_writes_onto_what_it_reads(
    command: list[str], read: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (read / "step_1.parquet").read_bytes()
    assert main(command) != 0
    assert "expected a new name" in "".join(capsys.readouterr())
    assert (read / "step_1.parquet").read_bytes() == before
    assert Path("symbolic.parquet").is_symlink()


@pytest.mark.parametrize("writer", [*WRITERS])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EACCES])
def test_an_error_of_the_system_names_the_file_and_leaves_none(
    writer: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        with pytest.raises(OutputError, match=f"out.*{os.strerror(number)}") as caught:
            WRITERS[writer](hand_batch(), path)
    assert (" MB free on this disk" in str(caught.value)) == (number != errno.EACCES)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    WRITERS[writer](hand_batch(), path)  # it can be tried again


def test_a_proof_is_known_by_its_first_key(tmp_path: Path) -> None:
    save_proof(hand_batch(), tmp_path / "proof.json")
    with (tmp_path / "proof.json").open("rb") as stream:
        assert PROOF.has(stream)
    other = BytesIO(json.dumps({"proof": "rounddiag_proof"}).encode())
    assert not PROOF.has(other)
