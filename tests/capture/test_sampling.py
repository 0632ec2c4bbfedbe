from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.capture import Recorder
from rounddiag.capture.sampling import SampleOrder, mean_abs_diffs, order_samples
from rounddiag.capture.trainer_batch import read_trainer_batch
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import IMAGE, inputs


def fields(sizes: list[float], *, pictures: bool = False) -> dict[str, Any]:
    """One round a sample, with this |diff| at each of its tokens."""
    size = torch.tensor(sizes)[:, None]
    ids = torch.tensor([[IMAGE] * 8 + [5, 6]]).expand(len(sizes), -1)
    mask = (ids != IMAGE).long()
    found = {
        "responses": ids,
        "response_mask": mask,
        "rollout_log_probs": -torch.ones(ids.shape),
        "old_log_probs": -1 - size * mask,
    }
    rows = {"multi_modal_inputs": [inputs(0.0) for _ in sizes]}
    return {**found, **(rows if pictures else {})}


def record(folder: Path, data: dict[str, Any], **options: Any) -> Batch:
    with Recorder(folder, **options) as recorder:
        recorder.step(0, data)
    assert recorder.errors == 0
    return load_parquet(folder / "step_0.parquet")


def test_the_mean_of_a_sample_is_over_its_generated_finite_tokens() -> None:
    data = {
        "responses": torch.zeros(4, 3, dtype=torch.int64),
        "response_mask": torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0], [0, 0, 0]]),
        "rollout_log_probs": torch.zeros(4, 3),
        "old_log_probs": torch.tensor(
            [[-1.0, 9, -2], [-1, torch.nan, -3], [-torch.inf, 9, 9], [9, 9, 9]]
        ),
    }
    batch = read_trainer_batch(data)
    means = mean_abs_diffs(batch, np.arange(4))
    assert means.tolist() == [1.5, 2.0, -1.0, -1.0]
    # Of 1, 2, 1 and 3 nats, and of none that is finite.
    assert mean_abs_diffs(batch, np.array([1, 1, 0, 0])).tolist() == [-1.0, 1.75]


