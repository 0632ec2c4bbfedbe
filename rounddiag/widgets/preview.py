"""What a notebook shows of an explorer that is not alive: a table, then a picture."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from rounddiag.batch.html import table
from rounddiag.widgets.head import name_of

if TYPE_CHECKING:
    from rounddiag.widgets.session import Session
    from rounddiag.widgets.state import State
    from rounddiag.widgets.view import View

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
