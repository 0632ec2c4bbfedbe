"""Detect what a file holds and its format, from the content and not from the name.

=================  ==================================================================
`open_container`   open the content of a file, recognised by its first bytes
`content_names`    the names in it that identify the format
`FORMATS`          every format that `load` opens, in the order of trying
`find_format`      the first format whose keys are all present
`formats`          the formats as a table
=================  ==================================================================
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.nemo_rl import NEMO_RL
from rounddiag.loaders.frameworks.prime_rl import PRIME_RL
from rounddiag.loaders.frameworks.skyrl import SKYRL, SKYRL_0_1
from rounddiag.loaders.frameworks.slime import RANK, RANK_COLUMNS, ROLLOUTS, SAMPLES
from rounddiag.loaders.frameworks.trainer_fields import AREAL, OPENRLHF, TRL
from rounddiag.loaders.frameworks.verifiers_traces import EPISODES, PRIME_RL_TRACES
from rounddiag.loaders.frameworks.verl import DATA_PROTO, DATA_PROTO_VARIANTS, PAYLOAD
from rounddiag.loaders.lazy.tensors import read_tensordict
from rounddiag.loaders.lazy.torch_file import LEGACY_MAGIC, read_torch, zip_entries
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.source import describe_kind, format_names
from rounddiag.loaders.tabular.arrays import (
    DATASET,
    TENSORS,
    npz_root,
    safetensors_root,
)
from rounddiag.loaders.tabular.in_memory import columns_from_records
from rounddiag.loaders.tabular.json_lines import ZSTD, JsonLines
from rounddiag.loaders.tabular.table import Table

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source


_TENSOR = "torch._utils._rebuild_tensor"
_ARRAYS = ("multiarray._reconstruct", "numeric._frombuffer")
_START = 1 << 16  # bytes of a file that are searched for names and signatures
_MIN_LISTS = 3  # columns of lists; a record may have one or two lists of its own
_FIRST_KEY = re.compile(rb'\s*\{\s*\n([ \t]{1,8})"')
_SIGNATURES = (
    (b"<", "HTML or XML text"),
    (b"\x1f\x8b", "a gzip file"),
    (ZSTD, "a zstd file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\x93NUMPY", "a single numpy array"),
    (b"%PDF", "a PDF"),
)
_CSV = re.compile(rb"[\x20-\x5a\x5c-\x7e]+,[^\r\n\0]*\r?\n[^\r\n\0]*,")
_NO_CSV = (
    "Lists of numbers need Parquet, Arrow, JSON lines, `.npz`, `.safetensors`, `.pt` or"
    " `.pkl`. "
)
_LINES = (
    "Write JSON lines, with one row per line, or pass what `json.load` makes of the"
    " file. "
)


@dataclass(frozen=True)
class UnknownContent:
    """Content that no loader reads.

    Attributes
    ----------
    description : str
        What it looks like.
    names : tuple of str
        Its first keys, where it has any.
    advice : str
        What to do about it.
    """

    description: str
    names: tuple[str, ...] = ()
    advice: str = ""


def open_container(source: Source) -> object:
    """Open the content of a file; large tensors stay in the file."""
    head = source.whole().part(0, min(16, source.size)).read()
    # safetensors goes first: a file of it starts with a length, which can be any bytes.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < source.size:
        return safetensors_root(source)
    for signature, read in _READERS:
        if head.startswith(signature):
            return read(source)
    if head.startswith(ZSTD) and ".jsonl" in source.path.suffixes:
        return JsonLines(source)
    if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return _json_document(source) or JsonLines(source)
    return _describe_unknown(source)


def content_names(root: object) -> list[str]:
    """Return the names that identify the format: keys, or the class of an object."""
    match root:
        case JsonLines():
            return list(root.first)
        case Table():
            return [*root.names, *root.marks]
        case UnknownContent():
            return list(root.names)
        case Mapping():
            return [str(key) for key in root]
        case Node(name):
            return [name.rpartition(".")[2]]
    return []


def describe_content(root: object) -> str:
    """Describe what a file holds in a few words, for a message."""
    match root:
        case UnknownContent():
            return root.description
        case JsonLines():
            return f"JSON lines of {format_names(root.first)}"
        case Table():
            return f"a table of {format_names(root.names)}"
        case Mapping():
            keys = f"a dictionary of {format_names(root)}"
            return "model weights, not a batch" if is_weights(root) else keys
        case Node(name):
            return _describe_object(name)
    return f"a pickle of {describe_kind(root)}"


def _describe_object(name: str) -> str:
    if name.startswith(_TENSOR):
        return "a single tensor"
    if name.endswith(_ARRAYS):
        return "a single numpy array"
    return f"a pickle of {name:.80}"


def is_weights(root: Mapping[Any, object]) -> bool:
    """Return whether all values are floating-point tensors under dotted names."""
    has_dots = len(root) > 0 and all("." in str(key) for key in root)
    return has_dots and all(_is_floating_point(value) for value in root.values())


def _is_floating_point(value: object) -> bool:
    if isinstance(value, Node) and value.name.startswith(_TENSOR) and value.args:
        value = value.args[0]
    return getattr(getattr(value, "dtype", None), "is_floating_point", False) is True


def columns_in_one_line(lines: JsonLines) -> UnknownContent | None:
    """Describe a line that holds all rows, column by column; None for other lines."""
    columns = [name for name, value in lines.first.items() if _is_column(value)]
    if len(columns) < _MIN_LISTS:
        return None
    names = tuple(lines.first)
    return UnknownContent(f"one JSON object of {format_names(names)}", names, _LINES)


def _is_column(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(row, np.ndarray) for row in value)


def _json_document(source: Source) -> UnknownContent | None:
    """Return the first keys of one JSON document over many lines; else None."""
    start = source.whole().part(0, min(_START, source.size)).read()
    first = _FIRST_KEY.match(start)
    if first is None:
        return None
    key = rb'^%s"([^"\\]{1,80})"\s*:' % first[1]
    keys = re.findall(key, start, re.MULTILINE)
    names = tuple(name.decode(errors="replace") for name in keys)
    return UnknownContent(f"one JSON object of {format_names(names)}", names, _LINES)


def _describe_unknown(source: Source) -> UnknownContent:
    """Describe content by its first bytes."""
    start = source.whole().part(0, min(_START, source.size)).read()
    for signature, kind in _SIGNATURES:
        if start.startswith(signature):
            is_packed = kind in {"a gzip file", "a zstd file"}
            return UnknownContent(kind, advice="Unpack it first. " * is_packed)
    if _CSV.match(start):
        return UnknownContent("text with commas, as in a CSV file", advice=_NO_CSV)
    if start.lstrip().startswith(b"["):
        return UnknownContent("one JSON list", advice=_LINES)
    if not start:
        return UnknownContent("an empty file")
    return UnknownContent(f"bytes that start with {start[:8]!r}")


def _parquet(source: Source) -> object:
    """Return the names in one of our files, or a table of any other Parquet file."""
    from rounddiag.loaders.parquet.reader import parquet_names
    from rounddiag.loaders.tabular.arrow import parquet_table

    names = parquet_names(source)
    return names if "rounddiag" in names else parquet_table(source)


def _arrow(source: Source) -> object:
    from rounddiag.loaders.tabular.arrow import arrow_table

    return arrow_table(source)


def _zip(source: Source) -> object:
    entries = zip_entries(source.whole())
    if any(name.endswith("/data.pkl") for name in entries):
        return _fields_or_columns(read_torch(source.whole()), source)
    if entries and all(name.endswith(".npy") for name in entries):
        return npz_root(entries)
    return UnknownContent(f"a zip of {format_names(entries)}")


def _pickle(source: Source) -> object:
    """Read a pickle, or the older format of torch, which starts with a magic number."""
    span = source.whole()
    with span.open() as stream:
        root = PickleMachine(span, stream).run()
    root = read_torch(span) if root == LEGACY_MAGIC else root
    return _fields_or_columns(root, source)


def _fields_or_columns(root: object, source: Source) -> object:
    """Return a TensorDict's fields, a list of records as columns, or `root` itself."""
    fields = read_tensordict(root, source)
    return columns_from_records(root) if fields is None else fields


