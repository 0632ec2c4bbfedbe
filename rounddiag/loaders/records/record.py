"""One record of a file, whose fields are asked for by their shape."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rounddiag.loaders.records.number_arrays import Array
    from rounddiag.loaders.source import Source

_KINDS = {
    list: "a list of other values",
    dict: "an object",
    str: "text",
    NoneType: "null",
}


class Record(dict[str, Any]):
    """One record of a file of JSON lines; its lists of numbers are arrays.

    Attributes
    ----------
    line : int
        Where it stands, from 1.
    source : Source
        The file.
    """

    def __init__(self, values: dict[str, Any], *, line: int, source: Source) -> None:
        super().__init__(values)
        self.line, self.source = line, source

    def row(self, name: str, size: int | None = None) -> Array:
        """Return a field of one number a token.

        Raises
        ------
        LoadError
            If it is not there, is something else, or has not `size` numbers.
        """
        value = self.get(name)
        found = _KINDS.get(type(value), "one number")
        if isinstance(value, np.ndarray):
            if size in {None, len(value)}:
                return value
            found = f"{len(value)} numbers"
        found = found if name in self else "no such field"
        numbers = "a list of numbers" if size is None else f"a list of {size} numbers"
        raise self.source.error(
            expected=f"{numbers} in `{name}` of line {self.line}",
            found=found,
            advice="Every line must have one number a token in it.",
        )
