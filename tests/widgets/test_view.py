"""The widget: its script and style, its messages, and its static preview."""

from __future__ import annotations

import base64
import gc
import json
import math
import re
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from ipywidgets.widgets.widget import _instances

from rounddiag import Batch, demo, explore
from rounddiag.figures._parts.canvas import DARK, LIGHT, Theme
from rounddiag.widgets import assets
from rounddiag.widgets.assets import script, style, theme_css
from rounddiag.widgets.serialization import serialize
from rounddiag.widgets.view import PageWidget, opening_rounds
from tests.batches import hand_batch


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    monkeypatch.setattr(PageWidget, "send", lambda _, *message: found.append(message))
    return found


def ask(view: PageWidget, **others: Any) -> None:
    question = {"kind": "request", "id": 7, "name": "add", "args": {"x": 1}, **others}
    view._handle_custom_msg(question, [memoryview(b"two")])


def unchanged(_: str, value: dict[str, Any]) -> dict[str, Any]:
    return value


def test_a_question_is_answered_with_buffers(sent: list[Any]) -> None:
    asked = []

    def answer(*question: Any) -> dict[str, Any]:
        asked.append(question)
        return {"sum": np.array([3], np.int32)}

    view = PageWidget(answer, unchanged)
    ask(view)
    assert asked == [("add", {"x": 1}, [b"two"])]
    plain = {"kind": "reply", "id": 7, "result": {"sum": {"$": 0, "dtype": "int32"}}}
    assert sent == [(plain, [np.array([3], np.int32).tobytes()])]
    view.close()


def test_slow_answers_come_in_order_from_one_thread_also_after_errors(
    sent: list[Any],
) -> None:
    threads = set()

    def answer(_: str, args: dict[str, Any], __: list[bytes]) -> Any:
        def work() -> int:
            threads.add(threading.get_ident())
            return 6 // int(args["x"])

        return work

    view = PageWidget(answer, unchanged)
    begun = threading.active_count()
    for number in range(300):
        ask(view, args={"x": number % 3})
        assert threading.active_count() <= begun + 1
    while len(sent) < 600:
        time.sleep(0.01)
    replies = [plain for plain, *_ in sent if plain["kind"] == "reply"]
    results = [plain.get("result", "error") for plain in replies]
    assert results == ["error", 6, 3] * 100
    assert threading.get_ident() not in threads
    view.close()


def test_what_waits_when_the_widget_is_closed_is_not_done(sent: list[Any]) -> None:
    gate, done = threading.Event(), threading.Event()
    asked = []

    def answer(_: str, args: dict[str, Any], __: list[bytes]) -> Any:
        def work() -> None:
            asked.append(args["x"])
            gate.wait(timeout=60)

        return work

    view, other = (
        PageWidget(answer, unchanged),
        PageWidget(lambda *_: done.set, unchanged),
    )
    for number in range(9):
        ask(view, args={"x": number})
    ask(other)
    while not asked:
        time.sleep(0.01)
    view.close()
    gate.set()
    assert done.wait(timeout=60)
    assert asked == [0]
    replies = [plain for plain, *_ in sent if plain["kind"] == "reply"]
    assert len(replies) <= 1  # that of the other widget
    other.close()


def test_an_error_is_an_answer(sent: list[Any]) -> None:
    def answer(*_: Any) -> None:
        raise KeyError(3)

    view = PageWidget(answer, unchanged)
    ask(view)
    error = {"type": "KeyError", "message": "3"}
    assert sent == [({"kind": "reply", "id": 7, "error": error}, [])]
    view.close()


@pytest.mark.parametrize(
    "changes", [{"kind": "notify"}, {"id": "7"}, {"name": 3}, {"args": [1]}]
)
def test_what_is_no_question_is_not_answered(
    changes: dict[str, Any], sent: list[Any]
) -> None:
    view = PageWidget(lambda *_: pytest.fail("was asked"), unchanged)
    ask(view, **changes)
    assert sent == []
    view.close()


def test_pages_are_sent(sent: list[Any]) -> None:
    view = PageWidget(print, unchanged)
    view.notify("changed", by="python")
    assert sent == [({"kind": "notify", "name": "changed", "by": "python"}, [])]
    view.close()


def test_a_closed_widget_answers_nobody_and_leaves_nothing(sent: list[Any]) -> None:
    before = set(_instances)
    view = PageWidget(print, unchanged)
    assert len(set(_instances) - before) == 2  # with its layout
    view.close()
    view.close()
    ask(view)
    assert sent == []
    assert set(_instances) == before
    reference = weakref.ref(view)
    del view
    gc.collect()
    assert reference() is None