_READERS = (
    (b"PK\x03\x04", _zip),
    (b"\x80", _pickle),
    (b"PAR1", _parquet),
    (b"ARROW1", _arrow),
    (b"\xff\xff\xff\xff", _arrow),  # the stream form
)


_WRITTEN = "written by rounddiag"


def _read_own(_: object, source: Source) -> Batch:
    from rounddiag.loaders.parquet import load_parquet

    return load_parquet(source.path)


OWN = Format(
    name="rounddiag's Parquet",
    framework="rounddiag",
    files=("*.parquet",),
    keys=("rounddiag",),
    read=_read_own,
    verified=_WRITTEN,
)
OWN_RANKS = Format(
    name="rounddiag's Parquet, one file per rank",
    framework="rounddiag",
    files=("*_rank_*.parquet",),
    keys=OWN.keys,
    read=_read_own,
    verified=_WRITTEN,
    in_parts=True,
)


UNVERIFIED = "unverified: laid out from its source"
# Specific formats come first: the first one whose keys are all present is used.
FORMATS: tuple[Format, ...] = (
    OWN,
    OWN_RANKS,
    RANK,
    RANK_COLUMNS,
    SAMPLES,
    ROLLOUTS,
    DATA_PROTO,
    DATA_PROTO_VARIANTS,
    PAYLOAD,
    NEMO_RL,
    PRIME_RL,
    PRIME_RL_TRACES,
    EPISODES,
    SKYRL,
    SKYRL_0_1,
    TRL,
    OPENRLHF,
    AREAL,
    TENSORS,
    DATASET,
)


def find_format(names: Collection[str]) -> Format | None:
    """Return the first format whose keys are all among `names`."""
    return next((form for form in FORMATS if not form.missing_keys(names)), None)


def formats() -> pd.DataFrame:
    """List what `rounddiag.load` opens.

    Returns
    -------
    DataFrame
        One row per format: its name, what writes it, the names of its files, and the
        files on which the reader was tested. *unverified* says that the test file was
        made from the writer's source code, because the writer could not be run. Files
        of known frameworks that cannot be opened follow, with the reason.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.formats().columns.tolist()
    ['format', 'framework', 'files', 'checked on']
    """
    import pandas as pd

    from rounddiag.loaders.unsupported import UNSUPPORTED_FILES

    rows = [
        (form.name, form.framework, ", ".join(form.files), form.verified or UNVERIFIED)
        for form in FORMATS
    ]
    for file in UNSUPPORTED_FILES:
        name, _, reason = file.description.partition(": ")
        rows.append((name, file.framework, file.files, f"cannot be opened: {reason}"))
    return pd.DataFrame(rows, columns=["format", "framework", "files", "checked on"])
