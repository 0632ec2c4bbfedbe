"""A pickle interpreter that makes plain data, names and nodes, and nothing else."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.pickle.opcodes import (
    MAX_TEXT,
    OPCODES,
    BrokenPickleError,
    Stack,
    named,
    pairs,
    take_numbers,
)
from rounddiag.loaders.pickle.placeholders import BUILT, CALLED, ENCODE, Name, Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag.loaders.source import Span, SpanReader


def _global(m: PickleMachine, arg: Any) -> None:  # noqa: ANN401 read by pickletools
    m.name(*arg.split(" ", 1))


def _stack_global(m: PickleMachine, _: object) -> None:
    name, module = m.pop(), m.pop()
    m.name(module, name)


def _reduce(m: PickleMachine, _: object) -> None:
    args, called = m.pop(), m.pop()
    m.call(called, args)


def _inst(m: PickleMachine, arg: Any) -> None:  # noqa: ANN401 read by pickletools
    args = tuple(m.pop_mark())
    m.name(*arg.split(" ", 1))
    m.call(m.pop(), args)


def _obj(m: PickleMachine, _: object) -> None:
    called, *args = m.pop_mark()
    m.call(called, tuple(args))


def _new(m: PickleMachine, _: object) -> None:
    args, cls = m.pop(), m.pop()
    m.make(cls, args)


def _new_with_keywords(m: PickleMachine, _: object) -> None:
    _keywords, args, cls = m.pop(), m.pop(), m.pop()
    m.make(cls, args)


def _pop_mark(m: PickleMachine, _: object) -> None:
    m.pop_mark()


def _append(m: PickleMachine, _: object) -> None:
    m.extend([m.pop()])


def _set_item(m: PickleMachine, _: object) -> None:
    value, key = m.pop(), m.pop()
    m.update([key, value])


def _nothing(m: PickleMachine, arg: object) -> None:
    """PROTO tells what is not needed here."""


def _mark(m: PickleMachine, _: object) -> None:
    m.mark()
    m.push_numbers()


def _frame(m: PickleMachine, _: object) -> None:
    """Go on with the numbers that the start of a frame divides."""
    m.push_numbers()


def _fresh(make: Callable[[], object]) -> Callable[[PickleMachine, object], None]:
    return lambda m, _: m.push(make())


def _tuple(size: int) -> Callable[[PickleMachine, object], None]:
    return lambda m, _: m.tuple_of(size)


_PUSHED = [
    "INT",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG",
    "LONG1",
    "LONG4",
    "BINSTRING",
    "SHORT_BINSTRING",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
    "BYTEARRAY8",
    "UNICODE",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "FLOAT",
    "BINFLOAT",
]

ACTIONS: dict[str, Callable[[PickleMachine, Any], None]] = {
    **dict.fromkeys(_PUSHED, Stack.push),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), Stack.memoize),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Stack.recall),
    "PROTO": _nothing,
    "FRAME": _frame,
    "NONE": _fresh(lambda: None),
    "NEWTRUE": _fresh(lambda: True),
    "NEWFALSE": _fresh(lambda: False),
    "EMPTY_TUPLE": _fresh(tuple),
    "EMPTY_LIST": _fresh(list),
    "EMPTY_DICT": _fresh(dict),
    "EMPTY_SET": _fresh(list),  # sets stay lists: nothing in them is hashed
    "MARK": _mark,
    "POP": lambda m, _: m.drop(),
    "POP_MARK": _pop_mark,
    "DUP": lambda m, _: m.push(m.top()),
    "TUPLE": lambda m, _: m.push(tuple(m.pop_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "LIST": lambda m, _: m.push(m.pop_mark()),
    "FROZENSET": lambda m, _: m.push(m.pop_mark()),
    "DICT": lambda m, _: m.push(pairs(m.pop_mark())),
    "APPEND": _append,
    "APPENDS": lambda m, _: m.extend(m.pop_mark()),
    "ADDITEMS": lambda m, _: m.extend(m.pop_mark()),
    "SETITEM": _set_item,
    "SETITEMS": lambda m, _: m.update(m.pop_mark()),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "INST": _inst,
    "OBJ": _obj,
    "NEWOBJ": _new,
    "NEWOBJ_EX": _new_with_keywords,
    "BUILD": lambda m, _: m.build(),
    "PERSID": lambda m, arg: m.persist(arg),
    "BINPERSID": lambda m, _: m.persist(m.pop()),
}


MAX_STEPS = 1 << 25  # opcodes of one pickle; each makes one object at most
MAX_NUMBERS = 1 << 27  # read in runs; each takes as much memory as a few of its bytes

# Protocols 0 to 2 call these modules by their names in Python 2.
_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}
# Opcode -> what it does, and how its argument is read.
_STEPS = {
    code: (ACTIONS[name], argument)
    for code, (name, argument) in OPCODES.items()
    if name in ACTIONS
}
# How a damaged stream shows itself: a stack that is too short, arguments that end early
# or are of another type.
_DAMAGED = (BrokenPickleError, IndexError, TypeError, ValueError, struct.error)


class PickleMachine(Stack):
    """Interprets one pickle of an open span.

    Parameters
    ----------
    span : Span
        What `stream` shows; long bytes in the pickle become parts of it.
    stream : SpanReader
        Stands at the start of the pickle, and at its end afterwards.
    persistent : callable, optional
        Makes an object of a persistent id (a storage of a torch file).
    """

    def __init__(
        self,
        span: Span,
        stream: SpanReader,
        persistent: Callable[[object], object] | None = None,
    ) -> None:
        super().__init__()
        self.span, self.stream = span, stream
        self.text_left, self._numbers_left = MAX_TEXT, MAX_NUMBERS
        self._persistent = persistent

    def run(self) -> object:
        """Return what the pickle holds.

        Raises
        ------
        LoadError
            If it is damaged, too large, or would call anything that is not known.
        """
        try:
            return self._run()
        except LoadError:
            raise
        except _DAMAGED as error:
            found = f"a bad pickle: {str(error) or type(error).__name__}"
            raise self.span.source.damaged(found=found) from None

    def _run(self) -> object:
        read = self.stream.read
        for _ in range(MAX_STEPS):
            code = read(1)
            if code == b".":
                return self.pop()
            if code not in _STEPS:
                msg = f"opcode {code!r}" if code else "an end in the middle"
                raise BrokenPickleError(msg)
            act, argument = _STEPS[code]
            act(self, argument(self) if argument else None)
        msg = f"more than {MAX_STEPS} steps"
        raise BrokenPickleError(msg)

    @property
    def is_encoding(self) -> bool:
        """Whether text that comes next stands for bytes."""
        return self.is_on_top(ENCODE)

    def push_numbers(self) -> None:
        """Put the numbers that come next on the stack, where they are many."""
        values = take_numbers(self.stream)
        self._numbers_left -= len(values)
        if self._numbers_left < 0:
            msg = f"more than {MAX_NUMBERS} numbers"
            raise BrokenPickleError(msg)
        self.push_all(values)

    def name(self, module: object, name: object) -> None:
        """Put a global on the stack: its name, which is never looked up."""
        if not (isinstance(module, str) and isinstance(name, str)):
            msg = "a global whose name is no text"
            raise BrokenPickleError(msg)
        self.push(Name(f"{_RENAMED.get(module, module)}.{name}"))

    def call(self, called: object, args: object) -> None:
        """Turn a call into data, or refuse it."""
        name = named(called)
        if not isinstance(args, tuple):
            msg = f"a call of `{name}` without arguments"
            raise BrokenPickleError(msg)
        if name in BUILT:
            self.push(BUILT[name](*args))
        elif name in CALLED:
            self.push(Node(name, args))
        else:
            raise self._refused(name)

    def _refused(self, name: str) -> LoadError:
        return self.span.source.error(
            expected="a pickle that calls nothing but the makers of tensors and arrays",
            found=f"a call of `{name}`, which was not made",
            advice="If you trust the file, open it with the program that wrote it and"
            " save it without that value.",
        )

    def make(self, cls: object, args: object) -> None:
        """Turn an object that the stream creates without a call into a node."""
        self.push(Node(named(cls), args if isinstance(args, tuple) else ()))

    def persist(self, key: object) -> None:
        """Put on the stack what a persistent id stands for."""
        if self._persistent is None:
            msg = "a reference to something outside the pickle"
            raise BrokenPickleError(msg)
        self.push(self._persistent(key))