def test_its_state_is_the_script_and_nothing_of_a_batch() -> None:
    view = PageWidget(print, unchanged)
    long = {
        key: value for key, value in view.get_state().items() if len(str(value)) > 99
    }
    assert [*long] == ["_css", "_esm"]
    assert long["_esm"] == script()
    view.close()


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float64", "float32"),
        ("float32", "float32"),
        ("int64", "int32"),
        ("int32", "int32"),
        ("int8", "int8"),
        ("uint8", "uint8"),
        ("bool", "uint8"),
    ],
)
def test_arrays_are_buffers_of_what_a_page_can_read(dtype: str, name: str) -> None:
    plain, buffers = serialize({"x": [np.array([1, 0], dtype)]})
    assert plain == {"x": [{"$": 0, "dtype": name}]}
    assert buffers == [np.array([1, 0], name).tobytes()]


def test_bytes_are_a_buffer_of_their_own() -> None:
    plain, buffers = serialize({"a": b"one", "b": [b"two"]})
    assert plain == {
        "a": {"$": 0, "dtype": "bytes"},
        "b": [{"$": 1, "dtype": "bytes"}],
    }
    assert buffers == [b"one", b"two"]


def test_what_json_does_not_know_is_none() -> None:
    values = (math.nan, math.inf, -math.inf, np.float32("nan"), None)
    assert serialize(values) == ([None] * 5, [])


def test_scalars_of_numpy_are_plain() -> None:
    plain, _ = serialize({1: np.int64(3), "b": np.True_, "c": np.float32(0.5)})
    assert json.dumps(plain) == '{"1": 3, "b": true, "c": 0.5}'


def test_text_that_is_no_unicode_is_sent() -> None:
    plain, _ = serialize(["\ud83d", "<b>"])
    assert plain == ["\\ud83d", "<b>"]
    assert json.dumps(plain, ensure_ascii=False).encode()


PAGE = Path(assets.__file__).with_name("page")
TOP_LEVEL = r"^(?:async )?(?:function|class|const|let) +([A-Za-z]\w*|[A-Z_]+)"


@pytest.mark.parametrize("odd", ['"', "é", "\n", "<b>"])
def test_many_texts_are_one_buffer_of_json(odd: str) -> None:
    texts = [*["a"] * 99, odd]
    plain, (buffer,) = serialize({"piece": texts})
    assert plain == {"piece": {"$": 0, "dtype": "texts"}}
    assert json.loads(buffer) == texts


def test_lone_surrogates_among_many_texts_are_written_out() -> None:
    _, (buffer,) = serialize([*["a"] * 99, "b\ud800"])
    assert json.loads(buffer)[-1] == "b\\ud800"


def test_every_file_is_there_once() -> None:
    scripts = {path.stem for path in PAGE.glob("*.js")}
    # `report` is not in the explorer.
    assert scripts - {"report"} == {*assets._SCRIPTS}
    styles = {path.stem for path in PAGE.glob("*.css")}
    assert styles - {"report"} == {*assets._STYLES}
    assert len(assets._SCRIPTS) == len(scripts) - 1


def test_names_of_all_files_are_unique() -> None:
    files = "".join(path.read_text(encoding="utf-8") for path in PAGE.glob("*.js"))
    names = re.findall(TOP_LEVEL, files, re.MULTILINE)
    assert len(names) > 100
    assert sorted({name for name in names if names.count(name) > 1}) == []


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_warning_the_focus_and_a_worse_batch_have_three_colours(theme: Theme) -> None:
    focus, mark, worse = theme.text, theme.mark, theme.changes[1]
    assert len({focus, mark, worse, theme.more, theme.less}) == 5
    assert f"--worse:{worse}" in theme_css()
    rules = style()
    assert "--accent: var(--text)" in rules
    assert re.search(r"\.rdx-worse \{ color: var\(--worse\)", rules)
    # Tiles have the colours of `plot_sight`: those of a sign are of the two engines.
    assert f"--fewer:{theme.changes[0]}" in theme_css()
    for tile, color in (("loss", "fewer"), ("gain", "worse")):
        assert re.search(rf"\.rdx-tile-{tile} \{{ fill: var\(--{color}\)", rules)


def test_it_is_small_and_asks_nobody() -> None:
    assert len(script().encode()) < 200_000
    # The namespace of SVG is the name of a format, and no address to load.
    text = script().replace("http://www.w3.org/2000/svg", "") + style()
    assert re.findall(r"https?:|fetch\(|XMLHttpRequest|@import|url\(", text) == []


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


HOSTILE = "<script>alert(1)</script>"
ADVICE = "run <code>pip install jupyterlab_widgets anywidget</code> in the environment"


class Handle:
    """What IPython gives for an output that can be replaced."""

    display_id = "x"

    def __init__(self) -> None:
        self.updates: list[Any] = []

    def update(self, bundle: Any, **_: Any) -> None:
        self.updates.append(bundle)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Handle]]:
    found: list[tuple[Any, Any, Handle]] = []

    def display(bundle: Any, *, display_id: Any = None, **_: Any) -> Handle:
        found.append((bundle, display_id, Handle()))
        return found[-1][2]

    monkeypatch.setattr("IPython.display.display", display)
    return found


