"""Frames of means as figures take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd


def means_of(
    keys: Mapping[str, list[Any]], columns: Mapping[str, list[Any]]
) -> pd.DataFrame:
    """Give the first of some cells means; `columns` say what differs from these."""
    size = len(next(iter(columns.values())))
    known: dict[str, list[Any]] = {
        **{name: values[:size] for name, values in keys.items()},
        "num_samples": [64] * size,
        "num_tokens": [1000] * size,
        "num_nonfinite": [0] * size,
        "mean": [0.01] * size,
        "ci_low": [0.005] * size,
        "ci_high": [0.02] * size,
        "is_few": [False] * size,
    }
    return pd.DataFrame({**known, **columns})
