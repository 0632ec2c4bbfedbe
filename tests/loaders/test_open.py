"""What `load` opens, and what it says of files that it cannot."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from tests.loaders.verl_writer import pickled, small_batch, write


def write_pt(path: Path) -> None:
    torch.save(small_batch(), path)


def write_old_pt(path: Path) -> None:
    torch.save(small_batch(), path, _use_new_zipfile_serialization=False)


def write_safetensors(path: Path) -> None:
    safetensors.torch.save_file(small_batch(), path)


def write_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **{name: value.numpy() for name, value in small_batch().items()})  # type: ignore[arg-type]


def write_proto(path: Path) -> None:
    write(path, small_batch())


@pytest.mark.parametrize(
    "writer", [write_pt, write_old_pt, write_safetensors, write_npz, write_proto]
)
def test_the_format_is_found_from_the_content(writer: object, tmp_path: Path) -> None:
    path = tmp_path / "batch.dat"
    assert callable(writer)
    writer(path)

    batch = load(path)

    assert batch.rounds.start.tolist() == [0, 3, 4]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]
    assert batch.lengths.tolist() == [4, 1]
    assert batch.require_ids().tolist() == [5, 6, 7, 8, 9, 0, 0, 0]
    assert batch.log_probs("old")[:4].tolist() == [-1.5, -2.0, -9.0, -0.5]
    assert batch.log_probs("rollout")[4].item() == -4.0
    assert batch.prompt_ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_data_proto_opens_in_every_protocol(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    numbers = np.array([3, 4], dtype=np.int16)
    info = {"numbers": numbers, "temperature": np.float64(0.5)}
    columns = {"uid": ["a", "b"], "turns": [np.int32(2), np.int32(5)]}
    path.write_bytes(pickled(small_batch(), columns, info, protocol))

    batch = load(path)

    assert batch.log_probs("old")[:2].tolist() == [-1.5, -2.0]
    assert batch.group_ids == ("a", "b")
    assert batch.sample_columns["turns"].tolist() == [2, 5]
    assert batch.meta["sampling"] == {"temperature": 0.5}


def test_our_own_file_opens_too(tmp_path: Path) -> None:
    path = tmp_path / "batch.anything"
    save(load(write(tmp_path / "a.pkl", small_batch())), path)

    assert load(path).log_probs("old")[:4].tolist() == [-1.5, -2.0, -9.0, -0.5]


@pytest.mark.parametrize(
    ("names", "columns", "missing", "advice"),
    [
        (
            "ids m new_lp",
            {"response_ids": "ids", "old_log_probs": "new_lp"},
            "`response_mask` is missing",
            '"response_mask": "...", "rollout_log_probs": "..."',
        ),
        (
            "ids a b",
            {"rollout_log_probs": "a", "old_log_probs": "b"},
            "`response_ids` and `response_mask` are missing",
            '"response_ids": "...", "response_mask": "..."',
        ),
    ],
)
def test_what_is_missing_after_renaming_is_reported_under_the_user_s_names(
    names: str, columns: dict[str, str], missing: str, advice: str
) -> None:
    table = {name: [[5 if name == "ids" else -2.0]] for name in names.split()}
    message = (
        f"found that {missing}, where the columns are {', '.join(table)}. Name the"
        f" columns: `columns={{{advice}}}`."
    )
    with pytest.raises(LoadError, match=re.escape(message)):
        load(table, columns=columns)


def test_a_home_folder_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pt(tmp_path / "a.pt")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert load("~/a.pt").num_samples == 2


def test_a_data_proto_in_a_torch_file_opens(tmp_path: Path) -> None:
    path = tmp_path / "test_data.pt"
    whole = pickled(small_batch(), {"uid": ["a", "b"]}, protocol=2)
    torch.save({}, path)
    rezip(path, whole)

    assert load(path).group_ids == ("a", "b")


def rezip(path: Path, data: bytes) -> None:
    """Put another pickle into a torch file, as `torch.save` of that object writes."""
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
