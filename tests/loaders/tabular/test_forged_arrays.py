"""Arrays, safetensors and nested tensors whose sizes and places lie."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.loaders import load
from tests.loaders.refusal import refused_file as refused
from tests.loaders.verl_writer import pickled, small_batch

HUGE = 1 << 40


def safetensors(path: Path, header: Any, data: bytes = b"\0" * 64) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "I64", "shape": [2, HUGE], "data_offsets": [0, 64]},
        {"dtype": "I64", "shape": [2, 2], "data_offsets": [0, 65]},
        {"dtype": "I64", "shape": [2, 2], "data_offsets": [-8, 32]},
        {"dtype": "I64", "shape": [2, 2], "data_offsets": [32, 0]},
        {"dtype": "I64", "shape": [2, "2"], "data_offsets": [0, 32]},
        {"dtype": "C64", "shape": [2, 2], "data_offsets": [0, 32]},
        {"dtype": "I64", "shape": [2, 2]},
        ["I64"],
    ],
)
def test_a_safetensors_header_that_lies_is_refused(
    entry: object, tmp_path: Path
) -> None:
    path = safetensors(tmp_path / "a.safetensors", {"responses": entry})

    assert refused(path).endswith("copy or save it again.")


@pytest.mark.parametrize("header", [b"{" * 50_000, b'{"a":', b"{}"])
def test_a_safetensors_header_that_is_none_is_refused(
    header: bytes, tmp_path: Path
) -> None:
    assert refused(safetensors(tmp_path / "a.safetensors", header))


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(2, -1)", "(" * 3000])
def test_an_array_header_that_lies_is_refused(shape: str, tmp_path: Path) -> None:
    header = (
        f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    )
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 64
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("responses.npy", npy)

    assert refused(path)


def test_objects_in_an_npz_are_read_by_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    fields = {name: value.numpy() for name, value in small_batch().items()}
    np.savez(path, uid=np.array(["a", "b"], dtype=object), **fields)  # type: ignore[arg-type]
    assert load(path).group_ids == ("a", "b")

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return print, ("executed",)

    np.savez(path, uid=np.array([Evil(), "b"], dtype=object), **fields)  # type: ignore[arg-type]
    assert "a call of `builtins.print`, which was not made" in refused(path)


def test_offsets_of_a_nested_tensor_that_fall_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    nested = {
        "<NJT_VALUES>responses": torch.arange(4),
        "<NJT_LENGTHS>responses": torch.tensor([9, -9]),
        "<NJT_OFFSETS>responses": torch.tensor([0, 9, 4]),
    }
    path.write_bytes(pickled(nested))
    assert refused(path).startswith("`responses`: expected rows of numbers; found ")
    del nested["<NJT_LENGTHS>responses"]
    path.write_bytes(pickled(nested))
    assert refused(path) == (
        "`responses`: expected rows of numbers; found offsets that do not rise from 0"
        " to the end. Save every field for the same samples and tokens."
    )


def test_an_empty_storage_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    buffer = io.BytesIO()
    torch.save({name: value[:0] for name, value in small_batch().items()}, buffer)
    path.write_bytes(buffer.getvalue())

    assert load(path).num_samples == 0
