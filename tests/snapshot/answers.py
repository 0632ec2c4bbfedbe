"""The file of the snapshot: read, written, and compared with what is said today."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.snapshot.description import Description

FILE = Path(__file__).parent / "answers.json"
TOLERANCE = 1e-6  # relative, of a number that is no count
# A step of float32 below 1: processors round `exp` differently, and what is left of a
# difference of probabilities may be no larger.
_STEP = 2**-23
_SAME = "same as "


def read() -> dict[str, Description]:
    """Return each case's description, those of equal answers in full."""
    stored: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: stored[answer.removeprefix(_SAME)] if isinstance(answer, str) else answer
        for name, answer in stored.items()
    }


def write(answers: Mapping[str, Description]) -> None:
    """Write a line per answer and figure, sorted by case; equal answers once."""
    names: dict[str, str] = {}
    cases = []
    for name, answer in sorted(answers.items()):
        text = ",\n".join(
            f"  {_line(key)}: {(_lines if key == 'figures' else _line)(value)}"
            for key, value in answer.items()
        )
        first = names.setdefault(text, name)
        body = f"{{\n{text}\n }}" if first == name else _line(_SAME + first)
        cases.append(f" {_line(name)}: {body}")
    FILE.write_text("{\n" + ",\n".join(cases) + "\n}\n", encoding="utf-8")


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(value: Any) -> str:
    if not isinstance(value, dict):
        return _line(value)
    lines = (f"   {_line(key)}: {_line(figure)}" for key, figure in value.items())
    return "{\n" + ",\n".join(lines) + "\n  }"


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Yield what is not the same, by its place: floats to `TOLERANCE`, else exactly."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{place} > {key}")
    elif isinstance(before, list) and isinstance(now, list):
        for index, pair in enumerate(zip_longest(before, now)):
            yield from differences(*pair, f"{place}[{index}]")
    elif not _is_same(before, now, _STEP if place.endswith("> prob_diff") else 0):
        yield f"{place}\n  before: {before}\n  now:    {now}"


def _is_same(before: Any, now: Any, step: float) -> bool:
    if isinstance(before, float) or isinstance(now, float):
        is_number = isinstance(before, int | float) and isinstance(now, int | float)
        return is_number and math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=step)
    return bool(before == now)
