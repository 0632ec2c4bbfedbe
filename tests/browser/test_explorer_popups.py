"""What opens over the panes: whole, in the window, and closed by Esc."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.direct import DirectPage

# Whether it is on top at its corners and its middle, and nothing in it has to be
# scrolled to.
_IS_WHOLE = """node => {
  const { left, right, top, bottom } = node.getBoundingClientRect();
  const at = [[left + 4, top + 4], [right - 4, bottom - 4],
    [(left + right) / 2, (top + bottom) / 2]];
  return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight
    && node.scrollHeight <= node.clientHeight + 1
    && at.every(place => node.contains(document.elementFromPoint(...place)));
}"""


@pytest.mark.parametrize(
    "name",
    [
        *("About this figure: Rounds", "About this figure: Samples"),
        *("About this figure: Tokens", "Colours and lines of the text"),
        *("Verdict", "Filter by text or any column", "About the batch"),
        "Order, correction, colours and scores",
    ],
)
@pytest.mark.parametrize("is_full", [False, True])
def test_a_panel_is_seen_whole(opened: DirectPage, name: str, is_full: bool) -> None:
    if is_full:
        opened.press("Shift+F")
    opened.find(
        f"summary[aria-label='{name}'], [aria-label='{name}'] > summary"
    ).click()
    panel = opened.find(".rdx-dropdown[open] > .rdx-panel")
    expect(panel).to_be_visible()
    opened.settle()
    assert panel.evaluate(_IS_WHOLE)
    opened.press("Escape")
    expect(opened.find(".rdx-dropdown[open]")).to_have_count(0)
    expect(panel).to_have_count(0)
    if is_full:
        opened.press("Escape")


def test_escape_in_the_text_of_the_filter_closes_it(opened: DirectPage) -> None:
    opened.node.get_by_label("Filter by text or any column", exact=True).click()
    opened.node.get_by_label("text", exact=True).click()
    opened.page.keyboard.press("Escape")
    expect(opened.find(".rdx-dropdown[open]")).to_have_count(0)
    expect(opened.node).to_be_focused()


def test_a_tooltip_is_seen_whole(opened: DirectPage) -> None:
    opened.find(".rdx-chunk > .rdx-now").hover()
    tip = opened.find(".rdx-text-body > .rdx-tip")
    expect(tip).to_be_visible()
    # It has no pointer events, so `elementFromPoint` does not find it.
    box = tip.bounding_box()
    assert box is not None
    assert box["y"] > 0
    assert box["x"] + box["width"] < 1280
    text = opened.find(".rdx-scroller").bounding_box()
    assert text is not None
    assert box["x"] >= text["x"] + text["width"]  # beside the text
    opened.page.mouse.move(2, 2)
    expect(tip).to_be_hidden()


# The axis ended at the end of the longest interval.
def test_intervals_of_the_rounds_end_within_their_plot(opened: DirectPage) -> None:
    room, ends = opened.find(".rdx-plot").first.evaluate(
        """plot => [plot._fullLayout.yaxis.range[1],
          plot._fullData.flatMap(({ y }) => Array.from(y ?? []))
            .filter(Number.isFinite)]"""
    )
    assert room >= 1.05 * max(ends)
