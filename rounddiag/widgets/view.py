"""The one widget: a page that asks, and Python that answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anywidget

from rounddiag.widgets.script import script, style
from rounddiag.widgets.style import variables
from rounddiag.widgets.wire import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    Answer = Callable[[str, dict[str, Any], list[bytes]], object]

_log = logging.getLogger(__name__)


class View(anywidget.AnyWidget):
    """A page whose questions a function answers.

    What is asked and answered travels in messages of its own, so that saved widgets
    hold the script and nothing of the batch.

    Parameters
    ----------
    answer : callable
        Takes the name of a question, its arguments and buffers; what it raises is shown
        on the page.
    """

    # Text, and not the path of a file: anywidget would keep each widget alive.
    _esm = script()
    _css = variables() + style()

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer: Answer | None = answer
        self.on_msg(self._on_message)

    def tell(self, name: str, **facts: object) -> None:
        """Say something to every page that shows this widget."""
        plain, buffers = packed({"kind": "tell", "name": name, **facts})
        self.send(plain, buffers)

    def close(self) -> None:
        """End it, and let go of what it would answer from."""
        self._answer = None
        self.on_msg(self._on_message, remove=True)
        self.layout.close()  # a widget of its own, which nothing else would end
        super().close()

    def _on_message(self, _: object, content: object, buffers: list[Any]) -> None:
        match content:
            case {"kind": "ask", "id": int(key), "name": str(name), "args": dict(args)}:
                self._reply(key, name, args, [bytes(one) for one in buffers])

    def _reply(
        self, key: int, name: str, args: dict[str, Any], buffers: list[bytes]
    ) -> None:
        if self._answer is None:
            return
        try:
            told: dict[str, object] = {"result": self._answer(name, args, buffers)}
        # Nothing that is raised here would be seen in a notebook: the page shows it.
        except Exception as error:  # noqa: BLE001
            _log.debug("could not answer %s", name, exc_info=True)
            told = {"error": told_error(error)}
        plain, buffers = packed({"kind": "answer", "id": key, **told})
        self.send(plain, buffers)


def told_error(error: Exception) -> dict[str, str]:
    """Return what the page's banner says of an error."""
    return {"type": type(error).__name__, "message": str(error)}
