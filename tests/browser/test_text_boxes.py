"""No word of a figure touches another or is cut, narrow or wide, light or dark."""

from __future__ import annotations

import inspect
from dataclasses import replace

import plotly.graph_objects as go
import pytest

import rounddiag as rd
from rounddiag.figures._parts.canvas import LIGHT, new_figure
from tests.browser.conftest import ARTEFACTS
from tests.browser.hard_batches import NAMES, hard_batches, with_rounds
from tests.browser.text_boxes import EVERY, FigurePage, Theme, clashes


def takes_a_batch_alone(name: str) -> bool:
    if not name.startswith("plot_"):
        return False
    parameters = inspect.signature(getattr(rd, name)).parameters.values()
    return [one.name for one in parameters if one.default is one.empty] == ["data"]


PLOTS = [name for name in dir(rd) if takes_a_batch_alone(name)]
HARD = hard_batches()
THEMES: tuple[Theme, ...] = ("light", "dark")


@pytest.mark.parametrize("name", PLOTS)
def test_no_words_of_a_figure_touch(name: str, figure_page: FigurePage) -> None:
    image_window = rd.load("sample_data/image_window.parquet")
    assert clashes(figure_page, name, image_window, EVERY) == []


@pytest.mark.parametrize("kind", HARD)
def test_no_words_of_a_hard_batch_touch(kind: str, figure_page: FigurePage) -> None:
    batch = HARD[kind]
    found = [clash for name in PLOTS for clash in clashes(figure_page, name, batch)]
    found += clashes(figure_page, "plot_trajectory", batch, sample=0)
    assert found == []


@pytest.mark.parametrize("kind", ["1 round", "100 rounds", "all NaN", "hostile names"])
def test_no_words_of_a_comparison_touch(kind: str, figure_page: FigurePage) -> None:
    batches = dict.fromkeys(NAMES[:2], HARD[kind])
    assert clashes(figure_page, "plot_compare", batches) == []


@pytest.mark.parametrize("name", ["image_window", "stale", "advantages"])
def test_no_words_of_a_finding_touch(name: str, figure_page: FigurePage) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    clashes_by_look = {}
    for index, finding in enumerate(
        rd.diagnose(rd.load(f"sample_data/{name}.parquet"))
    ):
        for theme in THEMES:
            figure = rd.plot_finding(finding, theme=theme)
            for width in (500, 700, 1280, 1920):
                look = f"finding_{name}_{index}_{theme}_{width}"
                clashes_by_look[look] = figure_page.clashes(figure.to_json(), width)
                picture = figure_page.picture(figure, width)
                (ARTEFACTS / f"{look}.png").write_bytes(picture)
    assert clashes_by_look
    assert not any(clashes_by_look.values()), clashes_by_look


def test_no_words_touch_where_the_values_are_far_apart(figure_page: FigurePage) -> None:
    batch = with_rounds(30, 6, 4)
    for factor in (1e-7, 1e4):
        old = batch.log_probs("rollout") + factor * (
            batch.log_probs("old") - batch.log_probs("rollout")
        )
        far = replace(batch, old_log_probs=old)
        assert [one for name in PLOTS for one in clashes(figure_page, name, far)] == []


def test_lines_under_a_title_stand_side_by_side_where_there_is_room(
    figure_page: FigurePage,
) -> None:
    lines = ["a line of the key", "another one", "a third one"]
    spec = new_figure("Title", lines, LIGHT, plot=188).to_json()
    rows = {}
    for width in (400, 1280):
        assert figure_page.clashes(spec, width) == []
        tops = "all => all.map(one => one.getBoundingClientRect().top)"
        found = figure_page.page.eval_on_selector_all(".legendtext", tops)
        assert len(found) == 3
        rows[width] = len(set(found))
    assert rows == {400: 2, 1280: 1}


def test_words_that_touch_or_are_cut_are_seen(figure_page: FigurePage) -> None:
    place = {"x": 0.5, "y": 0.5, "showarrow": False}
    figure = go.Figure(layout={"xaxis_visible": False, "yaxis_visible": False})
    figure.add_annotation(text="one", **place)
    assert figure_page.clashes(figure.to_json(), 400) == []
    figure.add_annotation(text="two", **place)
    assert figure_page.clashes(figure.to_json(), 400) == ["touch: one | two"]
    figure.layout.annotations[1].update(x=0, xref="paper", xshift=-90)
    assert figure_page.clashes(figure.to_json(), 400) == ["cut: two"]
