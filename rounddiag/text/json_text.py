"""JSON that others wrote: read with bounds, and checked against a shape."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, TypeAlias

import numpy as np

from rounddiag.columns.column import python_value

Shape: TypeAlias = Any  # see `parse_json`

MAX_DEPTH = 100  # levels; json, copy and pickle recurse into each
_INT64 = 1 << 63
# Bytes that `[1]` and `{"a": 1}` take, with what refers to them while their depth is
# checked: growth of the memory of CPython 3.11 by 3 million of each.
_LIST, _OBJECT = 120, 210
_GROWTH, _FREE = 12, 1 << 28  # times the size of a text, and bytes: what they may take


class JsonError(ValueError):
    """A text is not JSON, or not of the shape that was expected.

    Attributes
    ----------
    is_cut_off: Whether the text ends within a value.
    """

    def __init__(self, message: str, *, is_cut_off: bool = False) -> None:
        super().__init__(message)
        self.is_cut_off = is_cut_off


def parse_json(
    text: bytes | str,
    shape: Shape = object,
    *,
    pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None,
    keep_halves: bool = False,
) -> Any:  # noqa: ANN401 any JSON
    r"""Return the value of a JSON text, if it has the shape.

    Lone halves of surrogate pairs, which no file can store, become U+FFFD.

    Parameters
    ----------
    text : bytes or str
        Bytes are UTF-8.
    shape : type, union, list or dict
        ==================  ========================================================
        `str`, `dict`, ...  a value of this type: an `int` fits 64 bits, a `float` may
                            be written without a point, neither is true or false
        `float | None`      one of these; `object` is anything
        `[int]`             a list of integers
        `{"a": int}`        an object with `a`, and others; `"a?"` may be missing
        ==================  ========================================================
    pairs : callable, optional
        Makes each object of its names and values; its ValueErrors are JsonErrors.
    keep_halves : bool
        Keep halves of surrogate pairs, in what `parquet.columns.to_json` wrote.

    Examples
    --------
    >>> parse_json(b'{"ids": [1, 2], "name": null}', {"ids": [int], "size?": int})
    {'ids': [1, 2], 'name': None}
    >>> parse_json('{"ids": [1, true]}', {"ids": [int]})
    Traceback (most recent call last):
    ...
    rounddiag.text.json_text.JsonError: `ids[1]` is true or false, not an integer
    """
    _check_growth(text)
    try:
        whole = text if isinstance(text, str) else text.decode("utf-8-sig")
        if not keep_halves and _SURROGATE.search(whole):
            whole = _ESCAPE.sub(_without_half, whole)
        value = json.loads(whole, object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise JsonError(
            f"no UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from error
    except RecursionError:
        raise _depth_error() from None
    except ValueError as error:  # also of a number with thousands of digits
        msg = f"no JSON: {error!s:.80}"
        end = getattr(error, "pos", -1)
        raise JsonError(msg, is_cut_off=end == len(whole)) from error
    check_depth(value)
    _check(value, shape, "")
    return value


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_LEN_OF_HALF = 6


def _without_half(escape: re.Match[str]) -> str:
    """Return an escape; U+FFFD in place of half a surrogate pair."""
    return r"\ufffd" if len(escape[0]) == _LEN_OF_HALF else escape[0]


def _check_growth(text: bytes | str) -> None:
    """Raise a JsonError if lists and objects would take far more memory than a text."""
    lists, objects = (
        text.count(sign if isinstance(text, str) else sign.encode())  # type: ignore[arg-type]
        for sign in "[{"
    )
    if _LIST * lists + _OBJECT * objects > max(_GROWTH * len(text), _FREE):
        raise JsonError(
            f"{lists:,} lists and {objects:,} objects in {len(text):,} characters take"
            f" more than {_GROWTH} times as much memory"
        )


def plain_tree(
    value: Any,  # noqa: ANN401 anything
    scalar: Callable[[Any], Any] = python_value,
) -> Any:  # noqa: ANN401
    """Return a value in memory as a JSON text would have it: dicts, lists and scalars.

    Tuples and arrays of objects become lists, numbers of any type those of Python.
    Arrays of numbers stay.

    Raises
    ------
    JsonError
        If values are nested too deep, or in themselves, or a name is no scalar.

    Examples
    --------
    >>> import numpy as np
    >>> plain_tree({"a": (np.int64(1), np.array("b"))})
    {'a': [1, 'b']}
    """
    return _plain(value, scalar, {}, MAX_DEPTH)


def _plain(
    value: Any,  # noqa: ANN401 anything
    scalar: Callable[[Any], Any],
    known: dict[int, tuple[Any, Any]],
    depth: int,
) -> Any:  # noqa: ANN401
    """Return it; `known` has each container and its result, as others may share it."""
    if type(value) in _NAMES and not isinstance(value, list | dict):
        return value
    is_rows = isinstance(value, list | tuple)
    is_rows |= (
        isinstance(value, np.ndarray) and value.dtype == object and value.ndim > 0
    )
    if not (is_rows or isinstance(value, Mapping)):
        return scalar(value)
    if not depth:
        raise _depth_error()
    if id(value) not in known:
        known[id(value)] = value, known  # a value that holds itself gets `known`
        if is_rows:
            result: Any = [_plain(part, scalar, known, depth - 1) for part in value]
        else:
            result = {
                _plain_name(name): _plain(part, scalar, known, depth - 1)
                for name, part in value.items()
            }
        known[id(value)] = value, result
    if known[id(value)][1] is known:
        raise JsonError("a value that holds itself")
    return known[id(value)][1]


def _plain_name(name: object) -> object:
    name = python_value(name)
    if isinstance(name, str | int | float | NoneType):
        return name
    raise JsonError(f"the name {name!r:.40}, a {type(name).__name__}, not a text")


def check_depth(value: object) -> None:
    """Raise a JsonError if lists and dictionaries are nested in too many levels."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return
        level = []
        for outer in containers:
            level.extend(outer.values() if isinstance(outer, dict) else outer)
    raise _depth_error()


