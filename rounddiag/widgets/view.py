"""The widget: the page's script and style, its messages, and a static preview.

Payloads travel as JSON, and arrays in them as binary buffers.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
from functools import cache, partial
from html import escape
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeGuard

import anywidget
import numpy as np

from rounddiag.batch.html import table
from rounddiag.figures._parts.canvas import DARK, FONT, LIGHT, list_colors
from rounddiag.figures.colored_text import LEVELS, STRONGEST
from rounddiag.widgets.requests import batch_name
from rounddiag.wording import encodable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag.figures._parts.canvas import Theme
    from rounddiag.widgets.session import Session
    from rounddiag.widgets.state import State

    Handler = Callable[[str, dict[str, Any], list[bytes]], object]


_log = logging.getLogger(__name__)
_PAGE = Path(__file__).with_name("page")
# In the order of the script: constants and classes come before their first use.
_SCRIPTS = (
    *("dom", "kernel", "figure", "dialogs", "fields", "filter", "controls"),
    *("overview", "token_plot", "text", "token_numbers", "screenshots", "sample"),
    "attempts",
    *("drawer", "keys", "layout", "steps", "snapshot", "page"),
)
_STYLES = ("base", "controls", "sample", "drawer")

# The script is in every notebook that saves its widgets: without comments and indents.
_COMMENTS = re.compile(r"^ *(?://[^\n]*|/\*\*(?s:.*?)\*/)\n", re.MULTILINE)
_INDENT = re.compile("^ +", re.MULTILINE)


@cache
def script(*more: str) -> str:
    """Return the page's script, one module without imports and comments, and `more`."""
    names = (*_SCRIPTS, *more)
    text = "\n".join(_COMMENTS.sub("", _read(f"{name}.js")) for name in names)
    return _INDENT.sub("", text)


@cache
def style(*more: str) -> str:
    """Return the page's style, and `more`; `theme_css` has the colours."""
    return "\n".join(_read(f"{name}.css") for name in (*_STYLES, *more))


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def theme_css() -> str:
    """Return the CSS variables of both themes, and the backgrounds of tokens."""
    light, dark = _colors(LIGHT), _colors(DARK)
    levels = (
        f".rdx-{sign}{level}{{background:color-mix(in srgb, var(--{name}) "
        f"{100 * STRONGEST * level / LEVELS:.1f}%, transparent)}}"
        for sign, name in (("p", "more"), ("n", "less"))
        for level in range(1, LEVELS + 1)
    )
    greys = (
        f".rdx-g{level}{{background:color-mix(in srgb, var(--quiet) "
        f"{75 * level / LEVELS:.1f}%, transparent)}}"
        for level in range(1, LEVELS + 1)
    )
    return f'.rdx{{--font:{FONT};{light}}}.rdx[data-theme="dark"]{{{dark}}}' + "".join(
        [*levels, *greys]
    )


def _colors(theme: Theme) -> str:
    return ";".join(f"--{name}:{color}" for name, color in list_colors(theme).items())


# JavaScript's typed arrays: wider numbers are narrowed.
_NARROWED = {"float64": "float32", "int64": "int32", "bool": "uint8"}
# Longer lists of text become one buffer: one by one, texts take most of the time.
_MANY_TEXTS = 64


def serialize(payload: object) -> tuple[Any, list[bytes]]:
    """Split a payload into JSON and binary buffers, for the page's `deserialize`.

    Examples
    --------
    >>> serialize({"diff": np.array([0.5, 1.0]), "reward": float("nan")})[0]
    {'diff': {'$': 0, 'dtype': 'float32'}, 'reward': None}
    """
    buffers: list[bytes] = []
    return _plain(payload, buffers), buffers


def _plain(value: object, buffers: list[bytes]) -> object:
    """Return the JSON part of a value; append its binary part to the buffers."""
    match value:
        case dict():
            return {str(key): _plain(inner, buffers) for key, inner in value.items()}
        case list() if len(value) > _MANY_TEXTS and _are_texts(value):
            return _append(_as_json(value), "texts", buffers)
        case list() | tuple():
            return [_plain(inner, buffers) for inner in value]
        case bytes():
            return _append(value, "bytes", buffers)
        case np.ndarray():
            name = _NARROWED.get(value.dtype.name, value.dtype.name)
            data = value.astype(name, copy=False).tobytes()
            return _append(data, name, buffers)
    return _scalar(value.item() if isinstance(value, np.generic) else value)


def _are_texts(values: list[object]) -> TypeGuard[list[str]]:
    return all(isinstance(one, str) for one in values)


