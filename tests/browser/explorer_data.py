"""Samples as the kernel sends them to the explorer's page: real ones, and any."""

from __future__ import annotations

from typing import Any

import numpy as np

from rounddiag.figures.colored_text import levels


def round_of(first: int, pieces: list[str], diff: Any, **others: Any) -> dict[str, Any]:
    """One round whose tokens begin at index `first`."""
    finite = np.asarray(diff)[np.isfinite(diff)]
    mean = float(np.abs(finite).mean()) if len(finite) else float("nan")
    return {
        "round": 0,
        "start": first,
        "first": first,
        "num_tokens": len(pieces),
        "num_nonfinite": len(pieces) - len(finite),
        "mean_abs_diff": mean,
        "level": 3,
        "action": action("wait"),
        "screenshot": None,
        "after": None,
        **others,
    }


def action(kind: str, **others: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("point", "end_point", "direction", "text"))
    label = kind.replace("_", " ")
    return {"kind": kind, "label": label, "line": label, **nothing, **others}


def sample_of(pieces: list[str], diff: Any = None, **others: Any) -> dict[str, Any]:
    """A sample of one round with these tokens."""
    size = len(pieces)
    diff = np.zeros(size, np.float32) if diff is None else np.asarray(diff, np.float32)
    places = np.arange(size, dtype=np.int32)
    tokens = {
        "piece": pieces,
        "diff": diff,
        "a": diff - 1,
        "b": np.full(size, -1, np.float32),
        "level": levels(diff),
        "is_special": np.zeros(size, np.uint8),
        "position": places,
        "round": 0 * places,
        "token_id": 100 + places,
        "rank_in_round": places + 1,
        "rank_in_batch": places + 1,
    }
    return {
        "sample": 0,
        "num_tokens": size,
        "noun": "token",
        "name_a": "old",
        "name_b": "rollout",
        "rounds": [round_of(0, pieces, diff)] if size else [],
        "gaps": [],
        "tokens": tokens,
        **others,
    }
