"""The stack of the pickle interpreter: plain data, names and nodes."""

from __future__ import annotations

from rounddiag.loaders.pickles.inert import Name, Node

MAX_KEY = 1 << 60  # below, no two integers have the same hash


class BrokenPickleError(Exception):
    """The stream breaks the rules of pickle, or asks for more than a file may have."""


class Stack:
    """Values, marks between them, and the memo."""

    def __init__(self) -> None:
        self._values: list[object] = []
        self._marks: list[int] = []
        self._memo: dict[object, object] = {}

    def push(self, value: object) -> None:
        """Put a value on top."""
        self._values.append(value)

    def push_all(self, values: list[object]) -> None:
        """Put values on top, the last one highest."""
        self._values += values

    def pop(self) -> object:
        """Take the value on top."""
        return self._values.pop()

    def top(self) -> object:
        """Return the value on top."""
        return self._values[-1]

    def is_on_top(self, value: object) -> bool:
        """Whether something is on top, and is this value."""
        return bool(self._values) and self._values[-1] == value

    def mark(self) -> None:
        """Remember this height."""
        self._marks.append(len(self._values))

    def pop_mark(self) -> list[object]:
        """Take everything above the last mark."""
        height = self._marks.pop()
        values = self._values[height:]
        del self._values[height:]
        return values

    def drop(self) -> None:
        """Take one value, or the mark where nothing stands above it."""
        if self._marks and self._marks[-1] == len(self._values):
            self._marks.pop()
        else:
            self.pop()

    def tuple_of(self, size: int) -> None:
        """Make one tuple of the last values."""
        if len(self._values) < size:
            msg = "a tuple of more than the stack holds"
            raise BrokenPickleError(msg)
        self._values[-size:] = [tuple(self._values[-size:])]

    def memoize(self, key: object = None) -> None:
        """Keep the value on top in the memo."""
        self._memo[len(self._memo) if key is None else scalar(key)] = self.top()

    def recall(self, key: object) -> None:
        """Put a value of the memo on top."""
        if key not in self._memo:
            msg = f"nothing in the memo at {key!r}"
            raise BrokenPickleError(msg)
        self.push(self._memo[key])

    def extend(self, values: list[object]) -> None:
        """Add items to the list, set or object on top."""
        target = self.top()
        items = target.items if isinstance(target, Node) else target
        if not isinstance(items, list):
            msg = "items for something that is no list"
            raise BrokenPickleError(msg)
        items.extend(values)

    def update(self, values: list[object]) -> None:
        """Add keys and values, in turn, to the dictionary or object on top."""
        target = self.top()
        entries = target.entries if isinstance(target, Node) else target
        if not isinstance(entries, dict):
            msg = "keys for something that is no dictionary"
            raise BrokenPickleError(msg)
        entries.update(pairs(values))

    def build(self) -> None:
        """Give a state to the object below; data of our own needs none."""
        state, target = self.pop(), self.top()
        if isinstance(target, Node):
            target.state = state
        elif not isinstance(target, dict | list):
            msg = "a state for something that has none"
            raise BrokenPickleError(msg)


def pairs(values: list[object]) -> dict[object, object]:
    """Make a dictionary of keys and values in turn."""
    if len(values) % 2:
        msg = "a key without a value"
        raise BrokenPickleError(msg)
    keys = [scalar(key) for key in values[::2]]
    return dict(zip(keys, values[1::2], strict=True))


def scalar(key: object) -> object:
    """Return a key that is cheap to hash and to compare; refuse any other.

    Tuples as keys can be nested so deep that hashing one ends the process, or share
    parts so that it never ends; integers can be chosen to fall on one hash.
    """
    small = isinstance(key, int) and abs(key) < MAX_KEY
    if small or key is None or isinstance(key, str | float | bytes):
        return key
    msg = f"a dictionary key that is no plain value but a {type(key).__name__}"
    raise BrokenPickleError(msg)


def named(value: object) -> str:
    """Return the name of a global."""
    if isinstance(value, Name):
        return value.name
    msg = f"a call of something that is no name but a {type(value).__name__}"
    raise BrokenPickleError(msg)
