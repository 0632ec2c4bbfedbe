"""Explorers in the cells of a notebook, and the code that reopens one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets
import numpy as np
import pytest
from traitlets import TraitError

import rounddiag as rd
from rounddiag import explore
from rounddiag.widgets import explorer as cells
from rounddiag.widgets.session import evidence_place
from tests.batches import hand_batch

if TYPE_CHECKING:
    from rounddiag.widgets.explorer import Explorer


class Shell:
    """A kernel's shell that runs cells by their ids."""

    def __init__(self) -> None:
        self.parent: dict[str, Any] = {}

    def get_parent(self) -> dict[str, Any]:
        return self.parent

    def run(self, cell: str, run: str, *explorers: Explorer) -> None:
        self.parent = {"metadata": {"cellId": cell}, "header": {"msg_id": run}}
        for explorer in explorers:
            cells.close_previous(explorer)


class Counted:
    """Something that counts how often it was closed."""

    def __init__(self) -> None:
        self.num_closed = 0

    def close(self) -> None:
        self.num_closed += 1


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    found = Shell()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: found)
    monkeypatch.setattr(cells, "_displayed", {})
    return found


def test_a_cell_that_runs_again_closes_what_it_showed(shell: Shell) -> None:
    first, second, third, other = (Counted() for _ in range(4))
    shell.run("a", "1", first, second)  # type: ignore[arg-type]
    shell.run("b", "2", other)  # type: ignore[arg-type]
    assert first.num_closed == second.num_closed == 0
    shell.run("a", "3", second, third)  # type: ignore[arg-type]
    assert [one.num_closed for one in (first, second, third, other)] == [1, 0, 0, 0]
    shell.run("a", "4", other)  # type: ignore[arg-type]
    assert [one.num_closed for one in (first, second, third, other)] == [1, 1, 1, 0]


def test_what_is_shown_is_not_kept_alive(shell: Shell) -> None:
    shell.run("a", "1", Counted())  # type: ignore[arg-type]
    ((_, explorers),) = cells._displayed.values()
    assert len(explorers) == 0


@pytest.mark.usefixtures("shell")
def test_without_cells_nothing_is_closed() -> None:
    first = Counted()
    for _ in range(2):
        cells.close_previous(first)  # type: ignore[arg-type]
    assert (first.num_closed, cells._displayed) == (0, {})


def test_an_explorer_outside_a_notebook_can_be_closed() -> None:
    with explore(hand_batch()) as explorer:
        cells.close_previous(explorer)
    explorer.close()


FILE = Path("sample_data/image_window.parquet")


def test_code_that_is_run_shows_the_same() -> None:
    first = explore(FILE, metric="diff", threshold=0.25)
    first.state = {
        "filter": {"text": 'it\'s "<b>"\n\u202e', "round": {"from": 0}},
        "cells": {"samples": [1, 2], "rounds": [0, 1]},
    }
    *lines, call = first.to_code().split("\n")
    names: dict[str, object] = {}
    exec("\n".join([*lines, f"found = {call}"]), names)  # noqa: S102 it is to be run
    found = names["found"]
    assert isinstance(found, type(first))
    assert found.state == first.state
    assert found.batch.meta["source"] == first.batch.meta["source"]


def test_a_batch_that_was_no_file_is_called_so() -> None:
    explorer = explore(hand_batch())
    assert explorer.to_code() == (
        "import rounddiag as rd\n\n"
        "rd.explore(batch, current={'sample': 1, 'round': 1, 'token': 0})"
    )


def test_rows_are_in_the_order_of_a_column_the_worst_first_among_equal_ones() -> None:
    # Mean |diff| of the samples: 0.583, 0.6875, 1.
    rank = np.array(["b", "a", "b"], object)
    batch = hand_batch(sample_columns={"rank": rank})
    explorer = explore(batch, order="rank")
    figure = explorer.figure("heatmap")
    assert figure.layout.meta["samples"] == [1, 2, 0]
    assert figure.layout.yaxis.title.text == "sample, by rank"
    explorer.state = {"filter": {"rank": "b"}}
    assert explorer.figure("heatmap").layout.meta["samples"] == [2, 0]


IMAGE_WINDOW = Path(__file__).parents[2] / "sample_data" / "image_window.parquet"


