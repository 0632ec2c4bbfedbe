"""The realistic steps, the places planted in them, and when a sentence names one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import rounddiag as rd
from tests.faults.place_kinds import FURTHER, KINDS, draw_place, is_named
from tests.faults.planted import Place, place_columns, plant, tokens_at
from tests.faults.step_texts import tokenizer
from tests.faults.steps import realistic_step, small_sets, variant_of

COORDINATES: Place = {"role": ("==", "coordinates"), "rank": ("==", 3)}


@pytest.fixture(scope="module")
def step() -> rd.Batch:
    return realistic_step(0, num_samples=16)


@pytest.fixture(scope="module")
def columns(step: rd.Batch) -> pd.DataFrame:
    return place_columns(step)


def test_a_step_has_rounds_of_a_thought_and_an_action(
    step: rd.Batch, columns: pd.DataFrame
) -> None:
    num_rounds = np.bincount(step.rounds.sample.numpy())
    assert num_rounds.min() >= 6
    assert num_rounds.max() <= 25
    roles = columns["role"].value_counts()
    per_round = roles / step.num_rounds
    assert 60 <= per_round["thought"] <= 100
    assert per_round["special"] == 1  # its end of turn
    digits = columns.loc[columns["role"] == "coordinates", "token_id"].unique()
    texts = [tokenizer().decode([int(i)]) for i in digits]
    assert sorted(texts) == [str(i) for i in range(10)]
    assert step.group_ids is not None
    assert len(set(step.group_ids)) == 2


def test_a_step_is_the_same_each_time_and_seeds_differ(step: rd.Batch) -> None:
    again = realistic_step(0, num_samples=16)
    assert bool((again.log_probs("old") == step.log_probs("old")).all())
    assert variant_of(0) != variant_of(4)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_level_is_that_of_the_variant_and_noise_follows_probability(
    seed: int,
) -> None:
    frame = place_columns(realistic_step(seed, num_samples=8))
    size = frame["diff"].abs().to_numpy()
    assert size.mean() == pytest.approx(variant_of(seed).level, rel=0.1)
    unlikely = 1 - np.exp(frame["rollout_log_prob"].to_numpy())
    sure = size[unlikely < 0.01].mean()
    unsure = size[(unlikely > 0.1) & (unlikely < 0.3)].mean()
    assert unsure > 10 * sure


def test_strengths(step: rd.Batch, columns: pd.DataFrame) -> None:
    inside = tokens_at(columns, COORDINATES)
    before = columns["diff"].to_numpy()
    for strength in ("weak", "rare", "all"):
        planted, affected, truth = plant(
            step, COORDINATES, strength, 0, columns=columns
        )
        after = rd.token_frame(planted)["diff"].to_numpy()
        assert truth == COORDINATES
        assert (after[~affected] == before[~affected]).all()
        assert inside[affected].all()
        if strength == "weak":
            near = affected & (np.abs(before) < 0.01) & (np.abs(before) > 1e-4)
            ratio = after[near] / before[near]
            assert np.median(ratio) == pytest.approx(3, rel=0.02)
        else:
            assert np.abs(after[affected]).min() > 0.7 - 1e-5
            assert np.abs(after[affected]).max() < 3 + 1e-5
        share = affected.sum() / inside.sum()
        assert share == pytest.approx(0.05 if strength == "rare" else 1, abs=0.04)


def test_places_count_from_both_ends(columns: pd.DataFrame) -> None:
    last = tokens_at(columns, {"tokens_left": ("<", 1)})
    assert set(columns.loc[last, "role"]) == {"special"}
    final = tokens_at(columns, {"rounds_left": ("==", 0), "tokens_left": ("<", 1)})
    assert columns.loc[final, "sample"].tolist() == list(range(16))


@pytest.mark.parametrize("kind", [*KINDS, *FURTHER])
def test_every_kind_has_tokens_in_a_small_step(
    kind: str, columns: pd.DataFrame
) -> None:
    place = draw_place(kind, 0, columns)
    assert len(place) == len({**KINDS, **FURTHER}[kind])


def test_small_sets_are_neighbours_and_drawn_samples(step: rd.Batch) -> None:
    first, second = small_sets(step, 3, 2, 0)
    assert first.num_samples == second.num_samples == 3
    assert first.sample_ids is not None
    numbers = [int(name.rpartition("/")[2]) for name in first.sample_ids]
    assert np.diff(numbers).tolist() in ([1, 1], [1, -7], [-7, 1])


@pytest.mark.parametrize(
    ("text", "condition", "named"),
    [
        ("all are coordinate tokens", ("role", "==", "coordinates"), True),
        ("all typed text, in 3 samples", ("role", "==", "typed text"), True),
        ("all on rank 3, from round 5 on", ("rank", "==", 3), True),
        ("in 8 of 64 samples (`rank` = 3)", ("rank", "==", 3), True),
        ("all on rank 13", ("rank", "==", 3), False),
        ("in 3 of 64 samples", ("rank", "==", 3), False),
        ("weight version 411", ("weight_version", "==", 411), True),
        ("(`weight_version` = 411)", ("weight_version", "==", 411), True),
        ("from round 5 on", ("round", ">=", 5), True),
        ("none before round 5", ("round", ">=", 5), True),
        ("from round 5 on", ("round", ">=", 6), False),
        ("up to round 2", ("round", "<=", 2), True),
        ("in rounds 0 to 2", ("round", "<=", 2), True),
        ("in the first three rounds", ("round", "<=", 2), True),
        ("in round 0", ("round", "<=", 0), True),
        ("in rounds 0 to 3", ("round", "<=", 2), False),
        ("repetition_penalty: set it to 1", ("round", "<=", 1), False),
        ("the first 4 tokens of rounds", ("token", "<", 4), True),
        ("the first four tokens of rounds", ("token", "<", 4), True),
        ("the first 4 generated tokens", ("token", "<", 5), False),
        ("the last 4 tokens of rounds", ("tokens_left", "<", 4), True),
        ("in the last round", ("rounds_left", "==", 0), True),
        ("application writer", ("application", "==", "writer"), True),
        ("a rewriter", ("application", "==", "writer"), False),
    ],
)
def test_a_condition_is_named(
    text: str, condition: tuple[str, str, object], named: bool
) -> None:
    assert is_named(text, *condition) is named


def test_a_token_is_named_by_its_text_or_id() -> None:
    digit = tokenizer().encode("8").ids[0]
    (screen,) = tokenizer().encode(" screen").ids
    assert is_named('all "8"', "token_id", "==", digit)
    assert is_named(f"token id {digit}", "token_id", "==", digit)
    assert not is_named("in 8 of 64 samples", "token_id", "==", digit)
    assert is_named("all are the token screen", "token_id", "==", screen)
    assert not is_named("screenshots", "token_id", "==", screen)
