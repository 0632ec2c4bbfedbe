"""The door of the public functions: from a path, a batch or a frame to `Measured`."""

from __future__ import annotations

import os
from typing import TypeAlias

import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core.measured import Measured

Data: TypeAlias = Batch | pd.DataFrame | Measured | str | os.PathLike[str]


def open_measured(data: Data, a: str = "old", b: str = "rollout") -> Measured:
    """Open the file of a path, and choose the pair of scores.

    Examples
    --------
    >>> open_measured("sample_data/healthy.parquet").num_samples
    64
    """
    if isinstance(data, str | os.PathLike):
        from rounddiag.loaders import load

        data = load(data)
    return Measured.of(data, a, b)
