"""A small batch as columns, which the tests of tables write in their forms."""

from __future__ import annotations

import re
from typing import Any

from rounddiag.batch import Batch
from rounddiag.errors import LoadError

# Two rounds and one round; the sampler gives an observation 0.
COLUMNS: dict[str, list[Any]] = {
    "response_ids": [[5, 6, 7], [8]],
    "response_mask": [[1, 0, 1], [1]],
    "rollout_log_probs": [[-1.0, 0.0, -2.0], [-0.5]],
    "old_log_probs": [[-1.5, -9.0, -2.0], [-0.25]],
    "prompt_ids": [[1, 2], [3]],
    "ref_log_probs": [[-1.25, -9.0, -2.5], [-0.75]],
    "group_ids": ["a", "b"],
    "sample_ids": ["first", "second"],
    "rewards": [1.0, 0.5],
    "turns": [2, 1],
}


def check(batch: Batch) -> None:
    """Compare what was read with COLUMNS."""
    assert batch.offsets.tolist() == [0, 3, 4]
    assert batch.require_ids().tolist() == [5, 6, 7, 8]
    assert batch.response_mask.tolist() == [1, 0, 1, 1]
    assert batch.log_probs("rollout").tolist() == [-1.0, 0.0, -2.0, -0.5]
    assert batch.log_probs("old").tolist() == [-1.5, -9.0, -2.0, -0.25]
    assert batch.scores["ref"].tolist() == [-1.25, -9.0, -2.5, -0.75]
    assert batch.prompt_ids.tolist() == [1, 2, 3]
    assert batch.group_ids == ("a", "b")
    assert batch.sample_ids == ("first", "second")
    assert batch.rewards.tolist() == [1.0, 0.5]
    assert list(batch.sample_columns["turns"]) == [2, 1]
    assert "left_out" not in batch.meta


def named_otherwise() -> dict[str, list[Any]]:
    """COLUMNS, every field under another name."""
    return {f"my_{name}": rows for name, rows in COLUMNS.items() if name != "turns"} | {
        "turns": COLUMNS["turns"]
    }


def says(message: str) -> Any:
    """A context that expects a LoadError of exactly this message."""
    import pytest

    return pytest.raises(LoadError, match=f"^{re.escape(message)}$")
