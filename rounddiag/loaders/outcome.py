"""What files record of the outcome of a round or a sample, under names of their own."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from rounddiag.schema import OUTCOME, SECONDS
from rounddiag.text.json_text import object_in

_NAMES = tuple(column.name for column in OUTCOME)


def outcome(record: object, **names: str) -> dict[str, object]:
    """Return columns of `schema.OUTCOME`; `names` are theirs in the record.

    Examples
    --------
    >>> outcome({"cost_usd": 0.5, "n": None}, cost="cost_usd", num_generated="n")
    {'cost': 0.5}
    """
    values = {
        ours: object_in(record).get(names[ours]) for ours in _NAMES if ours in names
    }
    return {
        ours: value
        for ours, value in values.items()
        if isinstance(value, str | int | float) and value != ""
    }


def seconds_between(start: object, end: object) -> dict[str, object]:
    """Return the time between two times, in seconds or as ISO texts, as a column.

    Examples
    --------
    >>> seconds_between("2026-01-05T10:00:00Z", "2026-01-05T10:00:02.500000Z")
    {'seconds': 2.5}
    >>> seconds_between(None, 3.0)
    {}
    """
    with suppress(TypeError, ValueError, OverflowError):
        return {SECONDS.name: _seconds(end) - _seconds(start)}
    return {}


def _seconds(time: object) -> float:
    """Return a time as seconds since the epoch; a TypeError if it is none."""
    if isinstance(time, str):
        # Python 3.10 does not know the Z of UTC.
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise TypeError
    return float(time)
