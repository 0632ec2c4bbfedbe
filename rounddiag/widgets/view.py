"""The widget: the page, its messages, and a static preview."""

from __future__ import annotations

import base64
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html import escape
from threading import Lock, Thread
from time import perf_counter, sleep
from typing import Any

import anywidget
import traitlets

from rounddiag.batch import Batch
from rounddiag.batch.html import table
from rounddiag.core import round_frame
from rounddiag.core.columns import span_texts
from rounddiag.core.scores import has_pair
from rounddiag.widgets.assets import script, style, theme_css
from rounddiag.widgets.episode import recorded_actions
from rounddiag.widgets.images import describe_actions
from rounddiag.widgets.requests import batch_name
from rounddiag.widgets.serialization import serialize
from rounddiag.widgets.session import Session
from rounddiag.widgets.state import State

Handler = Callable[[str, dict[str, Any], list[bytes]], object]
TraitChange = Callable[[str, dict[str, Any]], dict[str, Any]]


_log = logging.getLogger(__name__)


class PageWidget(anywidget.AnyWidget):
    """The explorer's page, and the function that handles its requests.

    Requests and replies are custom messages, so that a notebook that saves its widgets
    holds the script and nothing of the batch.

    Parameters
    ----------
    handler : callable
        Takes the name of a request, its arguments and its buffers. The page shows what
        it raises.
    change : callable
        Takes the name of a trait and what it was set to, and returns what it is then.

    Attributes
    ----------
    current, state
        Those of the explorer, as traits: observe, link or set them.
    """

    # Text instead of a path: for a path anywidget would keep each widget alive.
    _esm = script()
    _css = theme_css() + style()

    current = traitlets.Dict().tag(sync=True)
    # Not for the page, so that a notebook does not save notes and values of the batch.
    state = traitlets.Dict()

    def __init__(self, handler: Handler, change: TraitChange) -> None:
        super().__init__()
        self._handler: Handler | None = handler
        self._change: TraitChange | None = change
        self.on_msg(self._on_message)

    @traitlets.validate("current", "state")
    def _changed(self, proposal: Any) -> dict[str, Any]:  # noqa: ANN401 a Bunch
        value: dict[str, Any] = proposal.value
        if self._change is None:
            return value
        return self._change(proposal.trait.name, value)

    def notify(self, name: str, **facts: object) -> None:
        """Send a notification to every page that shows this widget."""
        plain, buffers = serialize({"kind": "notify", "name": name, **facts})
        self.send(plain, buffers)

    def close(self) -> None:
        """Close it, and release the explorer."""
        self._handler = self._change = None
        self.on_msg(self._on_message, remove=True)
        self.layout.close()  # a widget of its own, which nothing else would close
        super().close()

    def _on_message(self, _: object, content: object, buffers: list[Any]) -> None:
        match content:
            case {
                "kind": "request",
                "id": int(key),
                "name": str(name),
                "args": dict(args),
            }:
                self._reply(key, name, args, [*map(bytes, buffers)])

    def _reply(
        self, key: int, name: str, args: dict[str, Any], buffers: list[bytes]
    ) -> None:
        if self._handler is not None:
            with _TURNS.answering():
                self._answer(key, name, partial(self._handler, name, args, buffers))

    def _answer(self, key: int, name: str, work: Callable[[], object]) -> None:
        """Send the result of some work; if it is a function, run that in the thread."""
        if self._handler is None:  # closed while the work waited
            return
        try:
            result = work()
            if callable(result):
                _WORKER.put(partial(self._answer, key, name, result))
                self.send({"kind": "working", "id": key})
                return
            reply: dict[str, object] = {"result": result}
        # An exception would be invisible in a notebook: the page shows it.
        except Exception as error:  # noqa: BLE001
            _log.debug("request %s failed", name, exc_info=True)
            reply = {"error": error_payload(error)}
        plain, buffers = serialize({"kind": "reply", "id": key, **reply})
        if self._handler is not None:  # not closed meanwhile
            self.send(plain, buffers)


class _Turns:
    """Whose turn it is: work in threads waits while the page gets an answer.

    Python runs one thread at a time, and a thread that computes would double the time
    of each answer.
    """

    # Seconds that work waits for one answer at most: the answer may wait for the work.
    _PATIENCE = 0.25
    # Seconds after an answer: another thread sends it, and the page asks again.
    _AFTER = 0.02

    def __init__(self) -> None:
        self._until = 0.0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let work in threads wait."""
        self._until = perf_counter() + self._PATIENCE
        try:
            yield
        finally:
            self._until = perf_counter() + self._AFTER

    def wait(self, *_: object) -> None:
        """Wait while the page gets an answer. Called at each call in the work."""
        while self._until:
            left = self._until - perf_counter()
            if left <= 0:
                self._until = 0.0
            else:
                sleep(min(left, 0.002))


class _Worker:
    """Does work in its order, in one thread that ends when none is left."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._thread = Thread()

    def put(self, work: Callable[[], object]) -> None:
        """Do some work after all that waits."""
        with self._lock:
            if not self._thread.is_alive():
                self._thread = Thread(target=self._run, daemon=True)
                self._thread.start()  # raises where there is no room for a thread
            self._waiting.append(work)

    def _run(self) -> None:
        sys.setprofile(_TURNS.wait)
        while work := self._next():
            try:
                work()
            except Exception:  # noqa: BLE001, PERF203 the page is gone, for example
                _log.debug("an answer was not sent", exc_info=True)

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if not self._waiting:
                self._thread = Thread()  # this one ends: the next work needs another
                return None
            return self._waiting.popleft()


