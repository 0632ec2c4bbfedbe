"""What a model has answered, beside the token and on the screenshot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, expect

import rounddiag as rd
from rounddiag.proof import Answer
from tests.browser.conftest import ROOT
from tests.browser.explored import Explored
from tests.browser.explorers import IMPORTS, waits_for
from tests.browser.lab import LabNotebook
from tests.browser.test_report import Opened

HOSTILE = "<img src=x onerror=alert(1)>"
PLACE = "task-04/2 / r3 / t14"


@pytest.fixture(scope="module")
def answer() -> Answer:
    """An answer about one round, with a hostile token and two hypotheses."""
    batch = rd.load(ROOT / "sample_data" / "image_window.parquet")
    model = str(ROOT / "sample_data" / "model")
    found = rd.ask(batch, model, at="task-04/2 / r3")
    rows = found.alternatives.copy()
    rows.loc[(rows["token"] == 14) & (rows["rank"] == 2), "text"] = HOSTILE
    other = rows[rows["token"] == 14].assign(hypothesis="no_images")
    rows = rows.merge(other, how="outer")
    return replace(found, alternatives=rows)


def is_at(node: Locator, round_: int) -> None:
    card = node.locator(f".rdx-card[data-round='{round_}']")
    expect(card).to_have_attribute("aria-current", "true")


def bars_are_those_of(node: Locator, answer: Answer) -> None:
    rows = answer.alternatives[answer.alternatives["token"] == 14]
    panels = node.locator(".rdx-likely")
    expect(panels.locator("h4 > :first-child")).to_have_text(
        ["the model would write", "no_images would write"]
    )
    mine = rows[rows["hypothesis"] == ""].sort_values("rank")
    shown = panels.first.locator("li")
    texts = [" ".join(text.split()) for text in mine["text"]]
    pieces = shown.locator(".rdx-likely-piece").all_text_contents()
    assert [piece.replace("·", " ") for piece in pieces] == texts
    assert HOSTILE in texts
    widths = shown.locator(".rdx-bar").evaluate_all(
        "all => all.map(bar => parseFloat(bar.style.width))"
    )
    assert widths == pytest.approx(100 * np.exp(mine["log_prob"]), rel=1e-3)
    marked = shown.filter(has=node.page.get_by_role("img", name="written"))
    written = mine[mine["is_sampled"]]["text"].tolist()
    assert marked.locator(".rdx-likely-piece").all_text_contents() == written


def tiles_are_those_of(node: Locator, answer: Answer) -> None:
    tiles = answer.tiles
    rects = node.locator(".rdx-current .rdx-sight > rect")
    expect(rects).to_have_count(len(tiles))
    opacity = rects.evaluate_all(
        "all => all.map(tile => +getComputedStyle(tile).fillOpacity)"
    )
    share = tiles["drop"].abs() / tiles["drop"].abs().max()
    expected = 0.8 * share.where(~tiles["is_divided"], 0)
    assert opacity == pytest.approx(expected.tolist(), abs=1e-3)
    first = rects.nth(int(tiles["is_divided"].argmax()))
    box, whole = first.bounding_box(), node.locator(".rdx-current img").bounding_box()
    assert box is not None
    assert whole is not None
    place = tiles[tiles["is_divided"]].iloc[0]
    assert (box["x"] - whole["x"]) / whole["width"] == pytest.approx(
        place["x0"] / 448, abs=0.02
    )
    assert (box["y"] - whole["y"]) / whole["height"] == pytest.approx(
        place["y0"] / 336, abs=0.02
    )
    most = f"{tiles['drop'].abs().max():.2g}"
    scale = node.locator(".rdx-sight-bar > .rdx-sight-scale")
    expect(scale).to_have_text(f"−{most}{most} nat")


def test_bars_and_tiles_of_an_answer_and_the_call_that_makes_one(
    answer: Answer,
    lab_folder: Path,
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> None:
    answer.save(lab_folder / "answer.json")
    cells = (
        IMPORTS.format(root=str(ROOT)),
        "answer = rd.load_answer('answer.json', batch)",
        f"ex = rd.explore(batch, answer=answer, at={PLACE!r})\nex",
    )
    with next_cells("answer.ipynb", *cells) as lab:
        lab.run_all()
        explored = Explored(lab)
        node = explored.node
        is_at(node, 3)
        bars_are_those_of(node, answer)
        expect(node.locator(".rdx-ask")).to_have_count(0)
        expect(node.locator(".rdx-sight")).to_have_count(0)
        explored.press("v")
        waits_for(lab, "ex.state['sight']", value=True)
        tiles_are_those_of(node, answer)
        explored.press("p")
        is_at(node, 2)
        expect(node.get_by_text("no map of sight")).to_be_visible()
        expect(node.locator(".rdx-sight, .rdx-likely, .rdx-ask")).to_have_count(0)
        explored.press("n")
        tiles_are_those_of(node, answer)
        node.get_by_role("button", name="sight", exact=True).click()
        waits_for(lab, "ex.state['sight']", value=False)
        expect(node.locator(".rdx-sight")).to_have_count(0)
        assert lab.value("ex.to_code()").endswith(", answer=answer)")
        lab.value("ex.close()")
        assert (lab.console_errors, lab.errors, lab.strangers) == ([], [], [])
    alone = (cells[0], f"ex = rd.explore(batch, at={PLACE!r})\nex")
    with next_cells("no_answer.ipynb", *alone) as lab:
        lab.run_all()
        call = Explored(lab).node.locator(".rdx-ask > code")
        expect(call).to_have_text(f'rd.ask(batch, model, at="{PLACE}")')


def test_a_report_shows_an_answer(
    answer: Answer, chromium: Browser, tmp_path: Path
) -> None:
    batch = answer.require_batch()
    rd.report(batch, tmp_path / "page.html", worst=0, samples=0, answer=answer)
    opened = Opened(chromium, tmp_path / "page.html")
    node = opened.region("rounddiag explorer")
    go_to = "place => { location.hash = encodeURIComponent(place); }"
    opened.page.evaluate(go_to, PLACE)
    is_at(node, 3)
    bars_are_those_of(node, answer)
    node.focus()
    opened.page.keyboard.press("v")
    tiles_are_those_of(node, answer)
    opened.page.keyboard.press("v")
    expect(node.locator(".rdx-sight")).to_have_count(0)
    assert opened.complaints == []
    opened.context.close()
