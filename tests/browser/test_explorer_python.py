"""What Python gets from an explorer, and what it can change in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

import rounddiag as rd
from tests.browser.explored import CELLS, Explored
from tests.browser.explorers import explorer, waits_for
from tests.browser.lab import LabNotebook


@pytest.fixture(scope="module")
def tokens(seen: rd.Batch) -> pd.DataFrame:
    return rd.token_frame(seen)


def run(explored: Explored, statement: str) -> None:
    """Run a statement in the notebook's kernel, and let the page follow."""
    explored.lab.value(f"exec({statement!r})")
    explored.rest()


def test_the_selection_is_a_token_frame_of_the_current_round(
    explored: Explored, seen: rd.Batch, tokens: pd.DataFrame
) -> None:
    cell = tokens[(tokens["sample"] == 35) & (tokens["round"] == 4)]
    assert explored.lab.value("ex.selection['diff'].tolist()") == pytest.approx(
        cell["diff"].tolist()
    )
    more = ["rollout_log_prob", "old_log_prob", "role", "text"]
    columns = explored.lab.value("ex.selection.columns.tolist()")
    assert columns == [*tokens.columns, *more]
    log_probs = "ex.selection[['old_log_prob', 'rollout_log_prob']]"
    diff = f"({log_probs} @ [1, -1]).tolist()"
    assert explored.lab.value(diff) == pytest.approx(cell["diff"].tolist(), abs=1e-6)
    (row,) = explored.lab.value("ex.selected_rounds.values.tolist()")
    rounds = rd.round_frame(seen)
    is_cell = (rounds["sample"] == 35) & (rounds["round"] == 4)
    assert [row] == rounds[is_cell].to_numpy().tolist()


def test_a_selection_that_is_set_is_a_box_on_the_page(explored: Explored) -> None:
    run(
        explored,
        "frame = rd.round_frame(ex.batch);"
        "ex.selection = frame[frame['sample'].isin([33, 18]) & (frame['round'] == 2)]",
    )
    assert explored.state["cells"] == {"samples": [18, 33], "rounds": [2, 2]}
    boxes = explored.find(".rdx-cell-box:visible")
    expect(boxes).to_have_count(1)
    expect(explored.find(".rdx-chosen")).to_contain_text("selected: 2 rounds,")
    run(explored, "ex.state = {'order': 'sample'}")
    expect(boxes).to_have_count(2)


def test_selected_rounds_can_be_set(explored: Explored) -> None:
    run(explored, "ex.selected_rounds = rd.round_frame(ex.batch).iloc[[2, 4]]")
    frame = "rd.round_frame(ex.batch).iloc[[2, 4]][['sample', 'round']].values.tolist()"
    assert explored.lab.value(frame) == [[1, 0], [2, 1]]
    expect(explored.find(".rdx-chosen")).to_contain_text("selected: 3 rounds,")
    assert explored.lab.value("len(ex.selected_rounds)") == 3


def test_the_current_token_is_set_and_the_page_goes_there(explored: Explored) -> None:
    assert explored.lab.value("ex.current") == {"sample": 35, "round": 4, "token": 3}
    run(explored, "ex.current = {'sample': 6, 'round': 5, 'token': 2}")
    explored.is_at(6, 5, 2)
    run(explored, "ex.current = {'sample': 7}")
    explored.is_at(7, 0, 0)


def test_a_part_of_the_state_is_set_and_the_page_follows(explored: Explored) -> None:
    run(
        explored,
        "ex.state = {'metric': 'diff', 'threshold': 0.5, 'order': 'reward',"
        " 'filter': {'round': {'from': 2, 'to': 3}}}",
    )
    expect(explored.node.get_by_role("radio", name="signed")).to_be_checked()
    expect(explored.field("threshold")).to_have_value("0.5")
    expect(explored.field("order")).to_have_value("reward")
    expect(explored.find(".rdx-filter-chips")).to_contain_text("round: 2 to 3")
    assert explored.state["filter"]["round"] == {"from": 2, "to": 3}
    assert explored.lab.value("__import__('json').dumps(ex.state)")


