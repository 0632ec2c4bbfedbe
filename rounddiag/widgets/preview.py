"""What a notebook shows of an explorer that is not alive: a table, then a picture."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from rounddiag.batch.html import table
from rounddiag.widgets.head import name_of

if TYPE_CHECKING:
    from rounddiag.widgets.session import Session
    from rounddiag.widgets.view import View

# Seen over the table wherever the explorer is not: the kernel cannot tell which it is.
_ELSEWHERE = (
    "The explorer itself is shown by a running JupyterLab. If it is not, run"
    " <code>pip install jupyterlab_widgets anywidget</code> in the environment that"
    " JupyterLab itself runs in, and reload the page."
)


class Preview:
    """An output of its own over the widget's, which hides it while it is alive.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._handle: Any = None
        self._picture: bytes | None = None

    def show(self) -> None:
        """Display what is known, here and now."""
        from IPython.display import display

        key = True if self._handle is None else self._handle.display_id
        self._handle = display(self._bundle(), raw=True, display_id=key)  # type: ignore[no-untyped-call]

    def take(self, picture: bytes) -> dict[str, int]:
        """Show a picture from now on, a JPEG of what the page shows."""
        self._picture = picture
        if self._handle is not None:
            self._handle.update(self._bundle(), raw=True)
        return {"num_bytes": len(picture)}

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


def show_widget(view: View) -> None:
    """Display a widget, and nothing where there are no widgets."""
    from IPython.display import display

    data, metadata = view._repr_mimebundle_() or ({}, {})
    display({**data, "text/plain": ""}, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
