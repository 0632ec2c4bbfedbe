"""Figures say how many samples they leave out as picked for being the worst."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.figures import (
    plot_conditional,
    plot_positions,
    plot_roles,
    plot_tail,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import plotly.graph_objects as go

FIGURES = (plot_conditional, plot_positions, plot_roles, plot_tail)


@pytest.mark.parametrize("plot", FIGURES)
def test_samples_that_are_left_out_are_counted(plot: Callable[..., go.Figure]) -> None:
    batch = rd.load("sample_data/healthy.parquet")[:8]
    picked = np.array(["worst"] * 3 + ["random"] * 5)
    held: Any = replace(
        batch, sample_columns={"picked": picked}, meta={"capture": {"rounds": []}}
    )

    assert "left out: 3 samples picked as the worst" in plot(held).layout.title.text
    assert "picked" not in plot(batch).layout.title.text
