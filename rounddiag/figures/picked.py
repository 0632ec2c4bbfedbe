"""Samples that a file holds because they were the worst: counted, and told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.batch import Batch
from rounddiag.checks.words import count
from rounddiag.stats.captured import num_picked

if TYPE_CHECKING:
    import pandas as pd


def num_picked_of(data: Batch | pd.DataFrame) -> int:
    """Count the samples that are there because they were the worst; 0 of a frame."""
    return num_picked(data) if isinstance(data, Batch) else 0


def left_out(data: Batch | pd.DataFrame) -> list[str]:
    """Say how many samples a statistic leaves out as picked, in a line if any.

    Examples
    --------
    >>> import rounddiag as rd
    >>> left_out(rd.load("sample_data/healthy.parquet"))
    []
    """
    num = num_picked_of(data)
    return [f"left out: {count(num, 'sample')} picked as the worst"] if num else []
