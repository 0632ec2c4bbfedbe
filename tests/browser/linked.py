"""Two explorers as widgets in one box, linked with each other, and what is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import IMPORTS, explorer, press, rest, waits_for

if TYPE_CHECKING:
    from tests.browser.lab import LabNotebook

# The place that both open at is chosen: none of a diagnosis comes later.
CELLS = [
    IMPORTS.format(root=str(ROOT)),
    """from ipywidgets import VBox, jslink
a, b = (rd.explore(batch, current={"sample": sample}) for sample in (3, 5))
heard = []
a.widget.observe(lambda change: heard.append(change.new["sample"]), "current")
link = jslink((a.widget, "current"), (b.widget, "current"))
print("above")
VBox([a.widget, b.widget])""",
]


def check_link(lab: LabNotebook) -> None:
    """Move each of them, in the page and from Python: the other one follows, once."""
    first, second = explorer(lab), explorer(lab, 1)
    lab.value("heard.clear()")
    press(lab, first, "G")
    waits_for(lab, "len(heard)", 1)
    rest(lab)
    last = lab.value("a.current")
    assert last["sample"] not in (3, 5)
    assert lab.value("b.current") == last
    expect(second.locator(".rdx-title")).to_have_text(
        first.locator(".rdx-title").inner_text()
    )
    assert lab.value("b.widget.set_trait('current', {'sample': 1})") is None
    waits_for(lab, "a.current", {"sample": 1, "round": 0, "token": 0})
    rest(lab)
    for node in (first, second):
        expect(node.locator(".rdx-title")).to_contain_text("Sample 1 ")
    assert lab.value("heard") == [last["sample"], 1]
    assert lab.value("[a.last_error, b.last_error]") == [None, None]
    # Without a preview above them they hide nothing.
    expect(lab.outputs.get_by_text("above", exact=True)).to_be_visible()