def test_before_a_page_was_seen_it_is_a_table(shown: list[Any]) -> None:
    batch = hand_batch()
    explorer = explore(replace(batch, meta={**batch.meta, "source": f"a/{HOSTILE}"}))
    explorer._ipython_display_()
    (preview, display_id, _), (widget, _, _) = shown
    assert display_id is True
    html = preview["text/html"]
    assert html.startswith('<div class="mathjax_ignore"><p>script&gt;, sample')
    assert ADVICE in html
    assert "<script" not in html
    assert widget["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert widget["text/plain"] == ""
    explorer.close()


def test_the_table_has_the_rounds_around_the_one_where_it_opens() -> None:
    actions = [f"click({index}, 1)" for index in range(20)]
    turns = [("assistant", action) for action in actions]
    batch = Batch.from_turns([turns], sample_ids=["a"])
    name, (head, *rows) = opening_rounds(batch, 0, 9)
    assert name == "sample 0 (a)"
    assert head == ("round", "action", "words")  # no pair of log-probs
    shown = [(str(index), f"click ({index}, 1)") for index in range(3, 15)]
    assert [row[:2] for row in rows] == shown
    _, (_, *rows) = opening_rounds(batch, 0, 19)
    assert [row[0] for row in rows] == [str(i) for i in range(8, 20)]


def test_a_batch_without_samples_has_a_line_and_no_table() -> None:
    with explore(demo()[:0]) as explorer:
        html = explorer._repr_mimebundle_()[0]["text/html"]
    assert "no samples" in html
    assert "<table" not in html


def test_with_a_pair_it_has_the_mean_of_each_round() -> None:
    _, rows = opening_rounds(demo(), 18, 3)
    assert rows[0][-1] == "mean |diff| [nat]"
    assert rows[4] == ("3", "click (400, 167)", "18", "0.926")


def test_the_picture_of_a_page_takes_its_place(shown: list[Any]) -> None:
    explorer = explore(hand_batch())
    explorer._ipython_display_()
    assert explorer._handle("snapshot", {}, [b"jpeg"]) == {"num_bytes": 4}
    picture = {
        "text/plain": "explorer of batch",
        "image/jpeg": base64.b64encode(b"jpeg").decode(),
    }
    assert shown[0][2].updates == [picture]
    explorer._ipython_display_()
    assert shown[2][:2] == (picture, "x")  # one picture, wherever it is shown
    explorer.close()


def test_where_a_closed_one_was_it_says_so(shown: list[Any]) -> None:
    closed = "The explorer is closed. Display it again to continue."
    explorer = explore(hand_batch())
    explorer._ipython_display_()
    explorer.close()
    explorer.close()
    assert shown[1][2].updates == [{"text/plain": closed}]
    explorer._ipython_display_()
    assert shown[3][1] == "x"  # one output, wherever it is shown
    explorer._handle("snapshot", {}, [b"jpeg"])
    explorer.close()
    explorer._ipython_display_()
    explorer.state = {"metric": "diff"}
    explorer.close()
    earlier = f"{closed} The picture is older than the last selection."
    words = [shown[index][2].updates for index in (3, 5)]
    assert words == [[{"text/plain": closed}], [{"text/plain": earlier}]]


def test_a_closed_explorer_can_be_shown_again(shown: list[Any]) -> None:
    explorer = explore(hand_batch())
    explorer._ipython_display_()
    explorer.close()
    explorer._ipython_display_()
    keys = [one[0]["application/vnd.jupyter.widget-view+json"] for one in shown[1::2]]
    assert keys[0]["model_id"] != keys[1]["model_id"]
    explorer.close()


WIDGET = "application/vnd.jupyter.widget-view+json"


def test_a_host_that_asks_for_data_gets_the_widget_and_what_stands_in_for_it() -> None:
    explorer = explore(hand_batch())
    data, _ = explorer._repr_mimebundle_(include=None, exclude=None)
    assert data.keys() == {WIDGET, "text/plain", "text/html"}
    assert data[WIDGET]["model_id"] == explorer._display_().model_id
    assert ADVICE in data["text/html"]
    explorer._handle("snapshot", {}, [b"jpeg"])
    data, _ = explorer._repr_mimebundle_()
    assert data["image/jpeg"] == base64.b64encode(b"jpeg").decode()
    explorer.close()


def test_marimo_gets_the_widget_alone_and_the_same_one_again() -> None:
    explorer = explore(hand_batch())
    view = explorer._display_()
    assert isinstance(view, PageWidget)
    assert explorer._display_() is view
    explorer.close()
    assert explorer._display_() is not view
    explorer.close()


def test_ipython_shows_the_preview_and_the_widget_apart(shown: list[Any]) -> None:
    explorer = explore(hand_batch())
    formatter = DisplayFormatter()
    formatter.active_types = formatter.format_types
    formatter.ipython_display_formatter.enabled = True
    assert formatter.format(explorer) == ({}, {})  # type: ignore[no-untyped-call]
    assert [WIDGET in data for data, _, _ in shown] == [False, True]
    explorer.close()
