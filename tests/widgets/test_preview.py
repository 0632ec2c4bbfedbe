"""What a notebook shows of an explorer that is not alive."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from rounddiag import explore
from tests.batches import hand_batch

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
    assert html.startswith("<p>The worst rounds of script&gt;. The explorer itself")
    assert ADVICE in html
    assert "mean_abs_diff" in html
    assert "<script" not in html
    assert widget["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert widget["text/plain"] == ""
    explorer.close()


def test_the_picture_of_a_page_takes_its_place(shown: list[Any]) -> None:
    explorer = explore(hand_batch())
    explorer._ipython_display_()
    assert explorer._answer("snapshot", {}, [b"jpeg"]) == {"num_bytes": 4}
    picture = {
        "text/plain": "explorer of batch",
        "image/jpeg": base64.b64encode(b"jpeg").decode(),
    }
    assert shown[0][2].updates == [picture]
    explorer._ipython_display_()
    assert shown[2][:2] == (picture, "x")  # one picture, wherever it is shown
    explorer.close()


def test_where_a_closed_one_was_it_says_so(shown: list[Any]) -> None:
    closed = "The explorer is closed. Display it again to go on."
    explorer = explore(hand_batch())
    explorer._ipython_display_()
    explorer.close()
    explorer.close()
    assert shown[1][2].updates == [{"text/plain": closed}]
    explorer._ipython_display_()
    assert shown[3][1] == "x"  # one output, wherever it is shown
    explorer._answer("snapshot", {}, [b"jpeg"])
    explorer.close()
    explorer._ipython_display_()
    explorer.state = {"metric": "k3"}
    explorer.close()
    earlier = f"{closed} The picture was taken before what was chosen last."
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
