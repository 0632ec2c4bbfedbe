"""A pickle interpreter that builds plain data and placeholders, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rounddiag.errors import LoadError
from rounddiag.loaders.pickle.opcodes import OPCODES, BrokenPickleError, take_numbers
from rounddiag.loaders.pickle.placeholders import (
    ALLOWED_CALLS,
    BUILDERS,
    ENCODE,
    Name,
    Node,
)
from rounddiag.loaders.source import Span, SpanReader, damage_error

MAX_KEY = 1 << 60  # smaller integers have different hashes, except -1 and -2

# Protocols 0 to 2 use the Python 2 names of these modules.
_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}
# Errors of a damaged stream: a stack that is too short, arguments that end early or
# have another type.
_DAMAGED = (BrokenPickleError, IndexError, TypeError, ValueError, struct.error)


# Opcodes that push their argument.
_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
)
# Opcodes that push a constant.
_CONSTANTS: dict[str, Callable[[object], object]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "EMPTY_SET": lambda _: [],  # sets stay lists: nothing in them is hashed
}


def _steps(
    handlers: Mapping[str, Callable[..., object]],
) -> dict[bytes, tuple[Callable[..., object], Callable[[Any], object] | None]]:
    return {
        code: (handlers[name], _CONSTANTS.get(name, read))
        for code, (name, read) in OPCODES.items()
        if name in handlers
    }


class PickleMachine:
    """Interprets one pickle of an open span.

    Parameters
    ----------
    span : Span
        The bytes that `stream` reads; long bytes in the pickle become parts of it.
    stream : SpanReader
        Positioned at the start of the pickle, and at its end afterwards.
    persistent : callable, optional
        Returns the object of a persistent id (a storage of a torch file).
    """

    def __init__(
        self,
        span: Span,
        stream: SpanReader,
        persistent: Callable[[object], object] | None = None,
    ) -> None:
        self.span, self.stream = span, stream
        self._persistent = persistent
        self._stack: list[object] = []
        self._marks: list[int] = []  # heights of the stack
        self._memo: dict[object, object] = {}

    def run(self) -> object:
        """Return what the pickle holds."""
        try:
            return self._run()
        except LoadError:
            raise
        except _DAMAGED as error:
            fault = f"a bad pickle: {str(error) or type(error).__name__}"
            raise damage_error(found=fault) from None

    def _run(self) -> object:
        read = self.stream.read
        while True:
            code = read(1)
            if code == b".":
                return self._stack.pop()
            if code not in self._STEPS:
                raise BrokenPickleError(
                    f"opcode {code!r}" if code else "an end in the middle"
                )
            handle, argument = self._STEPS[code]
            if argument is None:
                handle(self)
            else:
                handle(self, argument(self))

    @property
    def is_encoding(self) -> bool:
        """Whether the next text encodes bytes."""
        return bool(self._stack) and self._stack[-1] == ENCODE

    def push_numbers(self) -> None:
        """Push the numbers that follow, if there are many."""
        self._stack += take_numbers(self.stream)

    # The stack, its marks, and the memo

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _pop(self) -> None:
        """Drop one value, or the mark if no value is above it."""
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def _duplicate(self) -> None:
        self._stack.append(self._stack[-1])

    def _mark(self) -> None:
        self._marks.append(len(self._stack))
        self.push_numbers()

    def _pop_mark(self) -> list[object]:
        height = self._marks.pop()
        values = self._stack[height:]
        del self._stack[height:]
        return values

    def _frame(self, _: object) -> None:
        """Continue a list of numbers that a frame interrupts."""
        self.push_numbers()

    def _ignore(self, _: object) -> None:
        """Ignore the protocol number."""

    def _memoize(self, key: object = None) -> None:
        value = self._stack[-1]
        self._memo[len(self._memo) if key is None else _scalar(key)] = value

    def _recall(self, key: object) -> None:
        if key not in self._memo:
            raise BrokenPickleError(f"nothing in the memo at {key!r}")
        self._stack.append(self._memo[key])

    def _persist(self, key: object) -> None:
        if self._persistent is None:
            raise BrokenPickleError("a reference to something outside the pickle")
        self._stack.append(self._persistent(key))

    def _persist_from_stack(self) -> None:
        self._persist(self._stack.pop())

    # Containers

    def _tuple_of_marked(self) -> None:
        self._stack.append(tuple(self._pop_mark()))

    def _tuple(self, size: int) -> None:
        if len(self._stack) < size:
            raise BrokenPickleError("a tuple of more than the stack holds")
        self._stack[-size:] = [tuple(self._stack[-size:])]

    def _list(self) -> None:
        self._stack.append(self._pop_mark())

    def _dict(self) -> None:
        self._stack.append(_pairs(self._pop_mark()))

    def _append(self) -> None:
        self._extend([self._stack.pop()])

    def _append_marked(self) -> None:
        self._extend(self._pop_mark())

    def _extend(self, values: list[object]) -> None:
        target = self._stack[-1]
        items = target.items if isinstance(target, Node) else target
        if not isinstance(items, list):
            raise BrokenPickleError("items for something that is not a list")
        items.extend(values)

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def _set_marked(self) -> None:
        self._update(self._pop_mark())

    def _update(self, values: list[object]) -> None:
        target = self._stack[-1]
        entries = target.entries if isinstance(target, Node) else target
        if not isinstance(entries, dict):
            raise BrokenPickleError("keys for something that is not a dictionary")
        entries.update(_pairs(values))

    # Globals, calls and objects: placeholders only

    def _global(self, names: str) -> None:
        self._name(*names.split(" ", 1))

    def _global_from_stack(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._name(module, name)

    def _name(self, module: object, name: object) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise BrokenPickleError("a global whose name is not text")
        self._stack.append(Name(f"{_RENAMED.get(module, module)}.{name}"))

    def _reduce(self) -> None:
        args, called = self._stack.pop(), self._stack.pop()
        self._call(called, args)

    def _inst(self, names: str) -> None:
        args = tuple(self._pop_mark())
        self._global(names)
        self._call(self._stack.pop(), args)

    def _obj(self) -> None:
        called, *args = self._pop_mark()
        self._call(called, tuple(args))

    def _call(self, called: object, args: object) -> None:
        name = _called_name(called)
        if not isinstance(args, tuple):
            raise BrokenPickleError(f"a call of `{name}` without arguments")
        if name in BUILDERS:
            self._stack.append(BUILDERS[name](*args))
        elif name in ALLOWED_CALLS:
            self._stack.append(Node(name, args))
        else:
            raise self._refusal_error(name)

    def _refusal_error(self, name: str) -> LoadError:
        return self.span.source.error(
            expected="a pickle that calls nothing but the makers of tensors and arrays",
            found=f"a call of `{name}`, which was not made",
            advice="If you trust the file, open it with the program that wrote it and"
            " save it without that value.",
        )

    def _new(self) -> None:
        args, cls = self._stack.pop(), self._stack.pop()
        args = args if isinstance(args, tuple) else ()
        self._stack.append(Node(_called_name(cls), args))

    def _new_with_keywords(self) -> None:
        self._stack.pop()
        self._new()

    def _build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if isinstance(target, Node):
            target.state = state
        elif not isinstance(target, dict | list):
            raise BrokenPickleError("a state for something that has none")

    # Other opcodes (extensions, out-of-band buffers) are refused.
    _STEPS = _steps(
        {
            **dict.fromkeys((*_VALUES, *_CONSTANTS), _push),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _memoize),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _recall),
            **dict.fromkeys(("LIST", "FROZENSET"), _list),
            **dict.fromkeys(("APPENDS", "ADDITEMS"), _append_marked),
            "PROTO": _ignore,
            "FRAME": _frame,
            "MARK": _mark,
            "POP": _pop,
            "POP_MARK": _pop_mark,
            "DUP": _duplicate,
            "TUPLE": _tuple_of_marked,
            "TUPLE1": partial(_tuple, size=1),
            "TUPLE2": partial(_tuple, size=2),
            "TUPLE3": partial(_tuple, size=3),
            "DICT": _dict,
            "APPEND": _append,
            "SETITEM": _set_item,
            "SETITEMS": _set_marked,
            "GLOBAL": _global,
            "STACK_GLOBAL": _global_from_stack,
            "REDUCE": _reduce,
            "INST": _inst,
            "OBJ": _obj,
            "NEWOBJ": _new,
            "NEWOBJ_EX": _new_with_keywords,
            "BUILD": _build,
            "PERSID": _persist,
            "BINPERSID": _persist_from_stack,
        }
    )


def _pairs(values: list[object]) -> dict[object, object]:
    if len(values) % 2:
        raise BrokenPickleError("a key without a value")
    keys = [_scalar(key) for key in values[::2]]
    return dict(zip(keys, values[1::2], strict=True))


def _scalar(key: object) -> object:
    """Return a key that is cheap to hash and to compare; refuse any other.

    Hashing a tuple that is nested deeply crashes the process, and one that shares parts
    may never finish. Large integers can be chosen to have the same hash.
    """
    is_small = isinstance(key, int) and abs(key) < MAX_KEY
    if is_small or key is None or isinstance(key, str | float | bytes):
        return key
    raise BrokenPickleError(
        f"a dictionary key that is not a plain value but a {type(key).__name__}"
    )


def _called_name(value: object) -> str:
    if isinstance(value, Name):
        return value.name
    raise BrokenPickleError(
        f"a call of something that is not a name but a {type(value).__name__}"
    )