_TURNS = _Turns()
_WORKER = _Worker()


def error_payload(error: Exception) -> dict[str, str]:
    """Return what the page's banner shows of an error."""
    return {"type": type(error).__name__, "message": str(error)}


# Always shown with the table: the kernel cannot tell whether the page shows the
# explorer or the table in its place.
_NOT_LIVE = (
    "The explorer itself needs a running JupyterLab. If it is missing, run"
    " <code>pip install jupyterlab_widgets anywidget</code> in the environment of"
    " JupyterLab, and reload the page. <code>rounddiag.report</code> writes a page that"
    " needs no Python."
)

_CLOSED = "The explorer is closed. Display it again to continue."
_OUTDATED = "The picture is older than the last selection."


class Preview:
    """A static output above the widget, which hides it while the widget is live.

    When the explorer is closed, a sentence takes the place of the widget.

    Parameters
    ----------
    session : Session

    Attributes
    ----------
    session : Session
        What the output shows.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._handle: Any = None
        self._widget: Any = None
        self._picture: bytes | None = None
        self._pictured: State | None = None

    def show(self, view: PageWidget) -> None:
        """Display the preview, and the widget under it."""
        self._handle = _display(self._handle, self.bundle())
        view.add_class("rdx-under-preview")
        data, metadata = view._repr_mimebundle_() or ({}, {})
        # Without text, a front end without widgets shows nothing.
        self._widget = _display(self._widget, {**data, "text/plain": ""}, metadata)

    def update(self, picture: bytes) -> dict[str, int]:
        """Replace the preview by a picture of the page, a JPEG."""
        self._picture, self._pictured = picture, self.session.state
        if self._handle is not None:
            self._handle.update(self.bundle(), raw=True)
        return {"num_bytes": len(picture)}

    def close(self) -> None:
        """Replace the widget by a note that it is closed."""
        if self._widget is None:
            return
        is_outdated = self._picture is not None and self._pictured != self.session.state
        note = f"{_CLOSED} {_OUTDATED}" if is_outdated else _CLOSED
        self._widget.update({"text/plain": note}, raw=True)

    def bundle(self) -> dict[str, str]:
        """Return the picture of the page, or else a table and a hint, by media type."""
        name = batch_name(self.session.batch)
        if self._picture is None:
            return {"text/plain": name, "text/html": self._table()}
        data = base64.b64encode(self._picture).decode()
        return {"text/plain": f"explorer of {name}", "image/jpeg": data}

    def _table(self) -> str:
        batch, place = self.session.batch, self.session.state.current
        title = f"{batch_name(batch)}: the batch has no samples."
        rows: list[tuple[str, ...]] = []
        if len(batch):
            name, rows = opening_rounds(batch, place.sample, place.round)
            title = f"{batch_name(batch)}, {name}, by round. Opens at round"
            title += f" {place.round}."
        caption = f"<p>{escape(title)} {_NOT_LIVE}</p>"
        return (
            f'<div class="mathjax_ignore">{caption}{table(rows) if rows else ""}</div>'
        )


# Rounds of a sample in the static table.
_NUM_SHOWN = 12


def opening_rounds(
    batch: Batch, sample: int, round_: int
) -> tuple[str, list[tuple[str, ...]]]:
    """Return the name of a sample, and its rounds near one as rows under a heading.

    A row has the round, its action, its tokens and, with a pair of log-probs, the mean
    |diff|.
    """
    own = batch[sample]
    frame = round_frame(own)
    first = max(0, min(round_ - _NUM_SHOWN // 2, len(frame) - _NUM_SHOWN))
    shown = slice(first, first + _NUM_SHOWN)
    rounds, texts = frame.iloc[shown], [""] * len(frame.iloc[shown])
    if own.lacks("text", "tokenizer") is None:
        spans = (rounds[name].to_numpy() for name in ("start", "num_tokens"))
        texts = ["".join(pieces) for pieces in span_texts(own, *spans)]
    recorded = recorded_actions(own, len(frame))[shown]
    actions = describe_actions(texts, [None] * len(texts), recorded)
    columns = {
        "round": rounds["round"].map(str),
        "action": [action["line"] for action in actions],
        f"{own.token_noun}s": rounds["num_tokens"].map(str),
    }
    if has_pair(own):
        columns["mean |diff| [nat]"] = rounds["mean_abs_diff"].map("{:.3g}".format)
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    known = f" ({own.sample_ids[0]})" if own.sample_ids else ""
    return f"sample {sample}{known}", rows


def _display(
    handle: Any,  # noqa: ANN401 IPython's, where there is one
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
) -> Any:  # noqa: ANN401
    from IPython.display import display

    key = True if handle is None else handle.display_id
    return display(data, metadata=metadata, raw=True, display_id=key)  # type: ignore[no-untyped-call]