def _as_json(texts: list[str]) -> bytes:
    try:
        return json.dumps(texts, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps([encodable(text) for text in texts]).encode()


def _scalar(value: object) -> object:
    if isinstance(value, str):  # broken text of a file may hold lone surrogates
        return encodable(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _append(data: bytes, dtype: str, buffers: list[bytes]) -> dict[str, object]:
    buffers.append(data)
    return {"$": len(buffers) - 1, "dtype": dtype}


class View(anywidget.AnyWidget):
    """The explorer's page, and the function that handles its requests.

    Requests and replies are custom messages, so that a notebook that saves its widgets
    holds the script and nothing of the batch.

    Parameters
    ----------
    handler : callable
        Takes the name of a request, its arguments and its buffers. The page shows what
        it raises.
    """

    # Text instead of a path: for a path anywidget would keep each widget alive.
    _esm = script()
    _css = theme_css() + style()

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self._handler: Handler | None = handler
        self.on_msg(self._on_message)

    def notify(self, name: str, **facts: object) -> None:
        """Send a notification to every page that shows this widget."""
        plain, buffers = serialize({"kind": "notify", "name": name, **facts})
        self.send(plain, buffers)

    def close(self) -> None:
        """Close it, and release the handler."""
        self._handler = None
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
                self._reply(key, name, args, [bytes(one) for one in buffers])

    def _reply(
        self, key: int, name: str, args: dict[str, Any], buffers: list[bytes]
    ) -> None:
        if self._handler is not None:
            self._answer(key, name, partial(self._handler, name, args, buffers))

    def _answer(self, key: int, name: str, work: Callable[[], object]) -> None:
        """Send the result of some work; if it is a function, run that in a thread."""
        try:
            result = work()
            if callable(result):
                later = (key, name, result)
                Thread(target=self._answer, args=later, daemon=True).start()
                return
            reply: dict[str, object] = {"result": result}
        # An exception would be invisible in a notebook: the page shows it.
        except Exception as error:  # noqa: BLE001
            _log.debug("request %s failed", name, exc_info=True)
            reply = {"error": error_payload(error)}
        plain, buffers = serialize({"kind": "reply", "id": key, **reply})
        if self._handler is not None:  # not closed meanwhile
            self.send(plain, buffers)


def error_payload(error: Exception) -> dict[str, str]:
    """Return what the page's banner shows of an error."""
    return {"type": type(error).__name__, "message": str(error)}


# Always shown with the table: the kernel cannot tell whether the page shows the
# explorer or the table in its place.
_NOT_LIVE = (
    "The explorer itself needs a running JupyterLab. If it is missing, run"
    " <code>pip install jupyterlab_widgets anywidget</code> in the environment of"
    " JupyterLab, and reload the page."
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

    def show(self, view: View) -> None:
        """Display the preview, and the widget under it."""
        self._handle = _display(self._handle, self._bundle())
        data, metadata = view._repr_mimebundle_() or ({}, {})
        # Without text, nothing is shown where there are no widgets.
        self._widget = _display(self._widget, {**data, "text/plain": ""}, metadata)

    def update(self, picture: bytes) -> dict[str, int]:
        """Replace the preview by a picture of the page, a JPEG."""
        self._picture, self._pictured = picture, self.session.state
        if self._handle is not None:
            self._handle.update(self._bundle(), raw=True)
        return {"num_bytes": len(picture)}

    def close(self) -> None:
        """Replace the widget by a note that it is closed."""
        if self._widget is None:
            return
        is_outdated = self._picture is not None and self._pictured != self.session.state
        note = f"{_CLOSED} {_OUTDATED}" if is_outdated else _CLOSED
        self._widget.update({"text/plain": note}, raw=True)

    def _bundle(self) -> dict[str, str]:
        name = batch_name(self.session.batch)
        if self._picture is None:
            return {"text/plain": name, "text/html": self._table()}
        data = base64.b64encode(self._picture).decode()
        return {"text/plain": f"explorer of {name}", "image/jpeg": data}

    def _table(self) -> str:
        worst = self.session.whole_batch.worst_rounds.head(5)
        columns = ["sample", "round", "num_tokens", "mean_abs_diff"]
        rows = [[f"{value:.4g}" for value in row] for row in worst[columns].to_numpy()]
        name = escape(batch_name(self.session.batch))
        caption = f"<p>The worst rounds of {name}. {_NOT_LIVE}</p>"
        body = caption + table([tuple(columns), *map(tuple, rows)])
        return f'<div class="mathjax_ignore">{body}</div>'


def _display(
    handle: Any,  # noqa: ANN401 IPython's, where there is one
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
) -> Any:  # noqa: ANN401
    """Display data, under the id of a handle if there is one."""
    from IPython.display import display

    key = True if handle is None else handle.display_id
    return display(data, metadata=metadata, raw=True, display_id=key)  # type: ignore[no-untyped-call]
