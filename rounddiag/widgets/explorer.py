"""`explore`: linked views of a batch in a notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

from rounddiag.batch import Batch
from rounddiag.errors import FrameError
from rounddiag.loaders import load
from rounddiag.widgets.figures import figure_of
from rounddiag.widgets.requests import Answers, name_of
from rounddiag.widgets.session import Session
from rounddiag.widgets.state import State, box_of
from rounddiag.widgets.view import Preview, View, told_error

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    import plotly.graph_objects as go
    from typing_extensions import Self


# What each cell showed when it last ran, and in which run that was.
_shown: dict[str, tuple[str, WeakSet[Explorer]]] = {}


def replace_in_cell(explorer: Explorer) -> None:
    """Close the explorers that the running cell showed the last time it ran."""
    cell, run = _running()
    if cell is None:
        return
    last_run, explorers = _shown.get(cell, (run, WeakSet()))
    if last_run != run:
        for last in explorers - {explorer}:
            last.close()
        explorers = WeakSet()
    explorers.add(explorer)
    _shown[cell] = (run, explorers)


def _running() -> tuple[str | None, str]:
    """Return the ids of the running cell and of this run of it."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    cell = parent.get("metadata", {}).get("cellId")
    run = parent.get("header", {}).get("msg_id", "")
    return (cell if isinstance(cell, str) else None), run


_OF_TWO = ("batch", "heatmap")


def code_of(batches: Mapping[str, Batch], state: State) -> str:
    """Write the code that opens the files of one batch or two and shows the same.

    A batch that was never a file is called `batch`, two of which one was not `batches`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> print(code_of({"healthy": batch}, State(metric="k3")))
    import rounddiag as rd
    <BLANKLINE>
    batch = rd.load('sample_data/healthy.parquet')
    rd.explore(batch, metric='k3', current={'sample': 0, 'round': 0, 'token': 0})
    """
    name, value = _opening(batches)
    usual, now = State().as_dict(), state.as_dict()
    needed = ("current", *(_OF_TWO if len(batches) > 1 else ()))
    chosen = {key: now[key] for key in now if now[key] != usual[key] or key in needed}
    words = "".join(f", {key}={value!r}" for key, value in chosen.items())
    opening = f"{name} = {value}\n" if value else ""
    return f"import rounddiag as rd\n\n{opening}rd.explore({name}{words})"


def _opening(batches: Mapping[str, Batch]) -> tuple[str, str]:
    """Name what is explored, and write how it is opened; nothing if it is no file."""
    name = "batch" if len(batches) == 1 else "batches"
    sources = [batch.meta.get("source") for batch in batches.values()]
    if not all(isinstance(source, str) for source in sources):
        return name, ""
    if len(sources) == 1:
        return name, f"rd.load({sources[0]!r})"
    files = zip(batches, sources, strict=True)
    loaded = ", ".join(f"{key!r}: rd.load({source!r})" for key, source in files)
    return name, f"{{{loaded}}}"


One: TypeAlias = Batch | str | os.PathLike[str]
Given: TypeAlias = One | Sequence[One] | Mapping[str, One]
_PAIR = 2


def opened(given: Given) -> dict[str, Batch]:
    """Open what is a path, and name each batch.

    Parameters
    ----------
    given : Batch, path-like, or a sequence or mapping of two of them

    Returns
    -------
    dict of str to Batch
        One or two. Without names of their own they are called by their files, or
        "batch 0" and "batch 1" where that does not tell them apart.

    Raises
    ------
    FrameError
        If there are several, but not two.

    Examples
    --------
    >>> [*opened(["sample_data/healthy.parquet", "sample_data/stale.parquet"])]
    ['healthy.parquet', 'stale.parquet']
    """
    if isinstance(given, Mapping):
        _check_two(len(given))
        return {str(name): _batch(one) for name, one in given.items()}
    if not isinstance(given, list | tuple):
        batch = _batch(given)
        return {name_of(batch): batch}
    _check_two(len(given))
    batches = [_batch(one) for one in given]
    names = [name_of(batch) for batch in batches]
    if names[0] == names[1]:
        names = ["batch 0", "batch 1"]
    return dict(zip(names, batches, strict=True))


def _check_two(num: int) -> None:
    if num != _PAIR:
        raise FrameError.build(
            key="batch",
            expected="one batch or path, or two of them in a list or a dictionary",
            found=f"{num} of them",
            advice="`rounddiag.plot_compare` takes up to 8 batches.",
        )


def _batch(one: object) -> Batch:
    return one if isinstance(one, Batch) else load(one)


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
