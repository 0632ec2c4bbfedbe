"""The one widget: a page that asks, and Python that answers."""

from __future__ import annotations

import base64
import logging
import math
import re
from dataclasses import fields
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np

from rounddiag.batch.html import table
from rounddiag.figures._parts.canvas import DARK, FONT, LIGHT
from rounddiag.figures._parts.token_colors import LEVELS, STRONGEST
from rounddiag.widgets.requests import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag.figures._parts.canvas import Theme
    from rounddiag.widgets.session import Session
    from rounddiag.widgets.state import State

    Answer = Callable[[str, dict[str, Any], list[bytes]], object]


_PAGE = Path(__file__).with_name("page")
# In the order in which a page reads them: classes and constants before their use.
_SCRIPTS = (
    *("dom", "signs", "wire", "library", "store", "theme", "dialogs"),
    *("figure", "pointing", "heat_cells", "overview", "token_plot"),
    *("hits", "spans", "rounds", "tip", "tokens", "search", "focus"),
    *("markers", "pictures", "lightbox", "strip", "screens", "sample", "worst"),
    *("fields", "filters", "threshold", "head", "compare", "controls"),
    *("snapshots", "keys", "actions", "explorer", "main"),
)
_STYLES = (
    *("base", "layout", "tokens", "focus", "strip", "screens", "worst", "controls"),
)


# Comments stay here: the script is in every notebook that saves its widgets.
_COMMENTS = re.compile(r"^ *(?://[^\n]*|/\*\*(?s:.*?)\*/)\n", re.MULTILINE)


@cache
def script() -> str:
    """Return the whole script, one module without imports and comments."""
    return "\n".join(_COMMENTS.sub("", _read(f"{name}.js")) for name in _SCRIPTS)


@cache
def style() -> str:
    """Return the rules of all parts; `style.variables` has the colours."""
    return "\n".join(_read(f"{name}.css") for name in _STYLES)


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def variables() -> str:
    """Return the CSS variables of both themes, and the backgrounds of tokens."""
    light, dark = _colors(LIGHT), _colors(DARK)
    levels = (
        f".rdx-{sign}{level}{{background:color-mix(in srgb, var(--{name}) "
        f"{100 * STRONGEST * level / LEVELS:.1f}%, transparent)}}"
        for sign, name in (("p", "more"), ("n", "less"))
        for level in range(1, LEVELS + 1)
    )
    return f'.rdx{{--font:{FONT};{light}}}.rdx[data-theme="dark"]{{{dark}}}' + "".join(
        levels
    )


def _colors(theme: Theme) -> str:
    names = (one.name for one in fields(theme) if one.name != "name")
    return ";".join(f"--{name}:{getattr(theme, name)}" for name in names)


# What a page has typed arrays for; wider numbers are made narrower.
_NARROWED = {"float64": "float32", "int64": "int32", "bool": "uint8"}


def packed(result: object) -> tuple[Any, list[bytes]]:
    """Take arrays and bytes out of a result, for `unpacked` in the page.

    Parameters
    ----------
    result : object
        Dictionaries and lists of any depth, with arrays and bytes among them.

    Returns
    -------
    plain : object
        What JSON can hold: NaN and infinities are None, and each array or bytes is
        `{"$": index, "dtype": name}`.
    buffers : list of bytes

    Examples
    --------
    >>> packed({"diff": np.array([0.5, 1.0]), "reward": float("nan")})[0]
    {'diff': {'$': 0, 'dtype': 'float32'}, 'reward': None}
    """
    buffers: list[bytes] = []
    return _plain(result, buffers), buffers


def _plain(value: object, buffers: list[bytes]) -> object:
    """Return what JSON can hold; put the rest into the buffers."""
    match value:
        case dict():
            return {str(key): _plain(inner, buffers) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, buffers) for inner in value]
        case bytes():
            return _taken(value, "bytes", buffers)
        case np.ndarray():
            name = _NARROWED.get(value.dtype.name, value.dtype.name)
            data = value.astype(name, copy=False).tobytes()
            return _taken(data, name, buffers)
    return _scalar(value.item() if isinstance(value, np.generic) else value)


def _scalar(value: object) -> object:
    if isinstance(value, str):  # broken text of a file may hold halves of characters
        return value.encode("utf-8", "backslashreplace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _taken(data: bytes, dtype: str, buffers: list[bytes]) -> dict[str, object]:
    buffers.append(data)
    return {"$": len(buffers) - 1, "dtype": dtype}


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


# Seen over the table wherever the explorer is not: the kernel cannot tell which it is.
_ELSEWHERE = (
    "The explorer itself is shown by a running JupyterLab. If it is not, run"
    " <code>pip install jupyterlab_widgets anywidget</code> in the environment that"
    " JupyterLab itself runs in, and reload the page."
)


_CLOSED = "The explorer is closed. Display it again to go on."
_EARLIER = "The picture was taken before what was chosen last."


class Preview:
    """An output of its own over the widget's, which hides it while it is alive.

    Once the widget is closed it is a sentence in its place.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._handle: Any = None
        self._widget: Any = None
        self._picture: bytes | None = None
        self._seen: State | None = None

    def show(self, view: View) -> None:
        """Display what is known, here and now, and a widget under it."""
        self._handle = _displayed(self._handle, self._bundle())
        data, metadata = view._repr_mimebundle_() or ({}, {})
        # Nothing is to be seen where there are no widgets.
        self._widget = _displayed(self._widget, {**data, "text/plain": ""}, metadata)

    def take(self, picture: bytes) -> dict[str, int]:
        """Show a picture from now on, a JPEG of what the page shows."""
        self._picture, self._seen = picture, self._session.state
        if self._handle is not None:
            self._handle.update(self._bundle(), raw=True)
        return {"num_bytes": len(picture)}

    def close(self) -> None:
        """Say where the widget was that it is closed, and if the picture is older."""
        if self._widget is None:
            return
        is_late = self._picture is not None and self._seen != self._session.state
        words = f"{_CLOSED} {_EARLIER}" if is_late else _CLOSED
        self._widget.update({"text/plain": words}, raw=True)

    def _bundle(self) -> dict[str, str]:
        name = name_of(self._session.batch)
        if self._picture is None:
            return {"text/plain": name, "text/html": self._table()}
        data = base64.b64encode(self._picture).decode()
        return {"text/plain": f"explorer of {name}", "image/jpeg": data}

    def _table(self) -> str:
        worst = self._session.everything.worst["rounds"].head(5)
        columns = ["sample", "round", "num_tokens", "mean_abs_diff"]
        rows = [[f"{value:.4g}" for value in row] for row in worst[columns].to_numpy()]
        name = escape(name_of(self._session.batch))
        caption = f"<p>The worst rounds of {name}. {_ELSEWHERE}</p>"
        return caption + table([tuple(columns), *map(tuple, rows)])


def _displayed(
    handle: Any,  # noqa: ANN401 IPython's, where there is one
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
) -> Any:  # noqa: ANN401
    """Display something, as another view of a handle's if there is one."""
    from IPython.display import display

    key = True if handle is None else handle.display_id
    return display(data, metadata=metadata, raw=True, display_id=key)  # type: ignore[no-untyped-call]
