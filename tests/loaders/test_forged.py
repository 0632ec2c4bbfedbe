"""Containers whose sizes, places and names lie."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.verl_writer import pickled, small_batch

if TYPE_CHECKING:
    from pathlib import Path

HUGE = 1 << 40


class Lie:
    """Pickles as a tensor with this offset, shape and stride, on a real storage."""

    def __init__(
        self, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> None:
        self.view = (offset, shape, stride)
        self.storage = torch.zeros(4).untyped_storage()

    def __reduce__(self) -> tuple[object, ...]:
        typed = torch.storage.TypedStorage(
            wrap_storage=self.storage, dtype=torch.float32, _internal=True
        )
        hooks: OrderedDict[str, object] = OrderedDict()
        return torch._utils._rebuild_tensor_v2, (typed, *self.view, False, hooks)


LIES = {
    "a negative stride": Lie(3, (2, 2), (-1, 1)),
    "a negative size": Lie(0, (2, -2), (1, 1)),
    "a negative offset": Lie(-1, (2, 2), (2, 1)),
    "an offset beyond the storage": Lie(4, (1, 1), (1, 1)),
    "a shape beyond the storage": Lie(0, (2, 3), (3, 1)),
    "a stride beyond the storage": Lie(0, (2, 2), (HUGE, 1)),
    "a terabyte of one element": Lie(0, (1, HUGE), (0, 0)),
    "more elements than there are numbers": Lie(0, (HUGE, HUGE), (0, 0)),
    "fewer strides than sizes": Lie(0, (2, 2), (1,)),
}


def refused(path: Path) -> str:
    with pytest.raises(LoadError) as caught:
        load(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("lie", LIES)
def test_a_tensor_outside_its_storage_is_refused(
    lie: str, zipped: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.pt"
    fields = {**small_batch(), "responses": LIES[lie]}
    torch.save(fields, path, _use_new_zipfile_serialization=zipped)

    assert refused(path).endswith(
        "It is cut off, damaged or forged: copy or save it again."
    )


def test_a_storage_of_the_older_format_that_claims_too_much_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.pt"
    torch.save({"x": torch.zeros(3)}, path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] + struct.pack("<Q", HUGE) + whole[-12:])

    assert refused(path) == (
        "expected a whole file of its kind; found bytes"
        f" {len(whole) - 12} to {len(whole) - 12 + 4 * HUGE} of a part of {len(whole)}"
        " bytes. It is cut off, damaged or forged: copy or save it again."
    )


def torch_zip(tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / "a.pt"
    torch.save(small_batch(), path)
    return path, path.read_bytes()


def test_a_cut_off_zip_is_refused(tmp_path: Path) -> None:
    path, whole = torch_zip(tmp_path)
    path.write_bytes(whole[: len(whole) // 2])

    assert refused(path) == (
        "expected a whole file of its kind; found a bad zip: File is not a zip file."
        " It is cut off, damaged or forged: copy or save it again."
    )


def test_a_zip_whose_directory_points_elsewhere_is_refused(tmp_path: Path) -> None:
    path, whole = torch_zip(tmp_path)
    at = whole.rindex(b"PK\x01\x02")  # the last entry of the directory
    path.write_bytes(whole[: at + 42] + struct.pack("<L", 7) + whole[at + 46 :])

    assert "no zip entry where" in refused(path)


def test_a_zip_entry_larger_than_the_file_is_refused(tmp_path: Path) -> None:
    path, whole = torch_zip(tmp_path)
    at = whole.index(b"PK\x01\x02")
    path.write_bytes(whole[: at + 24] + b"\xf0\xff\xff\xff" + whole[at + 28 :])

    assert "found bytes" in refused(path)


def test_a_zip_bomb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10_000_000)

    assert refused(path) == (
        "expected tensors stored as they are; found 'archive/data.pkl' compressed. Save"
        " it without compression: `numpy.savez`, or `torch.save`."
    )


def test_a_storage_that_is_not_in_the_zip_is_refused(tmp_path: Path) -> None:
    path, whole = torch_zip(tmp_path)
    path.write_bytes(whole.replace(b"data/1", b"data/_"))

    assert "found no storage '1' in the zip. " in refused(path)


def test_a_torch_file_from_a_consolidated_batch_that_lies_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.pkl"
    data = pickled(small_batch())
    real = b"K\x20K\x60K\x00t"  # `responses` stands from byte 32 to 96
    assert data.count(real) == 1
    for start, stop in ((0xF0, 0x60), (0x20, 0x21), (0x20, 0x10), (0xF0, 0xFF)):
        lie = bytes([ord("K"), start, ord("K"), stop, ord("K"), 0, ord("t")])
        path.write_bytes(data.replace(real, lie))
        assert "found bytes" in refused(path)


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
        " to the end. Save every field for the same samples and response positions."
    )


def test_an_empty_storage_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    buffer = io.BytesIO()
    torch.save({name: value[:0] for name, value in small_batch().items()}, buffer)
    path.write_bytes(buffer.getvalue())

    assert load(path).num_samples == 0
