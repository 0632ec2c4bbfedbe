"""Places planted in a small realistic step: the sentence names what was planted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import rounddiag as rd
from rounddiag.findings.conditions import columns_of_tokens
from rounddiag.findings.view import View
from tests.faults.place_kinds import is_named
from tests.faults.planted import Place, place_columns, plant
from tests.faults.steps import realistic_step, small_sets

SOUND = ("identical", "healthy", "noisy")


@pytest.fixture(scope="module")
def step() -> rd.Batch:
    return realistic_step(1, num_samples=32)


@pytest.fixture(scope="module")
def columns(step: rd.Batch) -> pd.DataFrame:
    return place_columns(step)


@pytest.mark.parametrize(
    ("place", "strength"),
    [
        ({"role": ("==", "coordinates")}, "rare"),
        ({"rank": ("==", 3)}, "weak"),
        ({"round": (">=", 6)}, "weak"),
        ({"token": ("<", 4)}, "all"),
        ({"token": ("<", 5)}, "weak"),
        ({"rank": ("==", 7), "token": ("<", 2)}, "all"),
        ({"tokens_left": ("<", 6)}, "rare"),
        ({"round": ("<=", 3)}, "weak"),
        ({"role": ("==", "coordinates"), "rank": ("==", 5), "round": (">=", 4)}, "all"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_the_sentence_names_what_was_planted(
    place: Place, strength: str, step: rd.Batch, columns: pd.DataFrame
) -> None:
    planted, _, truth = plant(step, place, strength, 0, columns=columns)
    diagnosis = rd.diagnose(planted)
    assert diagnosis.verdict not in SOUND, diagnosis.text
    missed = [k for k, v in truth.items() if not is_named(diagnosis.text, k, *v)]
    assert not missed, diagnosis.text


def test_nothing_planted_is_healthy(step: rd.Batch) -> None:
    diagnosis = rd.diagnose(step)
    assert diagnosis.verdict in SOUND, diagnosis.text


@pytest.mark.parametrize("size", [2, 4])
def test_few_samples_of_a_sound_step_are_no_fault(step: rd.Batch, size: int) -> None:
    for few in small_sets(step, size, 4, 0):
        diagnosis = rd.diagnose(few)
        assert diagnosis.verdict in SOUND, diagnosis.text


def test_the_headline_counts_every_token_in_the_order_of_speech(
    step: rd.Batch, columns: pd.DataFrame
) -> None:
    place: Place = {
        "role": ("==", "coordinates"),
        "rank": ("==", 3),
        "round": (">=", 5),
    }
    planted, affected, _ = plant(step, place, "all", 0, columns=columns)
    num_samples = columns.loc[affected, "sample"].nunique()
    diagnosis = rd.diagnose(planted)
    assert diagnosis.headline == (
        f"{affected.sum()} tokens differ by more than a factor of 2: all of them "
        f"coordinates, on rank 3, from round 5 on, in {num_samples} of 32 samples."
    )
    assert len(diagnosis.headline.split()) <= 30
    assert diagnosis.verdict == "suspicious"
    places = rd.places(planted)
    assert places["conditions"].iloc[0] == "coordinates, on rank 3, from round 5 on"
    assert places["num_large"].iloc[0] == affected.sum()


def test_rows_of_a_selection_are_no_condition(step: rd.Batch) -> None:
    half = step.where(np.arange(32) % 2 == 0)
    names = {column.name for column in columns_of_tokens(View.from_batch(half))}
    assert "rank" in names
    assert "original_sample" not in names
