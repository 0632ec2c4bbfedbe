"""One theme for all figures: themes, no upload button, a width left to the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rounddiag
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import DARK, LIGHT, Theme, theme_of
from rounddiag.figures.colored_text import STRONGEST
from tests.batches import hand_batch
from tests.figures.plots import PLOTS, plot

THEMES = [LIGHT, DARK]
Color = np.ndarray[Any, Any]


@pytest.fixture
def light_again() -> Iterator[None]:
    yield
    rounddiag.figures.use_theme("light")


@pytest.mark.parametrize("name", PLOTS)
def test_no_figure_has_an_upload_button_or_a_width(name: str) -> None:
    empty = hand_batch().where([False, False, False])
    pictures = [plot(name, hand_batch())]
    pictures += [plot(name, empty)] if name != "plot_trajectory" else []
    for figure in pictures:
        assert figure.layout.modebar.remove == ("sendChartToCloud",)
        assert figure.layout.width is None
        assert figure.layout.height > 0


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_paper_is_opaque_in_both_themes(name: str, theme: Theme) -> None:
    layout = plot(name, hand_batch(), theme=theme.name).layout.template.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == theme.paper
    assert layout.font.color == theme.text
    assert re.fullmatch("#[0-9a-f]{6}", theme.paper)


@pytest.mark.usefixtures("light_again")
def test_the_default_theme_can_be_set() -> None:
    assert theme_of(None) == replace(LIGHT, follows_page=True)
    rounddiag.figures.use_theme("dark")
    figure = rounddiag.plot_rounds(hand_batch())
    assert figure.layout.template.layout.paper_bgcolor == "#111111"
    assert theme_of("light") is LIGHT


def test_an_unknown_theme_is_refused() -> None:
    message = (
        "`theme`: expected one of ['dark', 'light']; found 'solarized'."
        " Leave it out for the default of `rounddiag.figures.use_theme`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        rounddiag.plot_rounds(hand_batch(), theme="solarized")  # type: ignore[arg-type]


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_text_has_enough_contrast_also_on_the_strongest_colour(theme: Theme) -> None:
    paper, shade = rgb(theme.paper), rgb(theme.shade)
    for color in (theme.text, theme.muted, theme.more, theme.less):
        assert min(contrast(rgb(color), paper), contrast(rgb(color), shade)) >= 4.5
    for color in (theme.more, theme.less):
        tinted = STRONGEST * rgb(color) + (1 - STRONGEST) * paper
        assert contrast(rgb(theme.text), tinted) >= 4.5


def rgb(color: str) -> Color:
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def contrast(one: Color, other: Color) -> float:
    """The ratio that WCAG 2 defines."""
    low, high = sorted(luminance(color) + 0.05 for color in (one, other))
    return high / low


def luminance(color: Color) -> float:
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_a_change_of_a_figure_s_template_stays_in_that_figure() -> None:
    before = plot("plot_rounds", hand_batch()).to_json()
    plot("plot_rounds", hand_batch()).layout.template.layout.font.color = "red"
    assert plot("plot_rounds", hand_batch()).to_json() == before
