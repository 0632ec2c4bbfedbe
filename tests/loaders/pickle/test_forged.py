"""Torch files whose sizes, places and names lie."""

from __future__ import annotations

import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from tests.loaders.refusal import refused_file as refused
from tests.loaders.verl_writer import pickled, small_batch

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
