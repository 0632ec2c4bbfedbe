"""The formats that `load` opens, and which one a file has: by the names in it.

A framework's formats are the `Format` objects of its module in `frameworks`. Another
package adds its own by an entry point of the group `rounddiag.formats`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from rounddiag.batch import Batch
from rounddiag.columns.sources import describe_kind
from rounddiag.errors import LoadError
from rounddiag.loaders import frameworks
from rounddiag.loaders.fields import aliases_of, names_where
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.signatures import UnknownContent
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, as_table, batch_from_table
from rounddiag.text.json_text import object_in, objects_in
from rounddiag.wording import format_names, pluralize

if TYPE_CHECKING:
    import pandas as pd


_TENSOR = "torch._utils._rebuild_tensor"
_ARRAYS = ("multiarray._reconstruct", "numeric._frombuffer")
_GROUP = "rounddiag.formats"


def content_names(root: object) -> list[str]:
    """Return the names that identify the format: keys, or the class of an object.

    Those of JSON are its keys, and the keys of objects and of the first in each list.
    """
    match root:
        case JsonLines():
            return [*root.first, *_inner_names(root.first)]
        case Table():
            return [*root.names, *root.marks]
        case UnknownContent():
            return list(root.names)
        case Mapping():
            return [str(key) for key in root]
        case Node(name):
            return [name.rpartition(".")[2]]
    return []


def _inner_names(record: Mapping[str, object]) -> Iterator[str]:
    """Yield `usage.cost`, and of the first object in each list, `history[].state`."""
    for name, value in record.items():
        yield from (f"{name}.{key}" for key in object_in(value))
        yield from (f"{name}[].{key}" for item in objects_in(value)[:1] for key in item)


def describe_content(root: object) -> str:
    """Describe what a file holds in a few words, for a message."""
    match root:
        case UnknownContent():
            return root.description
        case JsonLines():
            return _describe_json(root)
        case Table():
            return f"a table of {format_names(root.names)}"
        case Mapping():
            keys = f"a dictionary of {format_names(root)}"
            return "model weights, not a batch" if is_weights(root) else keys
        case Node(name):
            return _describe_object(name)
    return f"a pickle of {describe_kind(root)}"


def _describe_json(lines: JsonLines) -> str:
    names = format_names(lines.first)
    if isinstance(lines.value, dict):
        return f"one JSON object of {names}" if lines.value else "an empty object"
    rows = lines.value
    if lines.first:
        return f"JSON objects of {names}"
    if not isinstance(rows, list) or (rows and {*map(type, rows)} == {dict}):
        return "JSON objects, the first of them empty"
    if not rows:
        return "an empty list"
    return f"a list of {pluralize(len(rows), 'value')}, not all of them objects"


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


def read_tensors(
    root: Table | JsonLines | Mapping[Any, object], source: Source
) -> Batch:
    """Build a batch from fields under verl's names or ours."""
    return batch_from_table(as_table(root), source)


def _read_own(_: object, source: Source) -> Batch:
    from rounddiag.loaders.parquet import load_parquet

    return load_parquet(source.path)


OWN = Format(
    name="rounddiag's Parquet",
    framework="rounddiag",
    files=("*.parquet",),
    keys=("rounddiag",),
    read=_read_own,
    verified="written by rounddiag",
)
OWN_RANKS = replace(
    OWN,
    name="rounddiag's Parquet, one file per rank",
    files=("*_rank_*.parquet",),
    in_parts=True,
)


TENSORS = Format(
    name="tensors under verl's names",
    framework="any",
    files=("*.pt", "*.pth", "*.npz", "*.safetensors", "*.jsonl", "*.feather"),
    keys=(aliases_of("response_ids"), names_where(dtype="mask")),
    read=read_tensors,
    verified="written by torch, numpy, safetensors, pyarrow and pandas",
)
DATASET = Format(
    name="a data set under verl's names, or others with `columns=`",
    framework="Hugging Face datasets",
    files=("data-*-of-*.arrow",),
    keys=("huggingface",),
    read=read_tensors,
    verified="written by datasets 5.2.0",
    in_parts=True,
)


def _discovered() -> Iterator[Format]:
    for module in iter_modules(frameworks.__path__, f"{frameworks.__name__}."):
        values = vars(import_module(module.name)).values()
        yield from (value for value in values if isinstance(value, Format))
    for point in entry_points(group=_GROUP):
        form = point.load()
        if not isinstance(form, Format):
            raise LoadError.build(
                key=_GROUP,
                expected="an entry point that is a `rounddiag.loaders.format.Format`",
                found=f"{point.value}, {describe_kind(form)}",
                advice="Correct the package that has it, or uninstall it.",
            )
        yield form


def find_all() -> tuple[Format, ...]:
    """Return all formats, those that need more keys first, and ours around them.

    Trajectories follow the tables under verl's names: those may have texts as well.
    """
    forms = [*dict.fromkeys(sorted(_discovered(), key=lambda form: -len(form.keys)))]
    turns = [form for form in forms if form.trajectories is not None]
    others = [form for form in forms if form.trajectories is None]
    return (OWN, OWN_RANKS, *others, TENSORS, *turns, DATASET)


UNVERIFIED = "unverified: laid out from its source"
ALL = find_all()
FORMATS = tuple(form for form in ALL if not form.reason)


def find_format(names: Collection[str]) -> Format | None:
    """Return the first format whose keys are all among `names`."""
    return next((form for form in ALL if form.fits(names)), None)


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

    rows = [
        (
            form.name,
            form.framework,
            ", ".join(form.files),
            form.verified or UNVERIFIED
            if not form.reason
            else f"cannot be opened: {form.reason}",
        )
        for form in sorted(ALL, key=lambda form: bool(form.reason))
    ]
    return pd.DataFrame(rows, columns=["format", "framework", "files", "checked on"])
