"""Inert placeholders for the globals, calls and objects of a pickle.

A pickle stream names functions and classes and requests calls. None of them is ever
looked up: a global stays text, and a call or an object becomes a `Node` that records
the request. Loaders read nodes like any other file content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rounddiag.loaders.source import Span, damage_error


@dataclass(frozen=True, slots=True)
class Name:
    """A global of the stream, as text: `torch.FloatStorage`."""

    name: str


ENCODE = Name("_codecs.encode")  # turns text into bytes in protocols 0 to 2


@dataclass(eq=False, slots=True, repr=False)
class Node:
    """A call or an object that the stream requests, with its arguments and state."""

    name: str
    args: tuple[object, ...] = ()
    state: object = None
    items: list[object] = field(default_factory=list)
    entries: dict[object, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextBytes:
    """Long bytes that protocols 0 to 2 store as text, which stays in the file."""

    text: Span

    def read(self) -> bytes:
        """Copy them out of the file."""
        try:
            return self.text.read().decode("utf-8").encode("latin1")
        except UnicodeError as error:
            fault = "text where bytes should be"
            raise damage_error(found=fault) from error


# Calls that a stream may request. They are not executed: they become nodes.
ALLOWED_CALLS = frozenset(
    {
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        "numpy._core.numeric._frombuffer",
        "numpy.core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy.core.numeric._frombuffer",
        "numpy.dtype",
        "skyrl.backends.skyrl_train.training_batch._rebuild_tensor_batch",
        "tensordict._reductions._make_td",
        "tensordict._reductions._rebuild_tensordict_files_consolidated",
        "torch._tensor._rebuild_from_type_v2",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch.device",
        "torch.nested._internal.nested_tensor._rebuild_njt",
        "torch.storage._load_from_bytes",
        # values of dataset columns and of `meta_info`
        "builtins.bytearray",
        "builtins.complex",
        "builtins.range",
        "builtins.slice",
        "datetime.date",
        "datetime.datetime",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "fractions.Fraction",
        "pathlib.Path",
        "pathlib.PosixPath",
        "pathlib.PurePosixPath",
        "pathlib.PureWindowsPath",
        "pathlib.WindowsPath",
        "pathlib._local.PosixPath",
        "uuid.UUID",
    }
)


def _encode(text: object = "", encoding: object = "latin1") -> bytes | TextBytes:
    """Turn text into bytes with the same code points, as protocols 0 to 2 need."""
    if not isinstance(text, str | Span) or encoding not in {"latin1", "latin-1"}:
        raise ValueError("bytes in an unknown encoding")
    return text.encode("latin1") if isinstance(text, str) else TextBytes(text)


def _make_dict(pairs: object = ()) -> dict[object, object]:
    """Make an empty dictionary; the factory of a `defaultdict` is ignored."""
    if pairs == () or isinstance(pairs, Name):
        return {}
    raise ValueError("a mapping made from pairs")


def _sequence(values: object = ()) -> list[object]:
    """Return sets as lists, so that nothing of the stream is hashed."""
    if not isinstance(values, list | tuple):
        raise ValueError("a set that is not made from a list")  # noqa: TRY004 the stream is wrong, not our caller
    return values if isinstance(values, list) else list(values)


def _tuple(values: object = ()) -> tuple[object, ...]:
    return tuple(_sequence(values))


def _make_node(cls: object, *_: object) -> Node:
    """Return the placeholder of an object of protocols 0 and 1."""
    if not isinstance(cls, Name):
        raise ValueError("an object of no class")  # noqa: TRY004 the stream is wrong, not our caller
    return Node(cls.name)


# Calls whose result is plain data, built by functions of this module instead.
BUILDERS: dict[str, Callable[..., object]] = {
    ENCODE.name: _encode,
    "builtins.bytes": _encode,
    "builtins.frozenset": _sequence,
    "builtins.set": _sequence,
    "collections.OrderedDict": _make_dict,
    "collections.defaultdict": _make_dict,
    "copyreg._reconstructor": _make_node,
    "torch.Size": _tuple,
}
