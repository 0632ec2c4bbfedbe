"""Exact quantiles of runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.core.aggregation import run_quantiles


@given(
    st.lists(st.lists(st.floats(0, 1e6, width=32), max_size=12), max_size=8),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
)
def test_quantiles_of_runs_equal_numpy(
    runs: list[list[float]], where: list[float]
) -> None:
    values = np.array([value for run in runs for value in run], dtype=np.float32)
    found = run_quantiles(values, np.array([len(run) for run in runs], int), where)
    assert found.shape == (len(where), len(runs))
    for run, quantiles in zip(runs, found.T, strict=True):
        wanted = (
            np.quantile(np.array(run), where) if run else np.full(len(where), np.nan)
        )
        assert quantiles == pytest.approx(wanted.tolist(), rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("values", [[np.inf], [1.0, np.inf, np.inf]])
def test_quantiles_of_infinite_values_are_infinite(values: list[float]) -> None:
    found = run_quantiles(np.array(values), np.array([len(values)]), [0.5, 0.99])
    assert found.tolist() == [[np.inf], [np.inf]]
