"""Counts of points in two dimensions: none is lost, whatever its value."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.stats.agreement import Bins, densities, num_beyond

ENDS = Bins(low=0.0, high=1.0, num=4)


def points(x: list[float], y: list[float], panel: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"panel": panel, "x": x, "y": y}).astype(
        {"x": "float32", "y": "float32", "panel": "int64"}
    )


def test_each_bin_counts_the_points_of_its_panel() -> None:
    frame = points([0.1, 0.2, 0.9, 0.1], [0.6, 0.6, 1.0, 0.6], [0] * 3 + [2])
    cells = densities(frame, ENDS)

    rows = cells[["panel", "x_bin", "y_bin", "num"]].to_numpy().tolist()
    assert rows == [[0, 0, 2, 2], [0, 3, 3, 1], [2, 0, 2, 1]]


def test_what_lies_beyond_is_counted_at_the_end() -> None:
    frame = points([-5.0, 9.0, 0.1], [0.1, 0.1, 1e30], [0] * 3)
    cells = densities(frame, ENDS)

    assert cells[["x_bin", "y_bin"]].to_numpy().tolist() == [[0, 0], [3, 0], [0, 3]]
    assert num_beyond(frame, ENDS) == 3


def test_what_is_not_finite_is_neither_counted_nor_beyond() -> None:
    frame = points([np.nan, 0.1, np.inf], [0.1, -np.inf, 0.1], [0] * 3)

    assert densities(frame, ENDS).empty
    assert num_beyond(frame, ENDS) == 0


@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32), st.integers(0, 2))))
def test_every_finite_point_is_in_one_bin(rows: list[tuple[float, float, int]]) -> None:
    frame = points(
        [x for x, _, _ in rows], [y for _, y, _ in rows], [p for *_, p in rows]
    )
    finite = np.isfinite(frame["x"]) & np.isfinite(frame["y"])
    cells = densities(frame, Bins(low=-1.0, high=1.0, num=5))

    assert cells["num"].sum() == finite.sum()
    assert (
        cells.loc[cells["panel"] == 2, "num"].sum()
        == (frame["panel"][finite] == 2).sum()
    )
    assert cells["x_bin"].isin(range(5)).all()
    assert cells["y_bin"].isin(range(5)).all()
