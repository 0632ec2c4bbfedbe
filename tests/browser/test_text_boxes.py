"""No word of a figure touches another or is cut, narrow or wide, light or dark."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import plotly.graph_objects as go
import pytest

import rounddiag as rd
from rounddiag import figures
from tests.batches import padded, random_log_probs
from tests.browser.text_boxes import FigurePage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

WIDTHS = (400, 1600)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def takes_a_batch_alone(name: str) -> bool:
    parameters = inspect.signature(getattr(figures, name)).parameters.values()
    required = [one.name for one in parameters if one.default is one.empty]
    return name.startswith("plot_") and required == ["data"]


PLOTS = [name for name in figures.__all__ if takes_a_batch_alone(name)]
OPTIONS: dict[str, dict[str, Any]] = {
    "quantiles": {"layers": {"quantiles": True}},
    "one panel": {"layers": {"counts": False, "quantiles": True, "mean": False}},
    "from the end": {"last_aligned": True},
    "by": {"by": "rank"},
    "long names": {"by": "name", "last_aligned": True},
    "slime": {"metric": "train_rollout_logprob_abs_diff"},
}


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[FigurePage]:
    opened = FigurePage(chromium)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def image_window() -> rd.Batch:
    return rd.load("sample_data/image_window.parquet")


@pytest.fixture(scope="module")
def many_rounds() -> rd.Batch:
    """120 samples, of 60 rounds at most; those of one in four are exactly alike."""
    num_samples, width = 120, 120
    reached = np.arange(num_samples)[:, None] % 60
    place = np.arange(width)[None]
    rollout = random_log_probs((num_samples, width), seed=0)
    noise = random_log_probs((num_samples, width), seed=1) / 100
    noise[::4] = 0
    return padded(
        ((place % 2 == 0) & (place <= 2 * reached)).astype(int),
        rollout + noise,
        rollout,
        sample_columns={
            "rank": np.arange(num_samples) % 8,
            "name": np.array([f"environment {i % 5} of many" for i in range(120)]),
        },
    )


def clashes(page: FigurePage, name: str, data: rd.Batch, **options: Any) -> list[str]:
    draw = getattr(figures, name)
    return [
        f"{theme}, {width}: {clash}"
        for theme in THEMES
        for figure in [draw(data, theme=theme, **options)]
        for width in WIDTHS
        for clash in page.clashes(figure, width)
    ]


@pytest.mark.parametrize("name", PLOTS)
def test_no_words_of_a_figure_touch(
    name: str, page: FigurePage, image_window: rd.Batch
) -> None:
    assert clashes(page, name, image_window) == []


@pytest.mark.parametrize("name", OPTIONS)
def test_no_words_of_the_rounds_touch(
    name: str, page: FigurePage, many_rounds: rd.Batch
) -> None:
    assert clashes(page, "plot_rounds", many_rounds, **OPTIONS[name]) == []


def test_no_words_of_one_sample_touch(page: FigurePage, many_rounds: rd.Batch) -> None:
    layers = {"quantiles": True}
    assert clashes(page, "plot_rounds", many_rounds[59:60], layers=layers) == []


def test_words_that_touch_or_are_cut_are_seen(page: FigurePage) -> None:
    place = {"x": 0.5, "y": 0.5, "showarrow": False}
    figure = go.Figure(layout={"xaxis_visible": False, "yaxis_visible": False})
    figure.add_annotation(text="one", **place)
    assert page.clashes(figure, 400) == []
    figure.add_annotation(text="two", **place)
    assert page.clashes(figure, 400) == ["touch: one | two"]
    figure.layout.annotations[1].update(x=0, xref="paper", xshift=-90)
    assert page.clashes(figure, 400) == ["cut: two"]
