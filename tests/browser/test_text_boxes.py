"""No word of a figure touches another or is cut, narrow or wide, light or dark."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import plotly.graph_objects as go
import pytest

import rounddiag as rd
from rounddiag import figures
from tests.browser.hard_batches import NAMES, hard_batches, with_rounds
from tests.browser.text_boxes import FigurePage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from playwright.sync_api import Browser

Theme = Literal["light", "dark"]
EVERY: list[tuple[Theme, int]] = [
    *(("light", 400), ("light", 1600)),
    *(("dark", 400), ("dark", 1600)),
]
# Themes differ in colours only.
EITHER: list[tuple[Theme, int]] = [("light", 400), ("dark", 1600)]


def takes_a_batch_alone(name: str) -> bool:
    parameters = inspect.signature(getattr(figures, name)).parameters.values()
    required = [one.name for one in parameters if one.default is one.empty]
    return name.startswith("plot_") and required == ["data"]


PLOTS = [name for name in figures.__all__ if takes_a_batch_alone(name)]
HARD = hard_batches()
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "quantiles": ("plot_rounds", {"layers": {"quantiles": True}}),
    "one panel": (
        "plot_rounds",
        {"layers": {"counts": False, "quantiles": True, "mean": False}},
    ),
    "from the end": ("plot_rounds", {"last_aligned": True}),
    "slime": ("plot_rounds", {"metric": "train_rollout_logprob_abs_diff"}),
    "signed": ("plot_heatmap", {"metric": "mean_diff"}),
    "largest": ("plot_heatmap", {"metric": "max_abs_diff", "order": "worst"}),
    "k3": ("plot_heatmap", {"metric": "k3", "pooling": "mean", "order": "rounds"}),
    "log-probs": ("plot_probabilities", {"axes": "log_prob"}),
    "diffs": ("plot_probabilities", {"axes": "diff"}),
    "along the response": ("plot_positions", {"by": "response"}),
    "to the end": ("plot_positions", {"by": "end"}),
}
# These need groups, rewards or values.
NAMED_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "by": ("plot_rounds", {"by": "rank"}),
    "by, from the end": ("plot_rounds", {"by": "rank", "last_aligned": True}),
    "groups": ("plot_heatmap", {"order": "group"}),
    "rewards": ("plot_heatmap", {"order": "reward"}),
}


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[FigurePage]:
    opened = FigurePage(chromium)
    yield opened
    opened.close()


def clashes(
    page: FigurePage,
    name: str,
    data: Any,
    looks: Sequence[tuple[Theme, int]] = EITHER,
    **options: Any,
) -> list[str]:
    draw = getattr(figures, name)
    drawn = {theme: draw(data, theme=theme, **options) for theme, _ in looks}
    return [
        f"{name} {options}, {theme}, {width}: {clash}"
        for theme, width in looks
        for clash in page.clashes(drawn[theme], width)
    ]


@pytest.mark.parametrize("name", PLOTS)
def test_no_words_of_a_figure_touch(name: str, page: FigurePage) -> None:
    image_window = rd.load("sample_data/image_window.parquet")
    assert clashes(page, name, image_window, EVERY) == []


@pytest.mark.parametrize("kind", HARD)
def test_no_words_of_a_hard_batch_touch(kind: str, page: FigurePage) -> None:
    batch = HARD[kind]
    found = [clash for name in PLOTS for clash in clashes(page, name, batch)]
    found += clashes(page, "plot_trajectory", batch, sample=0)
    assert found == []


@pytest.mark.parametrize("option", [*OPTIONS, *NAMED_OPTIONS])
def test_no_words_of_an_option_touch(option: str, page: FigurePage) -> None:
    name, options = {**OPTIONS, **NAMED_OPTIONS}[option]
    kinds = ["hostile names"]
    kinds += ["100 rounds", "1 token", "all NaN"] if option in OPTIONS else []
    found = [
        one for kind in kinds for one in clashes(page, name, HARD[kind], **options)
    ]
    assert found == []


@pytest.mark.parametrize("kind", ["1 round", "100 rounds", "all NaN", "hostile names"])
@pytest.mark.parametrize("num", [2, 8])
def test_no_words_of_a_comparison_touch(kind: str, num: int, page: FigurePage) -> None:
    batches = dict.fromkeys(NAMES[:num], HARD[kind])
    assert clashes(page, "plot_compare", batches) == []


def test_no_words_touch_where_the_values_are_far_apart(page: FigurePage) -> None:
    batch = with_rounds(30, 6, 4)
    for factor in (1e-7, 1e4):
        old = batch.rollout_log_probs + factor * (
            batch.old_log_probs - batch.rollout_log_probs
        )
        far = replace(batch, old_log_probs=old)
        assert [one for name in PLOTS for one in clashes(page, name, far)] == []


def test_words_that_touch_or_are_cut_are_seen(page: FigurePage) -> None:
    place = {"x": 0.5, "y": 0.5, "showarrow": False}
    figure = go.Figure(layout={"xaxis_visible": False, "yaxis_visible": False})
    figure.add_annotation(text="one", **place)
    assert page.clashes(figure, 400) == []
    figure.add_annotation(text="two", **place)
    assert page.clashes(figure, 400) == ["touch: one | two"]
    figure.layout.annotations[1].update(x=0, xref="paper", xshift=-90)
    assert page.clashes(figure, 400) == ["cut: two"]
