"""What a batch holds, by name and as plain values: for tables of what is expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rounddiag import Batch


def fact(batch: Batch, name: str) -> Any:
    """Return an attribute of a batch, or an entry of one of its tables.

    `sample.rank` is a column of samples, `round.action`, `token.kl` and `score.ref`
    alike; `rounds.start` is of the rounds that the mask has, `meta.step` of the meta.
    `pictures` are position, round and size of each, `said` role and text of each turn.
    """
    table, _, entry = name.partition(".")
    if entry:
        tables: dict[str, Mapping[str, Any]] = {
            "sample": batch.sample_columns,
            "round": batch.round_columns,
            "token": batch.token_columns,
            "score": batch.scores,
            "meta": batch.meta,
            "rounds": vars(batch.rounds),
        }
        return plain(tables[table].get(entry))
    if name == "pictures":
        rows = batch.images or ()
        return [[(shot.position, shot.round, shot.size) for shot in r] for r in rows]
    if name == "said":
        turns = batch.turns or ()
        return [[(turn.role, turn.text) for turn in row] for row in turns]
    return plain(getattr(batch, name))


def plain(value: Any) -> Any:
    """Return lists for tensors, arrays and tuples, and None for NaN."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def has(batch: Batch, expected: Mapping[str, Any]) -> None:
    """Compare facts of a batch with what is expected of them."""
    found = {name: fact(batch, name) for name in expected}
    other = {name: found[name] for name in expected if found[name] != expected[name]}
    assert not other, f"found {other}, expected {expected}"
