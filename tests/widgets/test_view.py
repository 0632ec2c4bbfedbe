"""The widget: questions of a page, and what it is told."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances

from rounddiag.widgets.view import View, script


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    monkeypatch.setattr(View, "send", lambda _, *message: found.append(message))
    return found


def ask(view: View, **others: Any) -> None:
    question = {"kind": "ask", "id": 7, "name": "add", "args": {"x": 1}, **others}
    view._handle_custom_msg(question, [memoryview(b"two")])


def test_a_question_is_answered_with_buffers(sent: list[Any]) -> None:
    asked = []

    def answer(*question: Any) -> dict[str, Any]:
        asked.append(question)
        return {"sum": np.array([3], np.int32)}

    view = View(answer)
    ask(view)
    assert asked == [("add", {"x": 1}, [b"two"])]
    plain = {"kind": "answer", "id": 7, "result": {"sum": {"$": 0, "dtype": "int32"}}}
    assert sent == [(plain, [np.array([3], np.int32).tobytes()])]
    view.close()


def test_an_error_is_an_answer(sent: list[Any]) -> None:
    def answer(*_: Any) -> None:
        raise KeyError(3)

    view = View(answer)
    ask(view)
    error = {"type": "KeyError", "message": "3"}
    assert sent == [({"kind": "answer", "id": 7, "error": error}, [])]
    view.close()


@pytest.mark.parametrize(
    "changes", [{"kind": "tell"}, {"id": "7"}, {"name": 3}, {"args": [1]}]
)
def test_what_is_no_question_is_not_answered(
    changes: dict[str, Any], sent: list[Any]
) -> None:
    view = View(lambda *_: pytest.fail("was asked"))
    ask(view, **changes)
    assert sent == []
    view.close()


def test_pages_are_told(sent: list[Any]) -> None:
    view = View(print)
    view.tell("changed", by="python")
    assert sent == [({"kind": "tell", "name": "changed", "by": "python"}, [])]
    view.close()


def test_a_closed_widget_answers_nobody_and_leaves_nothing(sent: list[Any]) -> None:
    before = set(_instances)
    view = View(print)
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
    view = View(print)
    long = {
        key: value for key, value in view.get_state().items() if len(str(value)) > 99
    }
    assert [*long] == ["_css", "_esm"]
    assert long["_esm"] == script()
    view.close()