@pytest.mark.parametrize(
    ("state", "wrong"),
    [
        ({"metric": "size"}, "metric"),
        ({"current": {"sample": 64}}, "current"),
        ({"a": "teacher"}, "teacher"),
        ({"filter": {"text": {"regex": "("}}}, "text"),
        ({"by": "colour"}, "colour"),
        ({"layers": {"ci": False}}, "plot_rounds"),
    ],
)
def test_a_wrong_state_is_an_error_and_changes_nothing(
    explored: Explored, state: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(RuntimeError, match=wrong):
        explored.lab.value(f"setattr(ex, 'state', {state!r})")
    assert explored.lab.value("ex.state == first") is True


def test_the_code_shows_the_same_again(explored: Explored) -> None:
    explored.node.get_by_role("radio", name="signed").check(force=True)
    explored.field("by").select_option("status")
    explored.press("n", "ArrowRight")
    waits_for(explored.lab, "ex.current['round']", 5)
    explored.rest()
    code = explored.lab.value("ex.to_code()")
    assert code.startswith(
        "import rounddiag as rd\n\nbatch = rd.load('faulty.parquet')"
    )
    run(
        explored,
        f"exec({code.replace('rd.explore(', 'again = rd.explore(')!r}, globals())",
    )
    assert explored.lab.value("again.state == ex.state") is True
    run(explored, "once = rd.explore(ex.batch, **ex.state)")
    assert explored.lab.value("once.state == ex.state") is True


def test_figures_are_those_that_are_seen(explored: Explored) -> None:
    run(explored, "ex.state = {'metric': 'diff', 'current': {'sample': 6}}")
    for name, label in (
        ("rounds", "Rounds"),
        ("heatmap", "Samples"),
        ("trajectory", "Tokens"),
    ):
        title = explored.lab.value(f"ex.figure({name!r}).layout.title.text")
        seen = (
            explored.figure(label)
            .locator(".rdx-plot")
            .evaluate("plot => plot.layout.meta.title")
        )
        assert title.split("<br>")[0] == f"<b>{seen}</b>"
    with pytest.raises(RuntimeError, match="'rounds', 'heatmap' or 'trajectory'"):
        explored.lab.value("ex.figure('tail')")


def test_functions_hear_of_every_choice(explored: Explored) -> None:
    run(
        explored, "heard = []; ex.on_select(lambda e: heard.append(e.current['round']))"
    )
    explored.press("n")
    waits_for(explored.lab, "heard", [5])
    explored.click(explored.heatmap, 2, explored.rows().index(35))
    waits_for(explored.lab, "heard", [5, 2])
    explored.drag(explored.heatmap, (2, 3), (4, 6))
    waits_for(explored.lab, "len(heard)", 3)
    run(explored, "heard.clear(); ex._callbacks.clear()")


def test_the_last_error_is_kept(explored: Explored) -> None:
    run(explored, "ex.on_select(lambda e: 1 / 0)")
    explored.press("n")
    expect(explored.find(".rdx-banner")).to_contain_text(
        "ZeroDivisionError: division by zero"
    )
    assert (
        explored.lab.value("repr(ex.last_error)")
        == "ZeroDivisionError('division by zero')"
    )
    run(explored, "ex._callbacks.clear()")
    explored.press("Escape")
    expect(explored.find(".rdx-banner")).to_be_hidden()


def test_with_closes_it(
    seen: rd.Batch, next_cells: Callable[..., AbstractContextManager[LabNotebook]]
) -> None:
    assert seen.num_samples
    shown_and_closed = (
        "with rd.explore('faulty.parquet') as other:\n"
        "    display(other)\n"
        "    was_shown = other._view is not None"
    )
    with next_cells("with.ipynb", CELLS[0], shown_and_closed) as lab:
        lab.run_all()
        assert lab.value("[was_shown, other._view is None]") == [True, True]
        expect(lab.page.locator(".rdx")).to_have_count(0)
        assert lab.errors == []


def test_a_closed_one_is_gone_and_still_answers(
    seen: rd.Batch, next_cells: Callable[..., AbstractContextManager[LabNotebook]]
) -> None:
    assert seen.num_samples
    with next_cells("closed.ipynb", *CELLS) as lab:
        lab.run_all()
        explorer(lab)
        lab.value("ex.close()")
        expect(lab.page.locator(".rdx")).to_have_count(0)
        assert lab.value("len(ex.selection)") == 18
        assert lab.errors == []
