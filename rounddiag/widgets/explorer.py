"""`explore`: linked views of a batch in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.widgets.answers import Answers
from rounddiag.widgets.cells import replace_in_cell
from rounddiag.widgets.code import code_of
from rounddiag.widgets.opening import opened
from rounddiag.widgets.overview import figure_of
from rounddiag.widgets.preview import Preview
from rounddiag.widgets.session import Session
from rounddiag.widgets.state import box_of
from rounddiag.widgets.view import View, told_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd
    import plotly.graph_objects as go
    from typing_extensions import Self

    from rounddiag.batch import Batch
    from rounddiag.widgets.opening import Given


def explore(batch: Given, /, **state: Any) -> Explorer:  # noqa: ANN401 entries of many types
    """Look at a batch: rounds, cells, tokens, screenshots and actions, linked.

    Parameters
    ----------
    batch : Batch or path-like, or two of them
        A path is opened with `rounddiag.load`. Two, in a list or by their names in a
        dictionary, are compared: the second with the first.
    **state
        What to look at first, as `Explorer.state` has it: `metric="k3"`,
        `current={"sample": 3, "round": 1, "token": 0}`.

    Returns
    -------
    Explorer
        Shown by a notebook where it is the last value of a cell.

    Raises
    ------
    FrameError
        If the state has an entry that there is not, or one with a wrong value, or there
        are more than two batches.

    Notes
    -----
    It opens at the cell (a sample's round) whose mean |diff| is the highest beyond
    doubt: by the lower end of an interval, among cells of at least 20 tokens. Keys work
    after a click into it: `?` lists them.

    Two batches are paired by their `sample_ids`, if at least half of the smaller one's
    samples are in both. Then rows are in one order, a heatmap shows how much more there
    is in each cell of the second batch, and it opens where that is most. Either batch's
    own heatmap has the same range of colours. `state["batch"]` is the one that is
    looked at, 0 or 1; `state["heatmap"]` is `"batch"` or `"difference"`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> explorer = rd.explore("sample_data/image_window.parquet")
    >>> explorer.current["round"] >= 2  # screenshots were dropped before these
    True
    >>> explorer.close()
    """
    return Explorer(opened(batch), **state)


class Explorer:
    """Linked views of a batch; what is chosen in them can be read and set.

    Parameters
    ----------
    batches : mapping of str to Batch
        One or two, by their names.
    **state
        As in `explore`.

    Attributes
    ----------
    batches : dict of str to Batch
    last_error : Exception, optional
        What went wrong last, in the page or in a function given to `on_select`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> with rd.explore("sample_data/image_window.parquet", metric="k3") as explorer:
    ...     explorer.current = {"sample": 2, "round": 0}
    ...     explorer.selection["round"].unique().tolist()
    [0]
    """

    def __init__(self, batches: Mapping[str, Batch], /, **state: Any) -> None:  # noqa: ANN401 entries of many types
        self.batches = dict(batches)
        self.last_error: Exception | None = None
        self._session = Session(self.batches, state)
        self._callbacks: list[Callable[[Explorer], object]] = []
        self._answers = Answers(self._session, self._chosen)
        self._view: View | None = None
        self._preview = Preview(self._session)

    @property
    def batch(self) -> Batch:
        """The batch that is looked at."""
        return self._session.original

    @property
    def state(self) -> dict[str, Any]:
        """Everything that is chosen, as plain data; `explore(batch, **state)` again.

        A copy: `explorer.state = {"metric": "k3"}` changes a part of it, where
        `explorer.state["metric"] = "k3"` changes nothing.
        """
        return self._session.state.as_dict()

    @state.setter
    def state(self, changes: Mapping[str, Any]) -> None:
        self._session.change(changes)
        self._tell("changed")

    @property
    def current(self) -> dict[str, int]:
        """The token that is looked at: `sample`, `round` and `token` in its round.

        A copy, as `state` is: set all of it.
        """
        current: dict[str, int] = self.state["current"]
        return current

    @current.setter
    def current(self, place: Mapping[str, int]) -> None:
        self.state = {"current": {"round": 0, "token": 0, **place}}

    @property
    def selection(self) -> pd.DataFrame:
        """The token frame of the selected cells; without any, of the current round.

        Set it to a frame with `sample` and `round`, a part of a round frame say: the
        smallest box of cells that holds its rows is selected.
        """
        return self._session.selected(self._session.shown.tokens)

    @selection.setter
    def selection(self, rows: pd.DataFrame) -> None:
        self.state = {"cells": box_of(rows)}

    @property
    def selected_rounds(self) -> pd.DataFrame:
        """The rows of the round frame that are selected; set it as `selection`."""
        return self._session.selected(self._session.shown.rounds)

    @selected_rounds.setter
    def selected_rounds(self, rows: pd.DataFrame) -> None:
        self.selection = rows

    def figure(self, name: str) -> go.Figure:
        """Return one of the figures that are seen, to keep or to save.

        Parameters
        ----------
        name : {"rounds", "heatmap", "trajectory"}

        Raises
        ------
        FrameError
            If there is no such figure.
        """
        return figure_of(self._session, name)

    def on_select(self, callback: Callable[[Explorer], object]) -> None:
        """Call a function with this explorer whenever something is chosen in it."""
        self._callbacks.append(callback)

    def to_code(self) -> str:
        """Return the code that opens the batch's file and shows the same."""
        return code_of(self.batches, self._session.state)

    def close(self) -> None:
        """Take it off the page, and free what was worked out for it.

        A picture of what was last seen stays there, and a word that it is closed; one
        that was taken before the last choice is said to be. Display it again to have it
        back; functions given to `on_select` are forgotten.
        """
        if self._view is not None:
            self._view.close()
            self._preview.close()
        self._view = None
        self._callbacks.clear()
        self._session.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = ", ".join(f"{key} {value}" for key, value in self.current.items())
        return f"Explorer({self.batch!r}, at {place})"

    def _ipython_display_(self) -> None:
        replace_in_cell(self)
        self._view = self._view or View(self._answer)
        self._preview.show(self._view)

    def _answer(self, name: str, args: dict[str, Any], buffers: list[bytes]) -> object:
        if name == "snapshot":
            return self._preview.take(buffers[0])
        try:
            return self._answers(name, args)
        except Exception as error:
            self.last_error = error
            raise

    def _chosen(self) -> None:
        for callback in self._callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Explorer], object]) -> None:
        """Call what waits for a choice; what fails there undoes no choice."""
        try:
            callback(self)
        except Exception as error:  # noqa: BLE001 nothing else would show it
            self.last_error = error
            self._tell("failed", error=told_error(error))

    def _tell(self, name: str, **facts: object) -> None:
        if self._view is not None:
            self._view.tell(name, **facts)