def test_python_waits_for_the_place_that_the_diagnosis_decides() -> None:
    batch = rd.load(IMAGE_WINDOW)
    with explore(batch) as explorer:
        place = evidence_place(rd.diagnose(batch)[0])
        assert place is not None
        assert explorer.current == vars(place)
        assert explorer.state["finding"] == 0
        assert set(explorer.selection["sample"]) == {place.sample}
        assert set(explorer.selection["round"]) == {place.round}


def test_a_place_that_was_chosen_stays() -> None:
    with explore(IMAGE_WINDOW, current={"sample": 2, "round": 1}) as explorer:
        assert explorer.current == {"sample": 2, "round": 1, "token": 0}
        assert explorer.state["finding"] is None


def test_an_address_is_where_it_opens() -> None:
    address = "step 1584 / task-08/1 / r3 / t7"
    with explore(IMAGE_WINDOW, at=address) as explorer:
        assert explorer.current == {"sample": 33, "round": 3, "token": 7}
        assert explorer.address == address
    with explore(IMAGE_WINDOW, at="33 / r2") as explorer:
        assert explorer.current == {"sample": 33, "round": 2, "token": 0}
    with pytest.raises(rd.errors.BatchError, match="expected step 1584; found step 3"):
        explore(IMAGE_WINDOW, at="step 3 / task-08/1")


def test_code_opens_with_the_same_options(tmp_path: Path) -> None:
    file = Path("sample_data/step_rows.parquet")
    batch = rd.load(file, sample_by="traj_uid", stop_tokens=[151_645])
    code = explore(batch, current={"sample": 11, "round": 4}).to_code()
    assert "sample_by='traj_uid', stop_tokens=[151645])" in code
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 it is to be run
    assert names["batch"].num_samples == batch.num_samples
    rd.save(batch, tmp_path / "joined.parquet")
    again = rd.load(tmp_path / "joined.parquet")
    assert "opened_with" not in again.meta


def test_data_in_memory_is_called_batch() -> None:
    rows = {"response_ids": [[1, 2]], "response_mask": [[1, 1]]}
    code = explore(rd.load(rows)).to_code()
    assert "rd.load" not in code
    assert "rd.explore(batch, " in code


def test_control_characters_of_a_file_name_are_printable(tmp_path: Path) -> None:
    file = tmp_path / "step\x1b[31m\x07\u202e.parquet"
    rd.save(hand_batch(), file)
    batch = rd.load(file)
    bundle = explore(batch)._repr_mimebundle_()[0]
    rd.report(batch, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for text in (bundle["text/plain"], bundle["text/html"], page):
        assert not {"\x1b", "\x07", "\u202e"} & {*text}


def test_traits_of_the_widget_are_those_of_the_explorer() -> None:
    first, second = (explore(hand_batch(), current={"sample": 0}) for _ in range(2))
    heard: list[Any] = []
    first.widget.observe(lambda change: heard.append(change.new), "current")
    link = ipywidgets.link((first.widget, "current"), (second.widget, "current"))
    first.current = {"sample": 1}
    second.widget.current = {"sample": 0, "round": 1}  # completed
    first._handle("select", {"changes": {"current": {"sample": 1}}}, [])
    first.widget.set_state({"current": {"sample": 0}})  # as a page sets it
    samples_and_rounds = [(place["sample"], place["round"]) for place in heard]
    assert samples_and_rounds == [(1, 0), (0, 1), (1, 1), (0, 0)]
    assert second.current == first.current == heard[-1]
    assert second.state == first.state == second.widget.state
    second.widget.state = {"metric": "diff"}
    assert second.state["metric"] == second.widget.state["metric"] == "diff"
    assert second.widget.state["current"] == heard[-1]
    link.unlink()
    first.close()
    second.close()


def test_a_place_that_is_not_there_leaves_the_traits() -> None:
    explorer = explore(hand_batch(), current={"sample": 1})
    before = explorer.widget.current
    for set_to in (
        lambda place: setattr(explorer.widget, "current", place),
        lambda place: explorer.widget.set_state({"current": place}),
    ):
        with pytest.raises(TraitError, match="sample 99"):
            set_to({"sample": 99})
        assert explorer.widget.current == explorer.current == before
        assert "sample 99" in str(explorer.last_error)
    explorer.close()


def test_a_notebook_saves_no_state_of_the_batch() -> None:
    note = {"sample": 0, "text": "private"}
    with explore(hand_batch(), notes=[note]) as explorer:
        assert explorer.widget.state["notes"] == [note]
        saved = explorer.widget.get_state()
        assert saved["current"]["sample"] == explorer.current["sample"]
        assert "private" not in str(saved)
