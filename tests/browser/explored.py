"""An explorer that a test acts on with mouse and keys, and reads in Python and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from playwright.sync_api import Locator, expect

import rounddiag as rd
from tests.browser.explorers import explorer, rest, waits_for, waits_until
from tests.browser.lab import LabNotebook

Point = tuple[float, float]

CELLS = (
    "import rounddiag as rd",
    "ex = rd.explore('faulty.parquet', current={'sample': 35, 'round': 4, 'token': 3})"
    "\nfirst = ex.state\nex",
    "# nothing may happen to this cell",
)
# Three generated tokens of sample 3 without a number, and two above 0.
_NAN, _ABOVE = [3, 4, 5], [6, 7]
_AXES = """(node, [x, y]) => {
  const plot = node.querySelector('.rdx-plot');
  const { xaxis, yaxis } = plot._fullLayout;
  const { left, top } = plot.getBoundingClientRect();
  return [
    left + xaxis._offset + xaxis.l2p(x),
    y === null ? top + yaxis._offset + yaxis._length / 2
      : top + yaxis._offset + yaxis.l2p(y),
  ];
}"""
CLOSE = """node => {
  for (const panel of node.querySelectorAll('.rdx-dropdown')) panel.open = false;
  node.querySelector('.rdx-drawer').removeAttribute('data-open');
  if (node.querySelector('.rdx-stage')?.offsetWidth)
    node.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
}"""
_FACTS = """node => [...node.querySelectorAll('dt')]
  .map(name => [name.textContent, name.nextElementSibling.textContent])"""
_RESET = "ex.state != first and not setattr(ex, 'state', first)"
_OPEN = "node => node.closest('details')?.setAttribute('open', '')"
_TRACE = """(node, kind) => {
  const { _fullData: traces } = node.querySelector('.rdx-plot');
  return traces.filter(one => (one.mode ?? one.type) === kind)
    .map(one => [one.x, one.y].map(values => Array.from(values)));
}"""


def faulty(folder: Path) -> rd.Batch:
    """Save a part of a step with a third score, entropy and broken numbers."""
    batch = rd.load(folder / "sample_data" / "image_window.parquet")
    old = batch.log_probs("old").clone()
    places = torch.nonzero(batch.response_mask)[:, 0]
    first = int(torch.nonzero(places >= batch.offsets[3])[0])
    old[places[first + torch.tensor(_NAN)]] = torch.nan
    old[places[first + torch.tensor(_ABOVE)]] = 0.5
    facts = {"num_saved": 64, "num_samples": 512}
    made = replace(
        batch,
        old_log_probs=old,
        entropy=-batch.log_probs("rollout"),
        scores={"ref": batch.log_probs("rollout") - 0.25},
        meta={**batch.meta, "capture": facts},
    )
    rd.save(made, folder / "faulty.parquet")
    return rd.load(folder / "faulty.parquet")


class Explored:
    """The one explorer of a notebook, named `ex` in Python, and how to act on it."""

    def __init__(self, lab: LabNotebook) -> None:
        self.lab = lab
        self.page = lab.page
        self.node = explorer(lab)

    def reset(self) -> None:
        """Take everything back to what it was when the explorer opened."""
        self.node.evaluate(CLOSE)
        rest(self.lab, was_asked=True)  # a change can be on its way
        if self.lab.value(_RESET):
            rest(self.lab, was_asked=True)

    def set(self, state: str) -> None:
        """Change the state in Python, and wait until the page has followed."""
        self.lab.value(f"setattr(ex, 'state', {state})")
        rest(self.lab, was_asked=True)

    def rest(self) -> None:
        """Wait until the kernel has answered what the page asks, and what that asks."""
        rest(self.lab)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.lab.value("ex.state")
        return found

    def knows(self, key: str, value: object) -> None:
        """Wait until an entry of the state has a value in Python."""
        waits_for(self.lab, f"ex.state[{key!r}]", value)

    def is_at(self, sample: int, round_: int, token: int) -> None:
        """Wait until a token is the current one, in Python and on the page."""
        place = {"sample": sample, "round": round_, "token": token}
        waits_for(self.lab, "ex.current", place)
        card = self.node.locator(".rdx-card[aria-current='true']")
        chunks = self.node.locator(".rdx-chunk > .rdx-now")
        card.and_(self.node.locator(f"[data-round='{round_}']")).wait_for()
        chunks.wait_for()
        waits_until(lambda: self.text(".rdx-title").startswith(f"Sample {sample} ·"))
        waits_until(lambda: self.facts().get("round") == f"{round_}, token {token}")

    def find(self, selector: str) -> Locator:
        return self.node.locator(selector)

    def field(self, label: str) -> Locator:
        """Return a field by its label, in a panel that is open if it is in one."""
        found = self.node.get_by_label(label, exact=True)
        if found.count():
            found.first.evaluate(_OPEN)
        return found

    def open_list(self, name: str) -> None:
        """Open the drawer at a list, and wait for what it shows."""
        tab = self.node.get_by_role("tab", name=name, exact=True)
        if not self.find(".rdx-drawer[data-open]").count() or (
            tab.get_attribute("aria-selected") != "true"
        ):
            tab.click()
        shown = self.find(".rdx-list-rows > li").filter(has_not_text="computing…")
        expect(shown.first).to_be_attached()

    def text(self, selector: str) -> str:
        return self.find(selector).first.text_content() or ""

    def texts(self, selector: str) -> list[str]:
        return self.find(selector).all_text_contents()

    def facts(self) -> dict[str, str]:
        """Return what the focus panel says, by the names that it has for it."""
        return dict(self.find(".rdx-focus").evaluate(_FACTS))

    def filter_by(self, column: str) -> None:
        """Open the filter at a column."""
        self.field("column").select_option(column)

    def type_into(self, label: str, text: str) -> None:
        self.field(label).fill(text)
        self.field(label).press("Enter")

    def press(self, *keys: str) -> None:
        """Press keys with the explorer in focus."""
        self.node.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def figure(self, label: str) -> Locator:
        found = self.node.get_by_label(label, exact=True)
        found.scroll_into_view_if_needed()
        return found

    @property
    def rounds_figure(self) -> Locator:
        return self.figure("Rounds")

    @property
    def heatmap(self) -> Locator:
        return self.figure("Samples")

    @property
    def token_figure(self) -> Locator:
        return self.figure("Tokens")

    def click(self, figure: Locator, x: float, y: float | None = None) -> None:
        """Click in a figure, at values of its axes; in the middle without `y`."""
        self.page.mouse.click(*at(figure, x, y))

    def drag(self, figure: Locator, start: Point, stop: Point) -> None:
        """Draw from one place in a figure to another."""
        self.page.mouse.move(*at(figure, *start))
        self.page.mouse.down()
        self.page.mouse.move(*at(figure, *stop), steps=5)
        self.page.mouse.up()

    def rows(self) -> list[int]:
        """Return the samples in the order of the heatmap."""
        plot = self.find(".rdx-plot").nth(1)
        found: list[int] = plot.evaluate("plot => plot.layout.meta.samples")
        return found


def at(figure: Locator, x: float, y: float | None = None) -> Sequence[float]:
    """Return where values of a figure's axes are in the window."""
    found: list[float] = figure.evaluate(_AXES, [x, y])
    return found


def worst(tokens: pd.DataFrame) -> int:
    """Return which token of a frame, counted from 0, has the largest |diff|."""
    return int(np.nanargmax(tokens["diff"].abs()))


def traces(figure: Locator, kind: str) -> list[list[list[float]]]:
    """Return x and y of the traces of a mode, or else a type, as they are drawn."""
    found: list[list[list[float]]] = figure.evaluate(_TRACE, kind)
    return found
