"""Errors, slow answers, themes and narrow windows of an explorer that is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Locator, expect

from rounddiag.figures._parts.canvas import DARK, LIGHT
from tests.browser.conftest import ROOT
from tests.browser.contrast import pale_texts
from tests.browser.explorers import (
    IMPORTS,
    explorer,
    press,
    waits_for,
    waits_until,
)
from tests.browser.lab import LabNotebook, Theme

NAME = "errors.ipynb"
SLOW = 28
CELLS = [
    IMPORTS.format(root=str(ROOT))
    + f"""
import time
from tests.browser.replies import replies_of, reply_with
ex = rd.explore(batch, current={{"sample": 0, "round": 0, "token": 0}})
troubles = []
def callback(explorer):
    if troubles:
        raise ValueError(troubles.pop())
ex.on_select(callback)
answers = replies_of(ex)
answer = answers["trajectory"]
def slowly(**args):
    if args["sample"] == {SLOW}:
        time.sleep(1.5)
    return answer(**args)
def be_slow():
    reply_with(ex, "trajectory", slowly)
def broken(**args):
    reply_with(ex, "list", answers["list"])
    raise RuntimeError("no list today")
def break_list():
    reply_with(ex, "list", broken)""",
    "ex",
]
THEMES = {"light": LIGHT, "dark": DARK}
COLORS = """root => [getComputedStyle(root).backgroundColor,
  ...[...root.querySelectorAll('.rdx-plot')].map(
    one => getComputedStyle(one.querySelector('.xtick text')).fill)]"""
# A box that cuts what is too wide shows that nowhere else.
TOO_WIDE = """root => [root, ...root.querySelectorAll('*')].filter(
  one => one.scrollWidth > one.clientWidth + 1 && one.checkVisibility()
    && getComputedStyle(one).overflowX === 'visible' && one.clientWidth
    && !one.closest('svg')).map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells(NAME, *CELLS) as opened:
        opened.run_all()
        yield opened
        assert opened.console_errors == []


@pytest.fixture
def ex(lab: LabNotebook) -> Locator:
    return explorer(lab)


def rgb(color: str) -> str:
    """Return a color such as #1b1f23 as a page computes it."""
    return f"rgb{tuple(bytes.fromhex(color[1:]))}"


def test_a_callback_that_fails_is_shown_and_undoes_nothing(
    lab: LabNotebook, ex: Locator
) -> None:
    banner = ex.get_by_role("alert")
    expect(banner).to_be_hidden()
    lab.value("troubles.append('not <b>now</b>')")
    press(lab, ex, ["ArrowRight"])
    expect(banner).to_contain_text("ValueError: not <b>now</b>")
    waits_for(lab, "repr(ex.last_error)", "ValueError('not <b>now</b>')")
    assert lab.value("ex.current['token']") == 1
    press(lab, ex, ["ArrowRight"])
    expect(banner).to_be_hidden()
    waits_for(lab, "ex.current['token']", 2)


def test_a_question_that_fails_is_reported(lab: LabNotebook, ex: Locator) -> None:
    lab.value("break_list()")
    banner = ex.get_by_role("alert")
    press(lab, ex, "t")
    expect(banner).to_contain_text("RuntimeError: no list today")
    assert lab.value("repr(ex.last_error)") == "RuntimeError('no list today')"
    banner.get_by_role("button", name="Dismiss").click()
    expect(banner).to_be_hidden()


def test_a_slow_answer_to_an_old_key_overwrites_nothing(
    lab: LabNotebook, ex: Locator
) -> None:
    title = ex.locator(".rdx-title")
    lab.value("be_slow()")
    assert lab.value("ex.figure('heatmap').layout.meta['samples'][0]") == SLOW
    press(lab, ex, ["g", "ArrowRight"])
    waits_for(lab, "ex.current", {"sample": 0, "round": 0, "token": 3})
    ex.get_by_role("tab", name="Tokens", exact=True).click()
    press(lab, ex, "w")  # answered after what was slow
    waits_for(lab, "ex.current['sample'] == 0", value=False)
    assert lab.value("ex.current['sample']") != SLOW
    expect(title).not_to_contain_text(f"Sample {SLOW} ·")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_colours_follow_the_theme_and_can_be_read(
    lab: LabNotebook, ex: Locator, theme: Theme
) -> None:
    lab.set_theme(theme)
    colors = [rgb(THEMES[theme].paper), *[rgb(THEMES[theme].muted)] * 3]
    waits_until(lambda: ex.evaluate(COLORS) == colors)
    num_texts, pale = pale_texts(lab.page, ".rdx *")
    assert num_texts > 100
    assert pale == []
    lab.screenshot(f"explorer_{theme}")


def test_a_narrow_window_and_back(lab: LabNotebook, ex: Locator) -> None:
    figures = ex.locator(".rdx-plot svg.main-svg:first-child")
    widths = "all => all.map(one => one.getBoundingClientRect().width)"
    wide = figures.evaluate_all(widths)
    lab.set_width(500)
    waits_until(lambda: max(figures.evaluate_all(widths)) < 500)
    lab.screenshot("explorer_narrow")
    assert ex.evaluate(TOO_WIDE) == []
    lab.set_width(1280)
    waits_until(lambda: figures.evaluate_all(widths) == wide)
    lab.screenshot("explorer_wide_again")
    assert ex.evaluate(TOO_WIDE) == []