def _depth_error() -> JsonError:
    return JsonError(f"values nested in more than {MAX_DEPTH} levels")


_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
    NoneType: "null",
}


def _check(value: object, shape: Shape, place: str) -> None:
    if isinstance(shape, list):
        _require(value, list, place)
        _check_items(value, shape[0], place)
    elif isinstance(shape, dict):
        _require(value, dict, place)
        for key, inner in shape.items():
            name = key.removesuffix("?")
            where = f"{place}.{name}" if place else name
            if name in value:  # type: ignore[operator]
                _check(value[name], inner, where)  # type: ignore[index]
            elif name == key:
                raise JsonError(f"`{where}` is missing")
    elif shape is not object:
        _require(value, shape, place)


def _check_items(values: Any, shape: Shape, place: str) -> None:  # noqa: ANN401 a list
    if isinstance(shape, type | UnionType) and shape is not object:
        kinds = set(map(type, values))
        if kinds <= _types(shape) - {int}:  # most lists, without a look at each
            return
        for index, value in enumerate(values):
            if not _is(value, shape):
                _require(value, shape, f"{place}[{index}]")
        return
    for index, value in enumerate(values):
        _check(value, shape, f"{place}[{index}]")


def _types(shape: Any) -> set[type]:  # noqa: ANN401 a type or union
    return {*shape.__args__} if isinstance(shape, UnionType) else {shape}


def _is(value: object, shape: Shape) -> bool:
    types = _types(shape)
    if type(value) is int:
        return bool(types & {int, float}) and -_INT64 <= value < _INT64
    return type(value) in types


def _require(value: object, shape: Shape, place: str) -> None:
    if _is(value, shape):
        return
    names = [_NAMES[known] for known in _NAMES if known in _types(shape)]
    kind = _NAMES[type(value)]
    if type(value) is int and not -_INT64 <= value < _INT64:
        kind = "an integer beyond 64 bits"
    msg = f"`{place}` is {kind}" if place else f"it is {kind}"
    msg = f"{msg}, not {' or '.join(names)}"
    raise JsonError(msg)


def object_in(value: object) -> dict[Any, Any]:
    """Return a value if it is an object; an empty one for any other."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none in any other value."""
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
