"""Small files that ask for gigabytes, minutes, or a crash: the kinds of issue 14.

`size` scales what a file asks for: 1 asks for gigabytes, so that a limit is reached.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from rounddiag.loaders import save
from tests.loaders.parquet.tables import FOOTER
from tests.loaders.refusal import text
from tests.loaders.wide_files import ROWS, of_other_keys, of_rounds, own, write_lines

PROTO = b"\x80\x04"
OWN = {"rounddiag": json.dumps(FOOTER)}
MILLION = 1_000_000


def zeros(count: int) -> pa.Array:
    """Return one list of many zeros, which compress to nothing."""
    values = pa.array(np.zeros(count, np.float32))
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), values)


def parquet_of_zeros(path: Path, size: float) -> None:
    names = ("rollout_log_probs", "old_log_probs", "entropy", "advantages")
    column = zeros(int(120 * MILLION * size))
    ids = column.cast(pa.list_(pa.int32()))
    columns = {"response_ids": ids, "response_mask": ids}
    table = pa.table(columns | dict.fromkeys(names, column))
    pq.write_table(table.replace_schema_metadata(OWN), path, compression="zstd")


def schemas_that_disagree(path: Path, size: float) -> None:
    """Write lists of two, which the schema of Arrow beside them says are of many."""
    table = pa.table(ROWS)
    many = pa.list_(pa.int64(), int(1_000_000_000 * size))
    claimed = pa.schema([(name, many) for name in table.column_names])
    text = base64.b64encode(claimed.serialize().to_pybytes())
    table = table.replace_schema_metadata({"ARROW:schema": text})
    pq.write_table(table, path, store_schema=False)


def varint(number: int) -> bytes:
    """Write a number as Thrift's compact protocol does."""
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def rows_of_the_footer(path: Path, size: float) -> None:
    """Write one row, which the footer says are many."""
    count, many = 4321, int(2**40 * size)
    ids = pa.array(np.zeros((count, 1), np.int64).tolist())
    pq.write_table(pa.table(dict.fromkeys(ROWS, ids)), path, store_schema=False)
    data = path.read_bytes()
    length = struct.unpack("<I", data[-8:-4])[0]
    footer = data[-8 - length : -8].replace(varint(2 * count), varint(2 * many))
    data = data[: -8 - length] + footer
    path.write_bytes(data + struct.pack("<I", len(footer)) + b"PAR1")


def long_page_header(path: Path, num_elements: int) -> None:
    """Begin each page with a field that is a list of so many empty structures."""
    size = 100_000
    pq.write_table(
        pa.table({name: pa.array([[0] * size]) for name in ROWS}),
        path,
        compression="none",
        use_dictionary=False,
    )
    data = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path).row_group(0)
    for number in range(metadata.num_columns):
        start = metadata.column(number).data_page_offset
        head = b"\x19\xfc" + varint(num_elements)
        data[start : start + size] = head.ljust(size, b"\x00")
    path.write_bytes(data)


def with_dtype(path: Path, dtype: bytes) -> None:
    """Write a column of texts that is marked as of a very wide dtype."""
    save(own(1), path)
    table = pq.read_table(path)
    field = pa.field("sample:wide", pa.string(), metadata={b"rounddiag.dtype": dtype})
    table = table.append_column(field, pa.array(["a", "b"]))
    pq.write_table(table, path)


def json_cells(path: Path, size: float) -> None:
    save(own(1), path)
    cell = "[" + "[]," * int(30 * MILLION * size) + "0]"
    field = pa.field("sample:cells", pa.string(), metadata={b"rounddiag": b"json"})
    table = pq.read_table(path).append_column(field, pa.array([cell, "0"]))
    pq.write_table(table, path, compression="zstd")


def copied_memo(path: Path, size: float, call: bytes, item: bytes) -> None:
    """Write a pickle that copies one value of its memo again and again."""
    count = int(20_000 * size)
    head = call + b"\x94" + item + b"\x94]("
    path.write_bytes(PROTO + head + b"h\x00h\x01\x85R" * count + b"e.")


def big_list(length: int) -> bytes:
    return b"](" + b"K\x01" * length + b"e"


def shared_lists(depth: int = 60) -> list[object]:
    """Return lists in lists whose text is 2 to the power of the depth long."""
    shared: list[object] = [1]
    for _ in range(depth):
        shared = [shared, shared]
    return shared


def torch_fields(path: Path, **fields: object) -> None:
    torch.save({**{k: torch.tensor(v) for k, v in ROWS.items()}, **fields}, path)


def one_row_many_times(path: Path, size: float) -> None:
    row = torch.zeros(int(1000 * size))
    torch.save({name: [row] * MILLION for name in ROWS}, path)


def repeated_elements(path: Path, size: float) -> None:
    """Write tensors of stride 0: each is just below what one may repeat."""
    wide = torch.zeros(1).expand(1 << 25, 2).reshape(-1)[:1].expand(1 << 25)
    torch_fields(path, **{f"entry_{i}": wide for i in range(int(40 * size))})


