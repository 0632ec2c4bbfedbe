"""The part of the bench that is in the repository: small batches in `fixed.npz`.

    python -m tests.faults.fixed

chooses them anew from the cache: of every fault a few whose cause is named, cut to few
rows, without what `rd.diagnose` does not read: scores outside the mask, pixels.
"""

from __future__ import annotations

import io
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.faults.cases import Case, cases
from tests.faults.rows import Array, Rows

FILE = Path(__file__).parent / "fixed.npz"
MOST_ROWS = 24
HEALTHY = 14
A_FAULT = 2
"""How many batches of sound rows, and of each fault."""
TRIES = 6


def load(path: Path = FILE) -> list[Case]:
    """Return the batches of a file."""
    with np.load(path) as file:
        arrays = dict(file)
    found = []
    first = 0
    for entry in json.loads(str(arrays.pop("cases"))):
        last = first + entry["num_rows"]
        found.append(_case(entry, arrays, first, last))
        first = last
    return found


def _case(
    entry: dict[str, Any], arrays: dict[str, Array], first: int, last: int
) -> Case:
    values: dict[str, Any] = {
        "group": entry["group"],
        "reward": entry["reward"],
        "shots": [[_dot(i, j) for j in range(n)] for i, n in enumerate(entry["shots"])],
        "sample_columns": {k: np.array(v) for k, v in entry["columns_of"].items()},
    }
    for name in entry["fields"]:
        ends = np.cumsum(arrays[f"{name}.sizes"])
        parts = np.split(arrays[name], ends[:-1], axis=-1)
        values[name] = parts[first:last]
    empty: dict[str, Any] = {name: [] for name in _LISTS if name not in values}
    return Case(
        entry["name"],
        entry["split"],
        tuple(entry["causes"]),
        entry["severity"],
        Rows(**values, **empty),
        frozenset(entry["columns"]),
        entry.get("ratio", np.nan),
        call=entry["call"],
        meta=entry["meta"],
    )


_LISTS = ("ids", "mask", "rollout", "old", "entropy", "prompt", "version", "current")


def _dot(row: int, number: int) -> bytes:
    """Return the smallest screenshot, another one for every place."""
    data = io.BytesIO()
    Image.new("RGB", (1, 1), (row, number, 0)).save(data, "PNG")
    return data.getvalue()


def save(chosen: list[Case], path: Path = FILE) -> None:
    """Write a file."""
    lists: dict[str, list[Array]] = defaultdict(list)
    entries = []
    for case in chosen:
        rows = case.rows
        present = [name for name in _LISTS if getattr(rows, name)]
        if "entropy" not in case.columns:
            present.remove("entropy")
        for name in _LISTS:
            values = getattr(rows, name) if name in present else []
            lists[name] += values or [np.zeros(0)] * len(rows)
        entries.append(
            {
                "name": case.name,
                "split": case.split,
                "causes": case.causes,
                "severity": case.severity,
                **({} if np.isnan(case.ratio) else {"ratio": round(case.ratio, 2)}),
                "columns": sorted(case.columns - {"places"}),
                "call": case.call,
                "meta": case.meta,
                "num_rows": len(rows),
                "fields": present,
                "group": rows.group,
                "reward": rows.reward,
                "shots": [len(one) for one in rows.shots],
                "columns_of": {k: v.tolist() for k, v in rows.sample_columns.items()},
            }
        )
    arrays: dict[str, Any] = {"cases": json.dumps(entries)}
    for name, values in lists.items():
        kind = {"mask": np.int8, "ids": np.int16, "prompt": np.int16}.get(
            name, np.int16 if name == "version" else np.float32
        )
        arrays[f"{name}.sizes"] = np.array([len(one) for one in values], np.int16)
        arrays[name] = np.concatenate([one.astype(kind) for one in values])
    np.savez_compressed(path, **arrays)


def small(case: Case) -> Case:
    """Return the case with few rows, and nothing outside the mask."""
    rows = case.rows.take(range(min(len(case.rows), MOST_ROWS)))
    kept = [mask.astype(bool) for mask in rows.mask]
    for name in ("old", "entropy", "current"):
        if getattr(rows, name):
            rows = rows.change(
                name, lambda i, values: np.where(kept[i], np.nan_to_num(values), 0.0)
            )
    return replace(case, rows=replace(rows, places=[]), healthy=None)


def choose() -> Iterator[Case]:
    """Yield batches of each fault whose cause `rd.diagnose` claims or lists today."""
    by_fault: dict[str, list[Case]] = defaultdict(list)
    for split in ("tune", "test"):
        for case in cases(split):
            is_asked = case.healthy is None and "places" not in case.columns
            is_asked = is_asked and not case.rows.rollout_ids
            if len(case.causes) == 1 and is_asked:
                by_fault[case.name.split("/")[-1].split(".")[0]].append(case)
    for fault, found in sorted(by_fault.items()):
        is_sound = fault == "healthy"
        found.sort(key=lambda case: (case.severity == "just_visible", len(case.rows)))
        step = max(1, len(found) // HEALTHY)
        tried = found[::step] if is_sound else found[:TRIES]
        right = (one for one in map(small, tried) if _is_clear(one))
        yield from islice(right, HEALTHY if is_sound else A_FAULT)


def _is_clear(case: Case) -> bool:
    from tests.faults.bench import run  # which lists these batches

    one = run(case)
    is_sound = case.causes == ("healthy",)
    return not one.is_alarm if is_sound else one.is_listed and not one.is_wrong


def main() -> int:
    """Choose and write."""
    chosen = list(choose())
    save(chosen)
    print(f"{len(chosen)} batches, {FILE.stat().st_size} bytes")
    for case in chosen:
        print(f'    "{case.name}": "{case.causes[0]}",')
    return 0


if __name__ == "__main__":
    sys.exit(main())
