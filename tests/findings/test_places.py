"""Places of small batches: rounds, steps, samples, columns; what is said of them."""

from __future__ import annotations

import subprocess
import sys
from math import comb

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.findings import View
from rounddiag.findings.common_values import overlap_chances
from tests.findings.small import LENGTH, TOKENS, arrays, made, rounds_of, shaken

FAULT = 0.3


def test_sound_samples_have_no_pattern() -> None:
    for seed in range(6):
        diagnosis = rd.diagnose(made(arrays(seed=seed)))
        assert diagnosis.verdict == "healthy"
        assert len(diagnosis) == 0


def test_rare_tokens_that_differ_more_are_no_pattern() -> None:
    # Later rounds have lower log-probs, and noise grows with them in all rounds alike.
    parts = arrays(noise=0)
    scale = 1 + 2 * rounds_of(parts)
    rng = np.random.default_rng(3)
    parts["rollout"] = parts["rollout"] * scale
    noise = rng.normal(0, 0.003, scale.shape)
    parts["old"] = np.minimum(parts["rollout"] * (1 + noise), 0)
    assert len(rd.diagnose(made(parts))) == 0


@pytest.mark.parametrize("onset", [1, 2, 3])
def test_a_step_at_a_round_is_found_at_that_round(onset: int) -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= onset, FAULT)
    first = rd.diagnose(made(parts))[0]
    assert (first.kind, first.cause) == ("place", "unknown")
    assert first.where["rounds_from"] == onset
    assert first.tokens()["round"].min() == onset
    assert first.share > 0.8


def test_with_images_a_later_onset_is_a_window() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, FAULT)
    columns = {
        "sample": np.repeat(np.arange(32), 4),
        "round": np.tile(np.arange(4), 32),
        "num_images": np.tile(np.arange(1, 5), 32),
    }
    first = rd.diagnose(made(parts, round_columns=columns))[0]
    assert "image_window" in map(str, first.candidates)


def test_a_rank_is_named_with_its_samples() -> None:
    parts = arrays()
    rank = np.arange(32) % 4
    shaken(parts, (rank == 3)[:, None] & (parts["mask"] > 0), 3 * FAULT)
    diagnosis = rd.diagnose(made(parts, sample_columns={"rank": rank}))
    first = diagnosis[0]
    assert "bad_worker" in map(str, first.candidates)
    assert first.samples.tolist() == [3, 7, 11, 15, 19, 23, 27, 31]
    assert diagnosis.headline.endswith(": all of them on rank 3, in 8 of 32 samples.")


def test_all_is_said_of_all_large_tokens_alone() -> None:
    parts = arrays(64)
    rank = np.arange(64) % 4
    shaken(parts, (rank == 3)[:, None] & (parts["mask"] > 0), 8 * FAULT)
    parts["old"][0, 3] = parts["rollout"][0, 3] - 2  # on rank 0
    size = np.abs(parts["old"] - parts["rollout"])[parts["mask"] > 0]
    num = int((size > np.log(2)).sum())
    assert (num - 1) / num > 0.995
    headline = rd.diagnose(made(parts, sample_columns={"rank": rank})).headline
    text = f"{num} tokens differ by more than a factor of 2: {num - 1} of them on rank"
    assert headline.startswith(f"{text} 3, in 16 of 64 samples")


def test_a_block_of_neighbours_without_a_column() -> None:
    parts = arrays()
    block = np.isin(np.arange(32), np.arange(8, 16))
    shaken(parts, block[:, None] & (parts["mask"] > 0), FAULT)
    first = rd.diagnose(made(parts))[0]
    assert "bad_worker" in map(str, first.candidates)
    assert first.samples.tolist() == list(range(8, 16))


def test_all_but_every_fourth_sample_is_a_pack() -> None:
    parts = arrays()
    late = np.arange(32) % 4 != 0
    shaken(parts, late[:, None] & (parts["mask"] > 0), FAULT)
    first = rd.diagnose(made(parts))[0]
    assert "packing_leak" in map(str, first.candidates)
    assert first.where["place"].text == "in all samples but every 4th"


def test_samples_that_turn_at_one_decoding_step() -> None:
    parts = arrays()
    place = np.broadcast_to(np.arange(LENGTH), parts["mask"].shape)
    shaken(parts, place >= 33, FAULT)
    first = rd.diagnose(made(parts))[0]
    (condition,) = first.where["place"].conditions
    # Position 33 is the 30th generated token: three of the first gap are not.
    assert condition.column == "decoding_step"
    assert condition.value == pytest.approx(30, abs=3)


def test_whole_groups_that_turn_at_places_of_their_own() -> None:
    parts = arrays(48)
    turn = np.full(48, LENGTH)
    turn[8:12], turn[30:32], turn[28:30] = 25, 50, 50
    place = np.broadcast_to(np.arange(LENGTH), parts["mask"].shape)
    shaken(parts, place >= turn[:, None], FAULT)
    groups = tuple(str(i // 4) for i in range(48))
    first = rd.diagnose(made(parts, group_ids=groups))[0]
    assert "decode_path" in map(str, first.candidates)
    assert first.samples.tolist() == [8, 9, 10, 11, 28, 29, 30, 31]


def test_decoding_steps_count_generated_tokens_of_the_sample() -> None:
    view = View.from_batch(made(arrays(2)))
    assert view.num_before.tolist() == [*range(4 * TOKENS)] * 2


@pytest.mark.parametrize(
    "case", [(2, 2, 2, 4), (1, 3, 5, 9), (0, 3, 5, 9), (40, 50, 60, 64), (7, 7, 9, 900)]
)
def test_the_chance_of_an_overlap_is_hypergeometric(
    case: tuple[int, int, int, int],
) -> None:
    smallest, size, other, num = case
    exact = sum(
        comb(size, k) * comb(num - size, other - k) for k in range(smallest, size + 1)
    )
    chance = overlap_chances(size, other, num)[smallest]
    assert chance == pytest.approx(exact / comb(num, other), rel=1e-9)


def test_a_diagnosis_imports_no_statistics_of_scipy() -> None:
    code = (
        "import sys, rounddiag as rd; rd.diagnose('sample_data/image_window.parquet');"
        " sys.exit('scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