def overlapping(path: Path, size: float) -> None:
    count, room = int(500 * size), 20 * MILLION
    entry = {"dtype": "F32", "shape": [room // 4], "data_offsets": [0, room]}
    header = json.dumps(dict.fromkeys(map(str, range(count)), entry)).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(room))


def one_value_for_all_rows(path: Path, size: float) -> None:
    """Write a TensorDict with one value for as many rows as the file has bytes."""

    def make(*_: object) -> None:
        """Stand in for the function of tensordict of this name."""

    class TensorDict:
        def __init__(self, state: dict[str, object]) -> None:
            self.state = state

        def __reduce__(self) -> tuple[object, ...]:
            return make, ("TensorDict", self.state)

    class NonTensorData:
        def __init__(self, state: dict[str, object]) -> None:
            self.__dict__.update(state)

    modules = {
        "tensordict": ModuleType("tensordict"),
        "tensordict._reductions": ModuleType("_reductions"),
        "tensordict.tensorclass": ModuleType("tensorclass"),
    }
    make.__module__, make.__qualname__ = "tensordict._reductions", "_make_td"
    setattr(modules[make.__module__], "_make_td", make)  # noqa: B010
    NonTensorData.__module__ = "tensordict.tensorclass"
    NonTensorData.__qualname__ = "NonTensorData"
    setattr(modules[NonTensorData.__module__], "NonTensorData", NonTensorData)  # noqa: B010
    count = int(2**24 * size)
    shape = TensorDict({"_batch_size": torch.Size([count])})
    value = NonTensorData({"tensordict": shape, "non_tensordict": {"data": "a"}})
    fields = {name.replace("_ids", "s"): torch.tensor(v) for name, v in ROWS.items()}
    room = torch.zeros(2, count // 2, dtype=torch.int8)
    entries = {**fields, "unused": room, "uid": value}
    with patch.dict(sys.modules, modules):
        torch.save(TensorDict({"_tensordict": entries}), path)


def zip_of_one_entry(path: Path, size: float) -> None:
    data = io.BytesIO()
    np.save(data, np.zeros(MILLION))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0.npy", data.getvalue())
        for number in range(1, int(10_000 * size)):
            info = archive.infolist()[0]
            again = zipfile.ZipInfo(f"{number}.npy")
            again.header_offset, again.CRC = info.header_offset, info.CRC
            again.file_size = again.compress_size = info.file_size
            archive.filelist.append(again)
        setattr(archive, "_didModify", True)  # noqa: B010 not in its types


def arrow(path: Path, column: Any, count: int) -> None:
    fields = {name: pa.array([rows[0]] * count) for name, rows in ROWS.items()}
    table = pa.table({**fields, "odd": column})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as to:
        to.write_table(table)


def run_end_encoded(path: Path, size: float) -> None:
    count = int(400 * MILLION * size)
    values = pa.RunEndEncodedArray.from_arrays(pa.array([count]), pa.array([1.0]))
    table = pa.table(dict.fromkeys(ROWS, values))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as to:
        to.write_table(table)


def dictionaries_in_lists(path: Path, size: float) -> None:
    """Write lists of numbers that all stand for the same long text."""
    count = int(20_000 * size)
    numbers = pa.array(np.zeros(count, np.int32))
    texts = pa.DictionaryArray.from_arrays(numbers, ["x" * MILLION])
    offsets = pa.array(np.arange(count + 1), pa.int32())
    arrow(path, pa.ListArray.from_arrays(offsets, texts), count)


def list_views(path: Path, size: float) -> None:
    """Write views that all show the same list."""
    count = int(20_000 * size)
    starts = pa.array(np.zeros(count, np.int32))
    sizes = pa.array(np.full(count, MILLION, np.int32))
    values = pa.array(np.zeros(MILLION, np.float32))
    views = pa.ListViewArray.from_arrays(starts, sizes, values)
    table = pa.table(dict.fromkeys(ROWS, views))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as to:
        to.write_table(table)


def string_views(path: Path, size: float) -> None:
    """Write views that all show the same text."""
    count, data = int(20_000 * size), b"x" * MILLION
    views = struct.pack("<i4sii", len(data), data[:4], 0, 0) * count
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    arrow(path, pa.Array.from_buffers(pa.string_view(), count, buffers), count)


def picture(path: Path, data: bytes, count: int) -> None:
    bytes_of = pa.array([[{"bytes": data, "path": None}] * count, []])
    pq.write_table(pa.table({**ROWS, "images": bytes_of}), path)


def scans(size: float) -> bytes:
    """Return a progressive JPEG with one scan repeated many times."""
    data = io.BytesIO()
    side = int(4000 * size**0.5)
    Image.new("RGB", (side, side)).save(data, format="JPEG", progressive=True)
    whole = data.getvalue()
    start = whole.index(b"\xff\xda")
    end = whole.index(b"\xff\xda", start + 2)
    return whole[:end] + whole[start:end] * int(300 * size) + whole[end:]


def webp(size: float) -> bytes:
    data, side = io.BytesIO(), int(9400 * size**0.5)
    Image.new("RGB", (side, side)).save(data, format="WEBP", method=0)
    return data.getvalue()


def with_tokenizer(path: Path, tokenizer: dict[str, Any]) -> None:
    """Write our own file that names a tokenizer beside it."""
    save(own(1), path)
    table = pq.read_table(path)
    footer = {**FOOTER, "tokenizer": "tokenizer.json"}
    metadata = {"rounddiag": json.dumps(footer)}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    (path.parent / "tokenizer.json").write_text(json.dumps(tokenizer))


def tokenizer(decoder: dict[str, Any]) -> dict[str, Any]:
    vocabulary = {f"{'a' * 200}{i}": i for i in range(10) if i != 5} | {" ": 5, "a": 10}
    return {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"},
        "decoder": decoder,
    }


def backtracking() -> dict[str, Any]:
    pattern = {"Regex": "(a|a|aa)*(a|b)*(a|c)*\\1$^x"}
    return tokenizer({"type": "Replace", "pattern": pattern, "content": ""})


def doubling() -> dict[str, Any]:
    """Return a decoder whose text is 2 to the power of 60 long: the process ends."""
    twice = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return tokenizer({"type": "Sequence", "decoders": [twice] * 60})


def panicking() -> dict[str, Any]:
    """Return a decoder that strips more than a token of spaces has: `Strip` panics."""
    return tokenizer({"type": "Strip", "content": " ", "start": 0, "stop": 5})


def duplicate_keys(path: Path, size: float) -> None:
    keys = ", ".join(f'"{i}": 0' for i in range(int(100_000 * size)))
    path.write_text(f'{{{keys}, "0": 1}}\n')


KINDS: dict[str, tuple[str, Callable[[Path, float], object]]] = {
    "Parquet, zeros": ("a.parquet", parquet_of_zeros),
    "Parquet, two schemas": ("a.parquet", schemas_that_disagree),
    "Parquet, rows of the footer": ("a.parquet", rows_of_the_footer),
    "Parquet, page header of 2^62": (
        "a.parquet",
        lambda p, _: long_page_header(p, 2**62),
    ),
    "Parquet, dtype <U16000000": (
        "a.parquet",
        lambda p, _: with_dtype(p, b"<U16000000"),
    ),
    "Parquet, cells of JSON": ("a.parquet", json_cells),
    "pickle, sets of one list": (
        "a.pkl",
        lambda p, s: copied_memo(p, s, b"cbuiltins\nset\n", big_list(50_000)),
    ),
    "pickle, torch.Size of one list": (
        "a.pkl",
        lambda p, s: copied_memo(p, s, b"ctorch\nSize\n", big_list(50_000)),
    ),
    "pickle, text encoded again": (
        "a.pkl",
        lambda p, s: copied_memo(p, s, b"c_codecs\nencode\n", text("x" * 200_000)),
    ),
    "pickle, lists in lists": (
        "a.pkl",
        lambda p, _: p.write_bytes(pickle.dumps({**ROWS, "uid": shared_lists()})),
    ),
    "pickle, marks": (
        "a.pkl",
        lambda p, s: p.write_bytes(PROTO + b"(" * int(20 * MILLION * s)),
    ),
    "torch, stride 0": ("a.pt", repeated_elements),
    "torch, rows that are one row": ("a.pt", one_row_many_times),
    "safetensors, overlapping": ("a.safetensors", overlapping),
    "NonTensorData, 2^24 rows": ("a.pt", one_value_for_all_rows),
    "npz, one entry 10,000 times": ("a.npz", zip_of_one_entry),
    "Arrow, run-end encoding": ("a.arrow", run_end_encoded),
    "Arrow, string views": ("a.arrow", string_views),
    "Arrow, list views": ("a.arrow", list_views),
    "Arrow, dictionaries in lists": ("a.arrow", dictionaries_in_lists),
    "JSON lines, other keys": (
        "a.jsonl",
        lambda p, s: write_lines(of_other_keys(int(20_000 * s)), p),
    ),
    "JSON lines, a key twice": ("a.jsonl", duplicate_keys),
    "JPEG of 300 scans": ("a.parquet", lambda p, s: picture(p, scans(s), 4)),
    "WebP of 88 megapixels": ("a.parquet", lambda p, s: picture(p, webp(s), 8)),
    "tokenizer, backtracking": (
        "a.parquet",
        lambda p, _: with_tokenizer(p, backtracking()),
    ),
    "tokenizer, doubling": ("a.parquet", lambda p, _: with_tokenizer(p, doubling())),
    "tokenizer, panicking": ("a.parquet", lambda p, _: with_tokenizer(p, panicking())),
    "100,000 rounds": ("a.parquet", lambda p, s: save(of_rounds(int(100_000 * s)), p)),
}
