"""Which files a folder or a glob means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from rounddiag.errors import LoadError
from rounddiag.loaders import paths as places
from rounddiag.loaders.format import Format
from rounddiag.loaders.paths import resolve_paths

if TYPE_CHECKING:
    from pathlib import Path

    from rounddiag.batch import Batch


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
    found = (form("*.pt"), form("*.pkl"), form("train/*.pt"), form("rollout/*.pt"))
    ranks = form("rank_*.jsonl", in_parts=True)
    monkeypatch.setattr(places, "FORMATS", (*found, ranks))


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def named(folder: Path, path: object = None) -> list[str]:
    files = resolve_paths(folder if path is None else folder / str(path))
    return [file.relative_to(folder).as_posix() for file in files]


def test_a_file_means_itself(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].dat", "a1.dat")
    assert named(tmp_path, "a[1].dat") == ["a[1].dat"]


def test_a_glob_means_its_files_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    touch(tmp_path, "b/rank_10.x", "b/rank_9.x", "a/rank_11.x", "a/other.y")
    (tmp_path / "a" / "folder.x").mkdir()
    assert named(tmp_path, "**/*.x") == ["a/rank_11.x", "b/rank_9.x", "b/rank_10.x"]


def test_a_folder_means_all_parts_of_a_step(tmp_path: Path) -> None:
    touch(tmp_path, "step_3/rank_10.jsonl", "step_3/rank_2.jsonl", "notes.txt")
    assert named(tmp_path) == ["step_3/rank_2.jsonl", "step_3/rank_10.jsonl"]


def test_names_with_a_folder_come_first_and_endings_last(tmp_path: Path) -> None:
    touch(tmp_path, "a.pt")
    assert named(tmp_path) == ["a.pt"]
    touch(tmp_path, "rank_0.jsonl")
    assert named(tmp_path) == ["rank_0.jsonl"]
    touch(tmp_path, "rollout/3.pt", "train/3.pt")
    assert named(tmp_path) == ["train/3.pt"]


def test_a_folder_of_several_steps_in_one_file_each_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{n}.pt" for n in range(6)))
    message = (
        f"{tmp_path}: expected the files of one step; found 6 batches: 0.pt, 1.pt,"
        " 2.pt, 3.pt and 2 more. Pass one of the files."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        resolve_paths(tmp_path)


def test_a_folder_without_a_known_name_is_an_error(tmp_path: Path) -> None:
    message = (
        f"{tmp_path}: expected a file with the name of a framework's file; found"
        " {}. `rounddiag.formats()` lists the names; pass the file itself."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message.format('no file'))}$"):
        resolve_paths(tmp_path)
    touch(tmp_path, "a.txt")
    with pytest.raises(LoadError, match=f"^{re.escape(message.format('a.txt'))}$"):
        resolve_paths(tmp_path)
