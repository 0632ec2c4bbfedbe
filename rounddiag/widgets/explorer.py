"""`explore`: linked views of a batch in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

import pandas as pd
import plotly.graph_objects as go
from traitlets import TraitError
from typing_extensions import Self

from rounddiag.batch import Batch
from rounddiag.batch.address import Address
from rounddiag.core import round_frame
from rounddiag.core.scores import AskedModel, ScoredAgain
from rounddiag.errors import FrameError, RounddiagError
from rounddiag.findings import Diagnosis
from rounddiag.runs import Run
from rounddiag.schema import OPENED_WITH
from rounddiag.text.json_text import object_in
from rounddiag.widgets.figures import named_figure
from rounddiag.widgets.opening import (
    BatchLike,
    open_batch,
    open_folder,
    refuse_answer,
    scores_of,
)
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.session import Session
from rounddiag.widgets.state import State, bounding_cells
from rounddiag.widgets.steps import StepLine, session_at
from rounddiag.widgets.view import PageWidget, Preview, error_payload


def explore(  # noqa: PLR0913 options, by keyword
    data: BatchLike | Run | ScoredAgain,
    /,
    *,
    metric: str | None = None,
    threshold: float | None = None,
    order: str | None = None,
    a: str | None = None,
    b: str | None = None,
    by: str | None = None,
    colors: str | None = None,
    filter: Mapping[str, Any] | None = None,  # noqa: A002 the name of the entry
    finding: int | None = None,
    current: Mapping[str, int] | None = None,
    cells: Mapping[str, Sequence[int]] | None = None,
    scope: str | None = None,
    log_probs: bool | None = None,
    text_color: str | None = None,
    sight: bool | None = None,
    coordinates: str | None = None,
    correction: str | None = None,
    limit: float | None = None,
    notes: Sequence[Mapping[str, Any]] | None = None,
    layout: Mapping[str, Any] | None = None,
    step: int | None = None,
    at: str | None = None,
    answer: AskedModel | None = None,
    **removed: Any,  # noqa: ANN401 entries that older versions saved
) -> Explorer:
    """Explore a batch: rounds, samples, tokens, screenshots and actions, linked.

    Parameters
    ----------
    data : Batch or path-like, or Run or Proof
        A folder of step files is opened as a run, any other path with
        `rounddiag.load`. Of a run, a line of its steps is above the views. Of a proof,
        the samples that were scored: the best hypothesis against the engine that it
        explains.
    metric, threshold, ..., layout, step, at
        What to show first, the entries of `Explorer.state`. In the overview: `metric`,
        `order` and `by` (any column), `a` and `b` (scores), `colors` (`"fixed"` or
        `"fitted"`). What is kept and marked: `filter={"rank": [3], "round": {"from":
        5}}`, `finding` (its number), `current={"sample": 3, "round": 1, "token": 0}`,
        `cells={"samples": [3, 4], "rounds": [1, 2]}`, `threshold` in nats, `correction`
        (its name) with another `limit`. The sample: `scope` of the token plot
        (`"auto"`, `"round"`, `"sample"`), `log_probs`, `text_color`, `sight` (whether
        the screenshot has the tiles of `answer`), `coordinates` of actions, `notes`,
        `layout`. Of a run: `step`. `at="step 40 / task-08/1 / r3 / t17"`, the address
        of a place, is short for `current`, and for `step` of a run.
    answer : Answer, optional
        What `rounddiag.ask` returned about this batch: likely tokens beside each token,
        and where the model looked on the screenshot (key `v`).
    removed
        `axis`, `layers`, `batch` and `heatmap` of an older version: an error says what
        to use.

    Returns
    -------
    Explorer
        A notebook shows it if it is the last value of a cell.

    Raises
    ------
    FrameError
        If an entry is invalid, or there is not one batch.
    LoadError
        If a file cannot be read, or a run has no such `step`.

    Notes
    -----
    It opens at the evidence of the diagnosis's first finding if `rounddiag.diagnose`
    was called before; else at the sample and round with the highest mean |diff|, by a
    lower confidence bound that is shrunk where there are few tokens. The page asks for
    the diagnosis after its first paint, and offers to go to the evidence. Python, asked
    for a place of an explorer that is not displayed, waits for the diagnosis. Keys work
    after a click into the explorer; `?` lists them.

    A run opens at the first step after a change of several rounds, else at its last
    one; `step=` is another. A click into the line, or `[` and `]`, go to another step
    and stay at the same sample, by its id or else its group, and round. Steps that are
    written meanwhile appear in the line.

    Examples
    --------
    >>> import rounddiag as rd
    >>> explorer = rd.explore("sample_data/image_window.parquet")
    >>> explorer.current["round"] >= 2  # screenshots were dropped before these
    True
    >>> explorer.close()
    """
    given = {
        name: value
        for name, value in locals().items()
        if value is not None and name not in ("data", "step", "at", "answer", "removed")
    }
    address = None if at is None else Address.parse(at)
    steps, data = None, open_folder(data)
    if isinstance(data, Run):
        refuse_answer(answer)
        of_address = None if address is None else address.step
        steps = StepLine(data, of_address if step is None else step)
        batch = data.batch(steps.step)
    else:
        batch, given = open_batch(data), {**scores_of(data), **given}
    if address is not None:
        place = address.locate(batch)
        numbers = zip(("sample", "round", "token"), place, strict=True)
        given["current"] = {key: index for key, index in numbers if index is not None}
    return Explorer(batch, steps, answer, **given, **removed)


class Explorer:
    """Linked views of a batch; every choice in them can be read and set.

    Parameters
    ----------
    batch : Batch
    steps : StepLine, optional
        The steps of a run, the batch being that of the open one.
    answer : Answer, optional
        Of this batch.
    **state
        As in `explore`.

    Attributes
    ----------
    last_error : Exception, optional
        The last error, of the page or of a callback.

    Examples
    --------
    >>> import rounddiag as rd
    >>> with rd.explore("sample_data/image_window.parquet", metric="diff") as explorer:
    ...     explorer.current = {"sample": 2, "round": 0}
    ...     explorer.selection["round"].unique().tolist()
    [0]
    """

    def __init__(
        self,
        batch: Batch,
        steps: StepLine | None = None,
        answer: AskedModel | None = None,
        /,
        **state: Any,  # noqa: ANN401 entries of many types
    ) -> None:
        self.last_error: Exception | None = None
        self._steps = steps
        self._session = Session(batch, state)
        self._callbacks: list[Callable[[Explorer], object]] = []
        self._asked = answer
        self._requests = self._new_handler()
        self._view: PageWidget | None = None
        self._preview = Preview(self._session)

    @property
    def batch(self) -> Batch:
        """The batch; of a run, that of the open step."""
        return self._session.full_batch

    @property
    def state(self) -> dict[str, Any]:
        """All choices, as plain data: `explore(batch, **state)` shows the same.

        A copy. Set a part of it with `explorer.state = {"metric": "diff"}`;
        `explorer.state["metric"] = "diff"` has no effect.
        """
        step = {} if self._steps is None else {"step": self._steps.step}
        return {**step, **self._placed_session.state.as_dict()}

    @state.setter
    def state(self, changes: Mapping[str, Any]) -> None:
        rest = dict(changes)
        if self._steps is not None and "step" in rest:
            self._open_step(rest.pop("step"))
        self._session.change(rest)
        self._notify("changed")
        self._set_traits()

    @property
    def step(self) -> int | None:
        """The training step; of a run, set it to open another one."""
        return self.batch.step if self._steps is None else self._steps.step

    @step.setter
    def step(self, step: int) -> None:
        if self._steps is None:
            raise FrameError.build(
                key="step",
                expected="a run, to open another of its steps",
                found="a batch",
                advice="Use `rounddiag.explore(rounddiag.open_run(folder))`.",
            )
        self.state = {"step": step}

    @property
    def current(self) -> dict[str, int]:
        """The current token: `sample`, `round`, and `token` within the round.

        A copy, like `state`: set all of it.
        """
        return self.state["current"]

    @current.setter
    def current(self, place: Mapping[str, int]) -> None:
        self.state = {"current": {"round": 0, "token": 0, **place}}

    @property
    def address(self) -> str:
        """The current token as text: `explore(batch, at=...)` goes there again."""
        return str(Address.of(self.batch, **self.current))

    @property
    def selection(self) -> pd.DataFrame:
        """The tokens of the selected cells, or else all that the filter keeps.

        With neither, those of the current round. With text and role where the batch
        has them, both log-probs and the column of `by`. Set it to rows with `sample`
        and `round`, such as a part of a round frame, to select the smallest box of
        cells that holds them.
        """
        return self._placed_session.selection_frame()

    @selection.setter
    def selection(self, rows: pd.DataFrame) -> None:
        self.state = {"cells": bounding_cells(rows)}

    @property
    def diagnosis(self) -> Diagnosis:
        """What `rounddiag.diagnose` says of the batch."""
        return self._session.diagnosis

    @property
    def selected_rounds(self) -> pd.DataFrame:
        """The selected rows of the round frame; can be set like `selection`.

        Where tokens are filtered: the means of those that the filter keeps.
        """
        session = self._placed_session
        filtered = session.filtered_batch
        rounds = round_frame(filtered.batch) if filtered.is_all else filtered.rounds
        return session.select_rows(rounds)

    @selected_rounds.setter
    def selected_rounds(self, rows: pd.DataFrame) -> None:
        self.selection = rows

    @property
    def widget(self) -> PageWidget:
        """The ipywidget that shows it, to lay out, observe and link with others.

        Its traits `current` and `state` are those of the explorer, as dictionaries:
        `ipywidgets.jslink((a.widget, "current"), (b.widget, "current"))` lets two
        explorers go to the same places.
        """
        if self._view is None:
            self._view = PageWidget(self._handle, self._change_trait)
            self._set_traits()
        if self._steps is not None:
            self._steps.follow(self._view.notify)
        return self._view

    def figure(self, name: str) -> go.Figure:
        """Return one of the visible figures, to keep or to save.

        Parameters
        ----------
        name : {"rounds", "heatmap", "trajectory"}

        Raises
        ------
        FrameError
            If there is no such figure.
        """
        return named_figure(self._placed_session, name)

    def on_select(self, callback: Callable[[Explorer], object]) -> None:
        """Call a function with this explorer after each selection in the page."""
        self._callbacks.append(callback)

    def to_code(self) -> str:
        """Return the code that opens the same files and shows the same state.

        What has no file is called `batch` and `answer` in it.
        """
        run = None if self._steps is None else self._steps.run.path
        code = write_code(self.batch, self._placed_session.state, run, self.step)
        return code if self._asked is None else f"{code[:-1]}, answer=answer)"

    def close(self) -> None:
        """Remove the explorer from the page, and free its frames.

        A static picture of the last view stays, marked as closed, and as outdated if
        the selection changed after it was taken. Display the explorer again to reopen
        it; callbacks given to `on_select` are removed.
        """
        if self._view is not None:
            self._view.close()
            self._preview.close()
        if self._steps is not None:
            self._steps.close()
        self._view = None
        self._callbacks.clear()
        self._requests.clear_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = ", ".join(f"{key} {value}" for key, value in self.current.items())
        return f"Explorer({self.batch!r}, at {place})"

    def _ipython_display_(self) -> None:
        close_previous(self)
        self._preview.show(self._display_())

    def _display_(self) -> PageWidget:
        """Return the widget, which marimo shows by itself."""
        return self.widget

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget, and for hosts without widgets the picture and a hint."""
        data, metadata = self._display_()._repr_mimebundle_() or ({}, {})
        return {**data, **self._preview.bundle()}, metadata

    @property
    def _placed_session(self) -> Session:
        """The session at the place that the page shows, or would show.

        Without a page the diagnosis decides it, and Python waits for it; without a
        diagnosis the place stays what it is.
        """
        session = self._session
        if self._view is not None:
            return session
        try:
            is_moved = session.open_at_evidence()
        except Exception as error:  # noqa: BLE001 the page says why there is none
            self.last_error, session.is_placed = error, True
        else:
            if is_moved:
                self._notify("changed")
        return session

    def _handle(self, name: str, args: dict[str, Any], buffers: list[bytes]) -> object:
        if name == "snapshot":
            return self._preview.update(buffers[0])
        before = self._session.state
        reply = self._noting_errors(partial(self._answer, name, args))
        if self._session.state is not before:
            self._set_traits()
        return reply

    def _change_trait(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """Change the state as a trait of the widget was; return what it is then."""
        if value != getattr(self, name):
            try:
                setattr(self, name, value)
            except RounddiagError as error:
                self.last_error = error
                self._notify("failed", error=error_payload(error))
                raise TraitError(str(error)) from error
        return cast("dict[str, Any]", getattr(self, name))

    def _set_traits(self) -> None:
        if self._view is not None:
            self._view.state = self.state
            self._view.current = self.current

    def _answer(self, name: str, args: dict[str, Any]) -> object:
        """Reply from the batch; of a run, open a step, and add the line of steps."""
        if self._steps is None or name not in ("overview", "set", "step"):
            return self._requests(name, args)
        if name == "step":
            self._open_step(args["step"])
            reply = self._requests("overview", {"theme": args["theme"]})
        else:
            reply = self._requests(name, args)
        return {**cast("dict[str, Any]", reply), "steps": self._steps.payload()}

    def _open_step(self, step: int) -> None:
        """Show another step of the run, at the same sample and round if they exist."""
        if self._steps is None or step == self._steps.step:
            return
        batch = self._steps.run.batch(step)
        session = session_at(self._session, batch)
        self._requests.clear_cache()
        self._steps.step, self._session = step, session
        self._requests = self._new_handler()
        self._preview.session = session

    def _new_handler(self) -> RequestHandler:
        return RequestHandler(self._session, self._run_callbacks, self._asked)

    def _noting_errors(self, work: Callable[[], object]) -> object:
        try:
            result = work()
        except Exception as error:
            self.last_error = error
            raise
        return partial(self._noting_errors, result) if callable(result) else result

    def _run_callbacks(self) -> None:
        for callback in self._callbacks:
            self._run_callback(callback)

    def _run_callback(self, callback: Callable[[Explorer], object]) -> None:
        try:
            callback(self)
        except Exception as error:  # noqa: BLE001 nothing else would show it
            self.last_error = error
            self._notify("failed", error=error_payload(error))

    def _notify(self, name: str, **facts: object) -> None:
        if self._view is not None:
            self._view.notify(name, **facts)


def write_code(
    batch: Batch,
    state: State,
    run: str | None = None,
    step: int | None = None,
) -> str:
    """Return the code that opens the file of a batch in a state.

    Without a file it is called `batch`. Of the step of a run, `run` is the folder.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> print(write_code(batch, State(metric="diff")))
    import rounddiag as rd
    <BLANKLINE>
    batch = rd.load('sample_data/healthy.parquet')
    rd.explore(batch, metric='diff', current={'sample': 0, 'round': 0, 'token': 0})
    """
    name, value = "batch", _load_call(batch)
    if run is not None:
        name, value = "run", f"rd.open_run({run!r})"
    default, now = State().as_dict(), state.as_dict()
    entries = {
        key: now[key] for key in now if now[key] != default[key] or key == "current"
    }
    if run is not None:
        entries = {"step": step, **entries}
    arguments = "".join(f", {key}={value!r}" for key, value in entries.items())
    assignment = f"{name} = {value}\n" if value else ""
    return f"import rounddiag as rd\n\n{assignment}rd.explore({name}{arguments})"


def _load_call(batch: Batch) -> str:
    """Return the call that opens a batch; empty for one that is in memory only.

    A tokenizer without a name is called `tokenizer`.
    """
    source, options = batch.meta.get("source"), object_in(batch.meta.get(OPENED_WITH))
    if not isinstance(source, str) or not Path(source).exists():
        return ""
    known = {name: f"{value!r}" for name, value in options.items()}
    if options.get("tokenizer") == "?":
        known["tokenizer"] = "tokenizer"
    return (
        f"rd.load({', '.join([repr(source), *(f'{k}={v}' for k, v in known.items())])})"
    )


# The explorers that each cell displayed in its last run, with the id of that run.
_displayed: dict[str, tuple[str, WeakSet[Explorer]]] = {}


def close_previous(explorer: Explorer) -> None:
    """Close the explorers that the running cell displayed in its previous run."""
    cell, run = _running_cell()
    if cell is None:
        return
    last_run, explorers = _displayed.get(cell, (run, WeakSet()))
    if last_run != run:
        for previous in explorers - {explorer}:
            previous.close()
        explorers = WeakSet()
    explorers.add(explorer)
    _displayed[cell] = (run, explorers)


def _running_cell() -> tuple[str | None, str]:
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    cell = parent.get("metadata", {}).get("cellId")
    run = parent.get("header", {}).get("msg_id", "")
    return (cell if isinstance(cell, str) else None), run
