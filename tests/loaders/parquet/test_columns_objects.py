"""Objects of columns are saved as they are shown, or refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import BatchError
from tests.batches import hand_batch


def with_column(missing: object, value: object) -> rd.Batch:
    column = np.empty(3, dtype=object)
    column[:] = [missing, value, value]
    return replace(hand_batch(), sample_columns={"fact": column})


@pytest.mark.parametrize(
    "missing",
    [None, pd.NA, pd.NaT, float("nan"), Decimal("nan"), np.datetime64("NaT")],
    ids=repr,
)
@pytest.mark.parametrize(
    "value",
    [
        *[np.int64(3), np.bool_(1), np.float16(0.5), np.longdouble(1.5)],
        *[torch.tensor(7), Decimal("1.5")],
    ],
    ids=repr,
)
def test_a_column_is_shown_alike_before_and_after(
    missing: object, value: object, tmp_path: Path
) -> None:
    batch = with_column(missing, value)
    rd.save(batch, tmp_path / "batch.parquet")
    again = rd.load(tmp_path / "batch.parquet")
    before, after = (data.columns.samples["fact"] for data in (batch, again))
    assert before.is_known().tolist() == after.is_known().tolist() == [0, 1, 1]
    assert before.values().tolist() == after.values().tolist()


@pytest.mark.parametrize(
    "value",
    [np.datetime64("2026-01-02", "ns"), pd.Timestamp("2026-01-02")],
    ids=repr,
)
def test_an_object_that_a_file_would_change_is_refused(
    value: object, tmp_path: Path
) -> None:
    with pytest.raises(BatchError, match=r"fact`: .* an object of type .* Convert it"):
        rd.save(with_column(None, value), tmp_path / "batch.parquet")
