"""The page's files, put together."""

from __future__ import annotations

import re
from pathlib import Path

from rounddiag.figures import plot_trajectory
from rounddiag.widgets import view as module
from rounddiag.widgets.view import script, style
from tests.batches import hand_batch

PAGE = Path(module.__file__).with_name("page")
TOP_LEVEL = r"^(?:async )?(?:function|class|const|let) +([A-Za-z]\w*|[A-Z_]+)"


def test_every_file_is_there_once() -> None:
    scripts = {path.stem for path in PAGE.glob("*.js")}
    assert scripts == {*module._SCRIPTS}
    assert {path.stem for path in PAGE.glob("*.css")} == {*module._STYLES}
    assert len(module._SCRIPTS) == len(scripts)


def test_names_of_all_files_are_unique() -> None:
    names = re.findall(TOP_LEVEL, script(), re.MULTILINE)
    assert len(names) > 100
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_it_is_small_and_asks_nobody() -> None:
    assert len(script().encode()) < 100_000
    # The namespace of SVG is the name of a format, and no address to load.
    text = script().replace("http://www.w3.org/2000/svg", "") + style()
    assert re.findall(r"https?:|fetch\(|XMLHttpRequest|@import|url\(", text) == []


def test_the_room_for_the_plot_of_tokens_has_its_height() -> None:
    height = plot_trajectory(hand_batch(), sample=0).layout.height
    assert f"const USUAL_HEIGHT = {height};" in script()


def test_text_never_becomes_html() -> None:
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write", script())
        == []
    )
    assert re.findall(r"\beval\(|new Function", script()) == []


def test_comments_do_not_travel() -> None:
    lines = [line.strip() for line in script().splitlines()]
    assert [line for line in lines if line.startswith(("//", "/*", "* "))] == []
    assert "function render({ model, el }) {" in lines
