"""The explorer of a run: its line of steps, and what a change of step keeps."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import rounddiag as rd
from rounddiag.errors import FrameError, LoadError
from rounddiag.runs import run_in
from rounddiag.widgets.steps import StepLine
from tests.runs.step_folders import MEANS, scaled_batch, write_steps

if TYPE_CHECKING:
    from pathlib import Path

    from rounddiag.widgets import Explorer

# |diff| of the hand-made batch: 0.5, 0.25 | 0, 0.25, 0.5 | 1 in round 0, 1 | 2 in
# round 1: 5.5 over 8 tokens.
MEAN = (6 * MEANS[0] + 2 * MEANS[1]) / 8


def named(step: int, ids: str, groups: str | None = None) -> rd.Batch:
    """The hand-made batch with a letter as the id of each sample."""
    group_ids = None if groups is None else tuple(groups)
    return replace(scaled_batch(step), sample_ids=tuple(ids), group_ids=group_ids)


def opened(folder: Path, *batches: rd.Batch, **state: Any) -> Explorer:
    for batch in batches:
        rd.save(batch, folder / f"step_{batch.step}.parquet")
    return rd.explore(rd.open_run(folder), **state)


def test_a_folder_of_steps_is_opened_as_a_run(tmp_path: Path) -> None:
    with rd.explore(write_steps(tmp_path, {0: 1, 3: 2})) as explorer:
        assert explorer.step == 3
        assert explorer.state["step"] == 3
    with rd.explore(write_steps(tmp_path / "one", {7: 1})) as explorer:
        assert "step" not in explorer.state  # a batch
    (tmp_path / "run").mkdir()
    text = '{"messages": [{"role": "assistant", "content": "a"}]}\n'
    (tmp_path / "run" / "train_rollouts.jsonl").write_text(text)
    assert run_in(tmp_path / "run") is None
    assert run_in(tmp_path / "run" / "train_rollouts.jsonl") is None


def test_the_line_has_the_mean_of_each_step(tmp_path: Path) -> None:
    line = StepLine(rd.open_run(write_steps(tmp_path, {0: 1, 10: 2, 20: 4})), 10)
    payload = line.payload()
    assert payload["steps"] == [0, 10, 20]
    assert payload["means"] == pytest.approx([MEAN, 2 * MEAN, 4 * MEAN])
    assert (payload["now"], payload["marks"]) == (10, [])


def test_a_run_opens_where_rounds_change_else_at_its_last_step(tmp_path: Path) -> None:
    flat = rd.open_run(write_steps(tmp_path / "flat", {1: 1, 2: 1}))
    assert StepLine(flat).step == 2
    factors = {step: 1.0 if step < 15 else 20.0 for step in range(1, 31)}
    broken = StepLine(rd.open_run(write_steps(tmp_path / "broken", factors)))
    assert broken.step == 15
    (mark,) = broken.payload()["marks"]
    steps, raised = broken.payload()["steps"], broken.payload()["raised"]
    assert [step for step, is_up in zip(steps, raised, strict=True) if is_up] == [
        step for step in steps if step > mark["at"]
    ]
    assert mark["at"] == 14.5
    assert mark["text"].startswith("from step 15: rounds 0 to 1, ")


def test_a_fact_that_changes_is_a_mark(tmp_path: Path) -> None:
    for step in (1, 2):
        batch = replace(scaled_batch(step), meta={"facts": {"vllm": step}})
        rd.save(batch, tmp_path / f"step_{step}.parquet")
    (mark,) = StepLine(rd.open_run(tmp_path)).payload()["marks"]
    assert mark == {"at": 1.5, "text": "from step 2: vllm changes from 1 to 2"}


def test_another_step_shows_the_sample_of_the_same_id(tmp_path: Path) -> None:
    place = {"sample": 1, "round": 0, "token": 0}
    explorer = opened(
        tmp_path, named(1, "xyz"), named(2, "zxy"), step=1, metric="diff", current=place
    )
    explorer.step = 2
    assert explorer.batch.step == explorer.step == 2
    assert explorer.state["metric"] == "diff"
    # `y` is sample 2 there; the worst token of its round 0 is the only one.
    assert explorer.current == {"sample": 2, "round": 0, "token": 0}
    assert not explorer.state["cells"]


def test_of_another_draw_it_shows_a_sample_of_the_same_task(tmp_path: Path) -> None:
    explorer = opened(
        tmp_path,
        named(1, "abc", "ssu"),
        named(2, "def", "tus"),
        named(3, "ghi", "vvw"),
        step=1,
        current={"sample": 0, "round": 1},
    )
    explorer.step = 2
    # Sample 2 is of task `s`; it has one round.
    assert (explorer.current["sample"], explorer.current["round"]) == (2, 0)
    explorer.step = 3
    # None is of its task: the place at which the batch alone opens.
    assert explorer.current == rd.explore(explorer.batch).current


def test_choices_that_a_step_does_not_offer_are_given_up(tmp_path: Path) -> None:
    first = scaled_batch(1)
    first = replace(first, scores={"ref": torch.zeros_like(first.log_probs("old"))})
    explorer = opened(tmp_path, first, scaled_batch(2), step=1, a="ref", metric="diff")
    explorer.state = {"filter": {"round": [0]}}
    explorer.step = 2
    assert (explorer.state["a"], explorer.state["metric"]) == ("old", "diff")


def test_the_state_and_the_code_have_the_step(tmp_path: Path) -> None:
    explorer = opened(tmp_path, scaled_batch(1), scaled_batch(2), step=1)
    assert explorer.state["step"] == 1
    explorer.state = {"step": 2, "metric": "diff"}
    code = explorer.to_code()
    assert f"run = rd.open_run({str(tmp_path)!r})" in code
    assert "rd.explore(run, step=2, metric='diff', current=" in code
    again = rd.explore(rd.open_run(tmp_path), **explorer.state)
    assert again.state == explorer.state


def test_the_page_gets_the_line_with_what_it_draws(tmp_path: Path) -> None:
    explorer = opened(tmp_path, scaled_batch(1), scaled_batch(2), step=1)
    reply: Any = explorer._handle("overview", {"theme": "light"}, [])
    assert (reply["steps"]["now"], reply["head"]["step"]) == (1, 1)
    reply = explorer._handle("step", {"step": 2, "theme": "light"}, [])
    assert (reply["steps"]["now"], reply["head"]["step"]) == (2, 2)
    assert explorer.step == 2
    alone: Any = rd.explore(scaled_batch(1))._handle("overview", {"theme": "dark"}, [])
    assert "steps" not in alone


def test_a_step_that_does_not_exist_changes_nothing(tmp_path: Path) -> None:
    explorer = opened(tmp_path, scaled_batch(1), scaled_batch(2), step=1)
    with pytest.raises(LoadError, match="`step`: expected one of the steps 1, 2"):
        explorer.step = 7
    assert (explorer.step, explorer.batch.step) == (1, 1)
    with pytest.raises(LoadError, match="expected one of the steps"):
        rd.explore(rd.open_run(tmp_path), step=7)
    with pytest.raises(FrameError, match="`step`: expected a run"):
        rd.explore(scaled_batch(1)).step = 2


def test_steps_that_are_written_meanwhile_are_sent(tmp_path: Path) -> None:
    run = rd.open_run(write_steps(tmp_path, {1: 1}))
    line = StepLine(run)
    sent: list[Any] = []
    line.follow(lambda name, **facts: sent.append((name, facts)), every=0.01)
    write_steps(tmp_path, {2: 3})
    end = time.monotonic() + 60
    while not sent and time.monotonic() < end:
        time.sleep(0.01)
    line.close()
    assert run.refresh() == (2,)  # it is new for others too
    name, facts = sent[0]
    assert name == "steps"
    assert facts["steps"]["steps"] == [1, 2]
    assert facts["steps"]["means"] == pytest.approx([MEAN, 3 * MEAN])


def test_a_closed_explorer_looks_for_nothing(tmp_path: Path) -> None:
    line = StepLine(rd.open_run(write_steps(tmp_path, {1: 1})))
    sent: list[Any] = []
    before = threading.active_count()
    line.follow(lambda name, **facts: sent.append((name, facts)), every=0.01)
    line.follow(lambda name, **facts: sent.append((name, facts)), every=0.01)
    assert threading.active_count() == before + 1
    line.close()
    end = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before
    write_steps(tmp_path, {2: 3})
    assert sent == []
