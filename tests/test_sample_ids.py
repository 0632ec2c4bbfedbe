"""A sample goes by its number or its id at every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rounddiag as rd
from rounddiag.errors import FrameError
from tests.batches import hand_batch

BATCH = hand_batch(sample_ids=("x", "y", "z"), group_ids=("g", "g", "h"))
FRAME = rd.token_frame(BATCH, ["position", "rollout_log_prob", "old_log_prob"]).assign(
    sample_id=lambda rows: rows["sample"].map({0: "x", 1: "y", 2: "z"})
)


def current(sample: Any) -> dict[str, int]:
    """Open an explorer at a sample, go to another one and back."""
    with rd.explore(BATCH, current={"sample": sample}) as explorer:
        opened = explorer.current
        explorer.current = {"sample": 2}
        explorer.current = {"sample": sample}
        assert explorer.current == opened
        return opened


DOORS: dict[str, Callable[[Any], Any]] = {
    "trajectory": lambda one: rd.plot_trajectory(BATCH, sample=one),
    "trajectory of a frame": lambda one: rd.plot_trajectory(FRAME, sample=one),
    "text": lambda one: rd.token_text(BATCH, sample=one).html,
    "heatmap": lambda one: rd.plot_heatmap(BATCH, order=[one]),
    "explorer": current,
    "batch": lambda one: BATCH[one].log_probs("old").tolist(),
}


@pytest.mark.parametrize("door", DOORS)
def test_an_id_is_taken_for_the_number(door: str) -> None:
    assert DOORS[door]("y") == DOORS[door](1)
    assert DOORS[door]("y") != DOORS[door](0)


def test_a_run_reads_a_sample_by_its_id(tmp_path: Path) -> None:
    rd.save(BATCH, tmp_path / "step_3.parquet")
    run = rd.open_run(tmp_path)
    by_id, by_number = run.sample(3, "y"), run.sample(3, 1)
    assert by_id.log_probs("old").tolist() == by_number.log_probs("old").tolist()


def test_an_id_that_a_frame_lacks_is_an_error() -> None:
    with pytest.raises(FrameError, match="expected the id of one sample of the frame"):
        rd.plot_trajectory(FRAME, sample="w")
