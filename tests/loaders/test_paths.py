"""Which files a folder or a glob means."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders import paths as places
from rounddiag.loaders.format import Format
from rounddiag.loaders.paths import is_url, name_others, resolve_paths
from rounddiag.loaders.source import inside


def unread(_: Any, source: object) -> Batch:
    raise AssertionError(source)


def form(*files: str, in_parts: bool = False) -> Format:
    return Format(
        name="a",
        framework="a",
        files=files,
        keys=("a",),
        read=unread,
        in_parts=in_parts,
    )


@pytest.fixture(autouse=True)
def _formats(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["*.pt", "*.pkl", "*.safetensors", "train_data/*.pt", "rollout_data/*.pt"]
    ranks = form("rank_*.jsonl", in_parts=True)
    monkeypatch.setattr(places, "FORMATS", (*map(form, names), ranks))


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def names_of(folder: Path, path: object = None) -> list[str]:
    files = resolve_paths(folder if path is None else folder / str(path))
    return [file.relative_to(folder).as_posix() for file in files]


def test_a_file_means_itself(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].dat", "a1.dat")
    assert names_of(tmp_path, "a[1].dat") == ["a[1].dat"]


def test_a_glob_means_its_files_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    touch(tmp_path, "b/rank_10.x", "b/rank_9.x", "a/rank_11.x", "a/other.y")
    (tmp_path / "a" / "folder.x").mkdir()
    assert names_of(tmp_path, "**/*.x") == ["a/rank_11.x", "b/rank_9.x", "b/rank_10.x"]


def test_a_folder_means_all_parts_of_a_step(tmp_path: Path) -> None:
    touch(tmp_path, "step_3/rank_10.jsonl", "step_3/rank_2.jsonl", "notes.txt")
    assert names_of(tmp_path) == ["step_3/rank_2.jsonl", "step_3/rank_10.jsonl"]


def test_names_with_a_folder_come_first_and_endings_last(tmp_path: Path) -> None:
    touch(tmp_path, "a.pt")
    assert names_of(tmp_path) == ["a.pt"]
    touch(tmp_path, "rank_0.jsonl")
    assert names_of(tmp_path) == ["rank_0.jsonl"]
    (tmp_path / "rank_0.jsonl").unlink()
    touch(tmp_path, "rollout_data/3.pt", "train_data/3.pt")
    assert names_of(tmp_path) == ["train_data/3.pt"]


CHECKPOINT = (
    *("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
    *("optimizer.pt", "model_world_size_8_rank_0.pt", "config.json"),
)
SEVERAL = "expected the files of one step; found"
UNKNOWN = "expected a file with the name of a framework's file; found"
REFUSED: dict[tuple[str, ...], str] = {
    ("3.pt", "3.pkl"): f"{SEVERAL} 2 batches: 3.pt, 3.pkl.",
    ("train_data/3.pt", "rank_0.jsonl"): (
        f"{SEVERAL} 2 batches: train_data/3.pt, rank_0.jsonl."
    ),
    CHECKPOINT: (
        f"{SEVERAL} a model checkpoint: model-00001-of-00002.safetensors,"
        " model-00002-of-00002.safetensors, model_world_size_8_rank_0.pt, optimizer.pt."
    ),
    tuple(f"{n}.pt" for n in range(6)): (
        f"{SEVERAL} 6 batches: 0.pt, 1.pt, 2.pt, 3.pt and 2 more."
    ),
    (): f"{UNKNOWN} no file.",
    ("a.txt",): f"{UNKNOWN} a.txt.",
}


@pytest.mark.parametrize("names", REFUSED)
def test_a_folder_that_means_no_files_or_too_many(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    touch(tmp_path, *names)
    message = re.escape(f"{tmp_path}: {REFUSED[names]}")
    with pytest.raises(LoadError, match=f"^{message}"):
        resolve_paths(tmp_path)


def test_files_of_other_names_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "train_data/3.pt", "rollout_data/3.pt", "log.txt", *CHECKPOINT)
    files = resolve_paths(tmp_path)
    assert name_others(tmp_path, files) == ""
    touch(tmp_path, "a/step_1.pkl", "b.pt")
    assert files == resolve_paths(tmp_path)
    assert name_others(tmp_path, files) == "a/step_1.pkl, b.pt"
    assert name_others(files[0], files) == ""


def test_a_batch_beside_a_checkpoint_is_taken(tmp_path: Path) -> None:
    touch(tmp_path, *CHECKPOINT, "step_3.pt")
    assert names_of(tmp_path) == ["step_3.pt"]


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("s3://bucket/run", True),
        (Path("s3://bucket/run"), True),
        ("simplecache::s3://bucket/run", True),
        ("runs/step 1://x", False),
        ("C:/runs", False),
        ("/runs", False),
    ],
)
def test_a_url_names_its_protocol(address: str | Path, wanted: bool) -> None:
    assert is_url(address) == wanted


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A folder with a file, and links and other things beside it."""
    folder = tmp_path / "folder"
    (folder / "d").mkdir(parents=True)
    (folder / "a.png").write_bytes(b"12345")
    (tmp_path / "secret").write_bytes(b"x")
    (folder / "link").symlink_to("a.png")
    (folder / "out").symlink_to("../secret")
    (folder / "way").symlink_to("..")
    (folder / "dangling").symlink_to("nothing")
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "fifo")
    return folder


@pytest.mark.parametrize("name", ["a.png", "d/../a.png", "link", "./a.png"])
def test_a_file_inside_a_folder(stranger: Path, name: str) -> None:
    assert inside(stranger, name, most_bytes=5) == (stranger / "a.png").resolve()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret", "which is outside"),
        ("out", "which is outside"),
        ("way/secret", "which is outside"),
        ("/etc/passwd", "which is outside"),
        ("dangling", "which does not exist"),
        ("circle", "which cannot be opened"),
        ("fifo", "which is no regular file"),
        ("d", "which is no regular file"),
        ("", "which is no regular file"),
        ("n" * 5000, "which cannot be opened"),
        ("a\0b", "which cannot be opened"),
        ("\ud800", "which cannot be opened"),
    ],
)
def test_a_name_that_is_not_of_a_file_inside(
    stranger: Path, name: str, message: str
) -> None:
    with pytest.raises(LoadError, match=f"folder: expected the name of .*{message}"):
        inside(stranger, name)


def test_a_file_that_is_too_large(stranger: Path) -> None:
    message = "a file of at most 4 bytes in this folder; found 'a.png' of 5 bytes"
    with pytest.raises(LoadError, match=message):
        inside(stranger, "a.png", most_bytes=4)


def test_a_snapshot_in_the_cache_of_hugging_face(tmp_path: Path) -> None:
    """Its files are links to `blobs`, beside `snapshots`."""
    snapshot, blobs = tmp_path / "m" / "snapshots" / "1f", tmp_path / "m" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "abc").write_text("{}")
    (tmp_path / "m" / "other").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    (snapshot / "out.json").symlink_to("../../other")
    assert inside(snapshot, "config.json") == (blobs / "abc").resolve()
    with pytest.raises(LoadError, match="outside"):
        inside(snapshot, "out.json")
