"""Fields by name that are read when they are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self


class LazyFields(Mapping[str, Any]):
    """A mapping whose values are read each time they are looked up.

    Iterating over the names and `in` read nothing.

    Parameters
    ----------
    names : iterable of str
    read : callable
        Returns the value of a name.

    Examples
    --------
    >>> fields = LazyFields(["mask", "kl"], str.upper)
    >>> "kl" in fields, fields["mask"], fields.left_out
    (True, 'MASK', ['kl'])
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], Any]) -> None:
        self._read = read
        self._is_read = dict.fromkeys(names, False)

    @classmethod
    def watch(cls, fields: Mapping[str, Any]) -> Self:
        """Return the same fields, with a `left_out` of their own."""
        return cls(fields, fields.__getitem__)

    @classmethod
    def rename(cls, fields: Mapping[str, Any], names: Mapping[str, str]) -> Self:
        """Return the same fields, some of them under other names.

        Parameters
        ----------
        fields : mapping
        names : mapping of str to str
            New names, and the names that they stand for. A field that had one of the
            new names is hidden.

        Examples
        --------
        >>> dict(LazyFields.rename({"a": 1, "b": 2, "c": 3}, {"b": "a"}))
        {'c': 3, 'b': 1}
        """
        old = tuple(fields)
        keys = {name: name for name in old if name not in {*names, *names.values()}}
        keys |= {new: name for new, name in names.items() if name in old}
        return cls(keys, lambda name: fields[keys[name]])

    @property
    def left_out(self) -> list[str]:
        """The names that were never looked up."""
        return [name for name, is_read in self._is_read.items() if not is_read]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 whatever `read` returns
        if name not in self._is_read:
            raise KeyError(name)
        value = self._read(name)
        self._is_read[name] = True
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._is_read

    def __iter__(self) -> Iterator[str]:
        return iter(self._is_read)

    def __len__(self) -> int:
        return len(self._is_read)
