"""What each pickle opcode does to the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.pickles.stack import Stack, pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag.loaders.pickles.machine import PickleMachine


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