@given(st.integers(0, 20), st.integers(0, 30), st.integers(0, 30))
def test_half_are_drawn_and_half_are_the_worst_of_the_others(
    num_samples: int, num: int, more: int
) -> None:
    order = SampleOrder(
        random=np.random.default_rng(num).permutation(num_samples),
        worst=np.arange(num_samples)[::-1],
        trajectory=np.arange(num_samples),
    )
    picked = order.pick(num)
    drawn = {sample for sample, why in picked.items() if why == "random"}
    worst = {sample for sample, why in picked.items() if why == "worst"}
    assert len(picked) == min(num, num_samples) or num > num_samples
    assert drawn == set(order.random[: (num + 1) // 2].tolist())
    others = [s for s in range(num_samples - 1, -1, -1) if s not in drawn]
    assert worst == set(others[: num // 2])
    assert {*picked} <= {*order.pick(num + more)}  # what is shown is what is kept


def test_the_draw_depends_on_seed_and_step_and_not_on_the_numbers() -> None:
    one, other = (
        read_trainer_batch(fields(sizes)) for sizes in ([0.0] * 50, [1.0] * 50)
    )
    draws = [
        order_samples(part, seed).random.tolist()
        for part, seed in (
            (one, (0, 10)),
            (other, (0, 10)),
            (one, (0, 20)),
            (one, (1, 10)),
        )
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2] != draws[3] != draws[0]


def test_samples_that_are_shown_say_why(tmp_path: Path) -> None:
    data = fields([0.25, 0.0, 0.5, 0.0, 0.0, 0.125], pictures=True)
    batch = record(tmp_path, data, images=4, seed=1)
    why = batch.sample_columns["picked"].tolist()
    assert sorted(why) == ["", "", "random", "random", "worst", "worst"]
    worst = [
        size
        for size, w in zip([0.25, 0, 0.5, 0, 0, 0.125], why, strict=True)
        if w == "worst"
    ]
    assert max(worst) == max(
        size
        for size, w in zip([0.25, 0, 0.5, 0, 0, 0.125], why, strict=True)
        if w != "random"
    )
    assert [len(row) for row in batch.images] == [int(w != "") for w in why]
    assert [(s.round, s.position) for row in batch.images for s in row] == [(0, 0)] * 4


def test_the_worst_is_shown_whatever_was_drawn(tmp_path: Path) -> None:
    for seed in range(5):
        data = fields([0.0] * 7 + [1.0], pictures=True)
        batch = record(tmp_path, data, images=2, seed=seed)
        assert len(batch.images[7]) == 1


@pytest.mark.parametrize("number", [0, 2, 8])
def test_screenshots_for_a_proof_are_kept_as_the_model_saw_them(
    tmp_path: Path, number: int
) -> None:
    data = fields([0.25, 0.0, 0.5, 0.0, 0.0, 0.125], pictures=True)
    batch = record(tmp_path, data, images=4, prove_samples=number)
    kept = [shots[0] for shots in batch.images if shots]
    assert sum(not shot.is_lossy for shot in kept) == min(number, 4)
    assert all(shot.size == shot.seen_size for shot in kept if not shot.is_lossy)
    (found,) = [one for one in rd.check(batch) if "as the model saw" in one.name]
    assert found.status == ("passed" if number else "not testable")


def test_trajectories_are_picked_whole_and_as_many_as_the_file_has_room_for() -> None:
    # Trajectory 0 has the samples 0, 2 and 5; trajectory 1 has 1; trajectory 2 others.
    trajectory = np.array([0, 1, 0, 2, 2, 0])
    order = SampleOrder(
        random=np.array([1, 0, 2]), worst=np.array([2, 1, 0]), trajectory=trajectory
    )
    assert order.pick(1) == {1: "random"}
    assert order.pick(2) == {1: "random", 3: "worst", 4: "worst"}
    assert order.pick(3) == dict.fromkeys([0, 1, 2, 5], "random") | {
        3: "worst",
        4: "worst",
    }
    rooms = [order.first(room).samples for room in (1, 3, 4, 5, 6)]
    assert rooms == [[1], [1], [1, 0, 2, 5], [1, 0, 2, 5], [1, 0, 2, 5, 3, 4]]
    larger = SampleOrder(random=order.worst, worst=order.worst, trajectory=trajectory)
    assert larger.first(1).samples == [3, 4]  # at least a trajectory


@pytest.mark.parametrize("seed", range(3))
def test_all_steps_of_a_trajectory_are_shown_or_none(tmp_path: Path, seed: int) -> None:
    data = fields([0.0, 0.0, 0.25, 0.0, 0.5, 0.0, 0.0, 0.0], pictures=True)
    names = [*"abcdabcd"]  # the mean |diff| of a is largest
    batch = record(tmp_path, {**data, "traj_uid": names}, images=2, seed=seed)
    assert batch.images is not None
    shown = {name for name, shots in zip(names, batch.images, strict=True) if shots}
    why = batch.sample_columns["picked"].tolist()
    assert "a" in shown
    assert len(shown) == 2
    assert sum(map(bool, why)) == sum(map(bool, batch.images)) == 4


def test_no_screenshots_when_none_are_asked_for(tmp_path: Path) -> None:
    batch = record(tmp_path, fields([1.0, 2.0], pictures=True), images=0)
    assert batch.images is None
    assert batch.sample_columns["picked"].tolist() == ["", ""]


def test_long_texts_are_kept_of_the_samples_that_are_shown(tmp_path: Path) -> None:
    data = fields([0.0, 0.0, 1.0, 2.0])
    data["task"] = ["x" * 101, "x" * 101, "short", "y" * 101]
    data["agent"] = ["a", "b", "c", "d"]
    batch = record(tmp_path, data, images=2)
    why = batch.sample_columns["picked"].tolist()
    assert why.count("") == 2
    kept = zip(data["task"], why, strict=True)
    assert batch.sample_columns["task"].tolist() == [t if w else None for t, w in kept]
    assert batch.sample_columns["agent"].tolist() == ["a", "b", "c", "d"]
    assert batch.meta["capture"]["texts_of_shown_samples_only"] == ["task"]


def test_pictures_that_are_too_many_to_copy_are_counted(
    tmp_path: Path, monkeypatch: Any
) -> None:
    picture_bytes = 32 * 3 * 14 * 14 * 2  # bytes of one picture: one frame, in bfloat16
    monkeypatch.setattr(
        "rounddiag.capture.snapshot._MAX_PIXEL_BYTES", 2 * picture_bytes
    )
    batch = record(tmp_path, fields([0.0, 1.0, 2.0], pictures=True))
    assert sum(len(row) for row in batch.images) == 2
    assert len(batch.images[2]) == 1
    assert batch.meta["capture"]["num_samples_without_room_for_pixels"] == 1
