"""Where files go: local disks, also full ones, and object storage."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from rounddiag.capture import Recorder, options
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import SUPPRESSED, DataProto


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    is_root = os.geteuid() == 0 and shutil.which("mount") is not None
    if not is_root or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("only root can make a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_logged_once_and_leaves_no_partial_file(
    proto: DataProto, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder(small_disk, every=1) as recorder:
        recorder.step(0, proto)
        recorder.close()
        (small_disk / "other").write_bytes(bytes(40_000))
        for step in (1, 2, 3):
            recorder.step(step, proto)
            recorder.close()
    assert 0 < recorder.errors <= 3
    assert len(caplog.messages) == 1
    assert "No space left on device" in caplog.messages[0]
    files = sorted(path.name for path in small_disk.iterdir())
    assert files[0] == "other"
    assert {len(load_parquet(small_disk / name)) for name in files[1:]} == {2}


def test_a_failed_write_leaves_no_partial_file(
    proto: DataProto,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with Recorder(tmp_path) as recorder:
        recorder.step(0, proto)
    assert recorder.errors == 1
    (message,) = caplog.messages
    assert message.startswith(f"step 0 was not saved: {tmp_path / 'step_0.parquet'}: ")
    assert "found No space left on device, with " in message
    assert message.endswith(SUPPRESSED)
    assert list(tmp_path.iterdir()) == []


def test_object_storage_gets_complete_files_only(
    proto: DataProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fsspec.filesystem("memory")
    seen: list[list[str]] = []
    move = type(files).mv

    def moving(self: object, old: str, new: str) -> None:
        seen.append(
            [path.rpartition("/")[2] for path in files.ls("/run/1", detail=False)]
        )
        move(self, old, new)

    monkeypatch.setattr(type(files), "mv", moving)
    with Recorder("memory://run/1") as recorder:
        recorder.step(0, proto)
        recorder.finish(0, proto)
    assert recorder.errors == 0
    assert files.ls("/run/1", detail=False) == ["/run/1/step_0.parquet"]
    (first,) = seen[0]
    assert first.startswith(".step_0.parquet.")
    assert first.endswith(".partial")
    files.get_file("/run/1/step_0.parquet", str(tmp_path / "copy.parquet"))
    assert load_parquet(tmp_path / "copy.parquet").loss_mask is not None


def test_a_failed_upload_leaves_no_partial_file(
    proto: DataProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fsspec.filesystem("memory")

    def fail(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(type(files), "mv", fail)
    with Recorder("memory://run/2") as recorder:
        recorder.step(0, proto)
    assert recorder.errors == 1
    assert files.ls("/run/2", detail=False) == []


def test_an_unknown_protocol_is_logged(
    proto: DataProto, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder("nowhere://bucket/run") as recorder:
        recorder.step(0, proto)
    assert recorder.errors == 1
    assert caplog.messages == [
        f"step 0 was not saved: ValueError: Protocol not known: nowhere {SUPPRESSED}"
    ]


def test_a_url_needs_fsspec_and_each_step_without_it_is_counted(
    proto: DataProto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    message = (
        "`folder`: expected a folder, or the package fsspec for a URL; found 's3://x/y'"
        " without fsspec. Install fsspec and the backend of your storage: `pip install"
        " fsspec s3fs` for S3, gcsfs for Google Cloud, adlfs for Azure."
    )
    with Recorder("s3://x/y") as recorder:
        recorder.step(0, proto)
        recorder.step(1, proto)
        recorder.step(10, proto)
    assert recorder.errors == 3  # the option, and the two steps that were due
    start = "the Recorder was not set up with its `folder`: "
    assert caplog.messages[0] == f"{start}{message} {SUPPRESSED}"
