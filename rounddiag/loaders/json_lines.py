"""JSON text with one record a line."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.loaders.source import Source


class JsonLines:
    """The records of a file, read one line at a time.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    first : dict
        The first record, which tells the format; empty where there is none.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.first: dict[str, Any] = next(iter(self), {})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with io.BufferedReader(self.source.open()) as stream:
            for number, line in enumerate(stream, 1):
                if not line.isspace():
                    yield self._record(number, line)

    def _record(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            found = f"no JSON in line {number}: {error!s:.80}"
            raise self.source.damaged(found=found) from error
        if not isinstance(record, dict):
            found = f"{type(record).__name__} in line {number}, where a record must be"
            raise self.source.damaged(found=found)
        return record
