"""What a file holds, told by its first bytes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.lazy.tensors import read_tensordict
from rounddiag.loaders.lazy.torch_file import LEGACY_MAGIC, read_torch, zip_entries
from rounddiag.loaders.messages import format_names, kind_of
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.tabular.arrays import npz_root, safetensors_root
from rounddiag.loaders.tabular.in_memory import columns_of_records
from rounddiag.loaders.tabular.json_lines import JsonLines
from rounddiag.loaders.tabular.table import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rounddiag.loaders.source import Source


TENSOR = "torch._utils._rebuild_tensor"
_ARRAYS = ("multiarray._reconstruct", "numeric._frombuffer")
_START = 1 << 16  # bytes of a document, which have its first keys
_ENOUGH = 3  # columns: a record has a list of lists here and there
_FIRST_KEY = re.compile(rb'\s*\{\s*\n([ \t]{1,8})"')
_OTHERS = (
    (b"<", "HTML or XML text"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\x93NUMPY", "a single numpy array"),
    (b"%PDF", "a PDF"),
)


_ROWS_OF_TEXT = re.compile(rb"[\x20-\x5a\x5c-\x7e]+,[^\r\n\0]*\r?\n[^\r\n\0]*,")
_NO_CSV = (
    "Lists of numbers need Parquet, Arrow, JSON lines, `.npz`, `.safetensors`, `.pt` or"
    " `.pkl`. "
)
_LINES = "JSON lines have a row a line; or pass what `json.load` makes of the file. "


class Unknown:
    """Content that no loader reads: what it looks like, its keys, and what helps."""

    def __init__(
        self, looks_like: str, keys: Iterable[str] = (), advice: str = ""
    ) -> None:
        self.looks_like, self.keys, self.advice = looks_like, list(keys), advice


def unknown(source: Source) -> Unknown:
    """Say what content looks like by its start."""
    start = source.whole().part(0, min(_START, source.size)).read()
    known = [what for first, what in _OTHERS if start.startswith(first)]
    if known:
        packed = known[0] in {"a gzip file", "a zstd file"}
        return Unknown(known[0], advice="Unpack it first. " * packed)
    if _ROWS_OF_TEXT.match(start):
        return Unknown("text with commas, as of a CSV file", advice=_NO_CSV)
    if start.lstrip().startswith(b"["):
        return Unknown("one JSON list", advice=_LINES)
    other = f"bytes that start with {start[:8]!r}" if start else "an empty file"
    return Unknown(other)


def is_weights(root: Mapping[Any, object]) -> bool:
    """Whether all values are tensors of fractions, under names with dots."""
    named = len(root) > 0 and all("." in str(key) for key in root)
    return named and all(_is_fractions(value) for value in root.values())


def _is_fractions(value: object) -> bool:
    if isinstance(value, Node) and value.name.startswith(TENSOR) and value.args:
        value = value.args[0]
    return getattr(getattr(value, "dtype", None), "is_floating_point", False) is True


def node_looks_like(name: str) -> str:
    """Say what an object of a pickle is, by its name."""
    if name.startswith(TENSOR):
        return "a single tensor"
    if name.endswith(_ARRAYS):
        return "a single numpy array"
    return f"a pickle of {name:.80}"


def json_document(source: Source) -> Unknown | None:
    """Return the first keys of one JSON document over many lines; else None."""
    start = source.whole().part(0, min(_START, source.size)).read()
    first = _FIRST_KEY.match(start)
    if first is None:
        return None
    key = rb'^%s"([^"\\]{1,80})"\s*:' % first[1]
    keys = [
        name.decode(errors="replace") for name in re.findall(key, start, re.MULTILINE)
    ]
    return Unknown(f"one JSON object of {format_names(keys)}", keys, _LINES)


def one_object(lines: JsonLines) -> Unknown | None:
    """Tell a line that has all rows, column by column; else None."""
    tables = [name for name, value in lines.first.items() if _is_table(value)]
    if len(tables) < _ENOUGH:
        return None
    return Unknown(
        f"one JSON object of {format_names(lines.first)}", lines.first, _LINES
    )


def _is_table(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(row, np.ndarray) for row in value)


def read_root(source: Source) -> object:
    """Return what a file holds, big tensors excepted, which stay in it.

    Returns
    -------
    object
        A dictionary, list or `Node` of a pickle or torch file; a mapping of stored
        tensors; the names in our own Parquet; a `Table`; `JsonLines`; or `Unknown`.

    Raises
    ------
    LoadError
        If the file is damaged, or a pickle would call anything that is not known.
    """
    head = source.whole().part(0, min(16, source.size)).read()
    for start, read in _READERS:
        if head.startswith(start):
            return read(source)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < source.size:
        return safetensors_root(source)
    if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return json_document(source) or JsonLines(source)
    return unknown(source)


def names_of(root: object) -> list[str]:
    """Return the names that tell the format: keys, or the class of an object."""
    match root:
        case JsonLines():
            return list(root.first)
        case Table():
            return [*root.names, *root.marks]
        case Unknown():
            return root.keys
        case Mapping():
            return [str(key) for key in root]
        case Node(name):
            return [name.rpartition(".")[2]]
    return []


def looks_like(root: object) -> str:
    """Say in a few words what a file holds."""
    match root:
        case Unknown():
            return root.looks_like
        case JsonLines():
            return f"JSON lines of {format_names(root.first)}"
        case Table():
            return f"a table of {format_names(root.names)}"
        case Mapping():
            named = f"a dictionary of {format_names(root)}"
            return "weights of a model, no batch" if is_weights(root) else named
        case Node(name):
            return node_looks_like(name)
    return f"a pickle of {kind_of(root)}"


def _parquet(source: Source) -> object:
    """Return the names in our own file; a table of any other."""
    from rounddiag.loaders.parquet.reader import parquet_names
    from rounddiag.loaders.tabular.arrow import parquet_table

    names = parquet_names(source)
    return names if "rounddiag" in names else parquet_table(source)


def _zip(source: Source) -> object:
    entries = zip_entries(source.whole())
    if any(name.endswith("/data.pkl") for name in entries):
        return _opened(read_torch(source.whole()), source)
    if entries and all(name.endswith(".npy") for name in entries):
        return npz_root(entries)
    return Unknown(f"a zip of {format_names(entries)}")


def _arrow(source: Source) -> object:
    from rounddiag.loaders.tabular.arrow import arrow_table

    return arrow_table(source)


def _opened(root: object, source: Source) -> object:
    """Return the fields of a TensorDict, records as columns; others as they are."""
    fields = read_tensordict(root, source)
    return columns_of_records(root, source) if fields is None else fields


def _pickle(source: Source) -> object:
    """Read a pickle, or the older format of torch, which starts with a magic number."""
    span = source.whole()
    with span.open() as stream:
        root = PickleMachine(span, stream).run()
    return _opened(read_torch(span) if root == LEGACY_MAGIC else root, source)


_READERS = (
    (b"PK\x03\x04", _zip),
    (b"\x80", _pickle),
    (b"PAR1", _parquet),
    (b"ARROW1", _arrow),
    (b"\xff\xff\xff\xff", _arrow),  # the stream form
)


_VERL = (
    "Add `rounddiag.capture.save_batch(batch, path)` to verl's trainer, after"
    " `batch = batch.union(old_log_prob)`."
)
_HOOK = "Add the lines to the trainer that README.md has under {}."


@dataclass(frozen=True)
class Useless:
    """A file without what is needed.

    Attributes
    ----------
    keys : tuple of str
        Names that are all in it.
    what : str
        What it is, and what it lacks.
    advice : str
        Which line to add to the trainer.
    """

    keys: tuple[str, ...]
    what: str
    advice: str


USELESS = (
    Useless(
        ("input", "output", "gts", "score", "step"),
        "what verl writes to `rollout_data_dir`: texts and scores, without log-probs",
        _VERL,
    ),
    Useless(
        ("step", "prompt", "completion", "advantage"),
        "TRL's log of completions: texts and rewards, without log-probs",
        _HOOK.format('"Save a batch in TRL and others"'),
    ),
    Useless(
        ("task_id", "seqlen", "prompt_len", "head_version", "tail_version"),
        "AReaL's dump of rollouts: texts and versions, without log-probs",
        _HOOK.format('"Save a batch in TRL and others"'),
    ),
    Useless(
        ("training_step", "episode_id", "task_hash", "trajectories"),
        "an episode of rLLM: texts and rewards, without log-probs",
        _VERL,
    ),
    Useless(
        ("steps", "trajectory_metrics", "final_ob_len"),
        "Tinker's summaries of rollouts: lengths and rewards, without log-probs",
        "Keep `logprobs` of each datum and those of the training pass, save both under"
        " names of your own, and open them with `columns=`.",
    ),
    Useless(
        ("logp", "token_ids", "prompt_token_ids"),
        "a step of DART-GUI: the sampler's log-probs, without the trainer's",
        _VERL,
    ),
)


def find_useless(names: Collection[str]) -> Useless | None:
    """Return the first file whose keys are all among `names`.

    Examples
    --------
    >>> found = find_useless(["step", "prompt", "completion", "my_reward", "advantage"])
    >>> found.what
    "TRL's log of completions: texts and rewards, without log-probs"
    """
    return next((file for file in USELESS if {*file.keys} <= {*names}), None)
