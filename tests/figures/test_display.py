"""What a notebook gets of a figure: plotly's data, words, and the style of a theme."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
import pytest

import rounddiag
from rounddiag.figures._parts.canvas import LIGHT, new_figure
from rounddiag.figures._parts.display import (
    page_style,
    replacement,
)
from tests.batches import hand_batch

PLOTLY = "application/vnd.plotly.v1+json"


@pytest.fixture
def displays(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda one, **_: found.append(one))
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    return found


def test_a_figure_is_followed_by_the_style_of_the_other_theme(
    displays: list[dict[str, Any]],
) -> None:
    rounddiag.plot_rounds(hand_batch())._ipython_display_()
    (figure, style) = displays
    assert {PLOTLY, "text/html"} == set(figure)
    assert '[data-jp-theme-light="false"]' in style["text/html"]
    assert "#111111" in style["text/html"]


def test_a_copy_follows_the_page_too(displays: list[dict[str, Any]]) -> None:
    deepcopy(rounddiag.plot_rounds(hand_batch())).show()
    assert len(displays) == 2


def test_a_theme_that_was_chosen_has_no_style(displays: list[dict[str, Any]]) -> None:
    rounddiag.plot_rounds(hand_batch(), theme="light").show()
    assert [set(one) for one in displays] == [{PLOTLY, "text/html"}]


def test_another_renderer_draws_as_it_does(
    displays: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[go.Figure] = []
    monkeypatch.setattr(pio, "show", drawn.append)
    monkeypatch.setattr(pio.renderers, "default", "json")
    figure = rounddiag.plot_rounds(hand_batch())
    figure._ipython_display_()
    assert drawn == [figure]
    assert displays == []


def test_the_style_replaces_each_color_where_plotly_has_it() -> None:
    style = page_style({"#0a141e": "#ffffff"}, "dark")
    rules = re.search(r"\.js-plotly-plot\{(.*)\}$", style)
    assert rules is not None
    assert rules[1] == (
        ':is([style*="fill: rgb(10, 20, 30)"],[style*="fill:#0a141e"],'
        '[fill="rgb(10, 20, 30)"]):not(.cbfill){fill:#ffffff!important}'
        ':is([style*="stroke: rgb(10, 20, 30)"],[stroke="rgb(10, 20, 30)"])'
        ":not(.cbfill){stroke:#ffffff!important}"
        ':is([style*="background: rgb(10, 20, 30)"]):not(.cbfill)'
        "{background:#ffffff!important}"
    )


def test_words_are_title_and_lines_and_no_markup_of_a_file() -> None:
    line = "<span style='color:#000'>b</span> &amp; c"
    figure = new_figure("a &lt;img&gt;", [line], LIGHT, plot=188)
    found = replacement(figure)
    assert "<p><b>a &lt;img&gt;</b></p><ul><li>b &amp; c</li></ul>" in found
    assert "<code>pip install plotly</code>" in found
