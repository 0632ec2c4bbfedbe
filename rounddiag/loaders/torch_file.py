"""Files of `torch.save`, read without torch's unpickler. Tensors stay in the file.

========================  =======================================================
the stream has            it becomes
========================  =======================================================
persistent id             `Storage`: its bytes in the file
`_rebuild_tensor_v2`      `Node`; `stored_tensor` turns it into a `StoredTensor`
`_load_from_bytes`        `Node` with a whole torch file inside, in the older format
========================  =======================================================
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from rounddiag.errors import LoadError
from rounddiag.loaders.pickle.placeholders import Name
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.source import Span, SpanReader, damage_error

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ShortStorage": torch.int16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "UntypedStorage": torch.uint8,
}


@dataclass(eq=False, slots=True)
class Storage:
    """The memory behind tensors: the dtype of its elements, and where they are."""

    dtype: torch.dtype
    span: Span | None = None


def read_torch(span: Span) -> object:
    """Return the object that was saved, as plain data, nodes and storages."""
    with span.open() as stream:
        if stream.read(4) == b"PK\x03\x04":
            return _read_zip(span)
        stream.seek(0)
        return _read_legacy(span, stream)


def _read_zip(span: Span) -> object:
    entries = zip_entries(span)
    pickles = [name for name in entries if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise damage_error(found=f"a zip with {len(pickles)} `data.pkl`")
    folder = pickles[0].removesuffix("data.pkl")

    def storage(key: object) -> Storage:
        name, dtype = _storage_key(key)
        if f"{folder}data/{name}" not in entries:
            raise damage_error(found=f"no storage {name!r:.40} in the zip")
        return Storage(dtype, entries[f"{folder}data/{name}"])

    pickle = entries[pickles[0]]
    with pickle.open() as stream:
        return PickleMachine(pickle, stream, storage).run()


@contextmanager
def open_zip(span: Span) -> Iterator[zipfile.ZipFile]:
    """Open a zip; what is wrong with it is a LoadError."""
    try:
        with span.open() as stream, zipfile.ZipFile(stream) as archive:
            yield archive
    except LoadError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        OSError,
        OverflowError,
        struct.error,
        ValueError,
    ) as error:
        raise damage_error(found=f"a bad zip: {error}") from error


def zip_entries(span: Span) -> dict[str, Span]:
    """Return the spans of the entries of a zip.

    The directory at the end of a zip and the header before an entry can differ: the
    directory locates the header, and the header locates the data.
    """
    with open_zip(span) as archive, span.open() as stream:
        entries = [
            (entry.filename, _zip_entry(span, stream, entry))
            for entry in archive.infolist()
        ]
    if sum(len(entry) for _, entry in entries) > len(span):
        raise damage_error(found="entries of a zip that overlap")
    return dict(entries)


def _zip_entry(span: Span, stream: SpanReader, entry: zipfile.ZipInfo) -> Span:
    if entry.compress_type != zipfile.ZIP_STORED:
        raise span.source.error(
            expected="tensors stored as they are",
            found=f"{entry.filename!r:.60} compressed",
            advice="Save it without compression: `numpy.savez`, or `torch.save`.",
        )
    return span.part(data_start(stream, entry), entry.file_size)


def data_start(stream: SpanReader, entry: zipfile.ZipInfo) -> int:
    """Return where the data of an entry starts: after its own header."""
    stream.seek(entry.header_offset)
    header = stream.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":  # noqa: PLR2004 its fixed part
        raise damage_error(found=f"no zip entry where {entry.filename!r:.60} should be")
    name, extra = struct.unpack("<HH", header[26:30])
    return entry.header_offset + len(header) + name + extra


def _read_legacy(span: Span, stream: SpanReader) -> object:
    storages: dict[str, Storage] = {}

    def storage(key: object) -> Storage:
        name, dtype = _storage_key(key)
        return storages.setdefault(name, Storage(dtype))

    magic, _version, _system, root, names = (
        PickleMachine(span, stream, storage).run() for _ in range(5)
    )
    if magic != LEGACY_MAGIC or not isinstance(names, list):
        raise damage_error(found="no magic number of torch")
    for name in names:
        if not isinstance(name, str) or name not in storages:
            raise damage_error(found="a storage that no tensor uses")
        width = storages[name].dtype.itemsize
        size = int.from_bytes(stream.read(8), "little") * width
        storages[name].span = span.part(stream.tell(), size)
        stream.seek(size, 1)
    return root


def _storage_key(key: object) -> tuple[str, torch.dtype]:
    match key:
        case ("storage", Name(name), str(number), *_):
            dtype = _STORAGES.get(name.rpartition(".")[2])
            if name.startswith("torch.") and dtype is not None:
                return number, dtype
    raise damage_error(found="a storage of an unknown kind")
