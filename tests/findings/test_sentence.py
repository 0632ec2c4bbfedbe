"""The headline of ten faults: it says what was planted, in at most 40 plain words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.findings.place import Place
from tests.findings.small import LENGTH, TOKENS, arrays, made, shaken

NUM = 32
PLACE = np.broadcast_to(np.arange(LENGTH), (NUM, LENGTH))
TOKEN = PLACE % 23
ROW = np.arange(NUM)[:, None] + 0 * PLACE
RANK = np.arange(NUM) % 4


def shake(where: Any, scale: float = 0.9, **columns: Any) -> rd.Batch:
    """Return sound samples that differ somewhere."""
    parts = arrays(NUM)
    shaken(parts, where, scale)
    return made(parts, **columns)


def shift() -> rd.Batch:
    """Return samples of which eight have log-probs of the next token."""
    parts = arrays(NUM)
    parts["rollout"][:8, :-1] = parts["rollout"][:8, 1:].copy()
    return made(parts)


def fill() -> rd.Batch:
    """Return samples with a log-prob of 0 at 40 unlikely tokens."""
    parts = arrays(NUM)
    unlikely = np.argwhere((parts["rollout"] < -2) & (parts["mask"] > 0))[:40]
    parts["rollout"][tuple(unlikely.T)] = 0
    return made(parts)


def copy() -> rd.Batch:
    """Return samples whose last four are the first."""
    parts = arrays(NUM)
    for values in parts.values():
        values[28:] = values[0]
    return made(parts)


def punch() -> rd.Batch:
    """Return samples in each of which a token was masked inside of round 1."""
    parts = arrays(NUM)
    parts["mask"][:, 30] = 0
    return made(parts)


def lose() -> rd.Batch:
    """Return samples with five log-probs that are NaN."""
    parts = arrays(NUM)
    parts["rollout"][3, 2:7] = np.nan
    return made(parts)


def heat() -> rd.Batch:
    """Return samples scored at another temperature, of two ids a token."""
    parts = arrays(NUM)
    rng, shape = np.random.default_rng(4), parts["mask"].shape
    odds = rng.normal(0, 2, shape)
    first = rng.random(shape) < 1 / (1 + np.exp(-odds))
    signed = np.where(first, odds, -odds)
    parts["rollout"] = -np.log1p(np.exp(-signed)) * parts["mask"]
    parts["old"] = -np.log1p(np.exp(-signed / 2)) * parts["mask"]
    return made(parts)


# What is planted, and what the headline has to say of it.
FAULTS: dict[str, tuple[Callable[[], rd.Batch], tuple[str, ...]]] = {
    "rank": (
        lambda: shake(
            (RANK == 3)[:, None] & (PLACE >= 0), sample_columns={"rank": RANK}
        ),
        ("all of them on rank 3", "in 8 of 32 samples"),
    ),
    "round": (lambda: shake(PLACE // 23 >= 2), ("from round 2 on",)),
    "start": (lambda: shake(TOKEN < 4, 0.3), ("in the first 4 tokens of rounds",)),
    "block": (lambda: shake(ROW // 8 == 1, 0.3), ("8 to 15 (8 of 32 samples)",)),
    "shift": (shift, ("more than a factor of 2", "in 8 of 32 samples")),
    "fill": (fill, ("40 tokens whose rollout log-prob is exactly 0",)),
    "copy": (copy, ("4 of 32 samples are copies of another",)),
    "punch": (punch, ("32 tokens masked between two of a round, in 32 samples",)),
    "lose": (lose, ("5 tokens whose rollout log-prob is NaN, in 1 sample",)),
    "heat": (heat, ("All tokens are affected",)),
}


def test_samples_of_a_place_are_those_of_the_tokens_it_counts() -> None:
    few = np.random.default_rng(0).random((NUM, LENGTH)) < 0.02
    batch = shake((RANK >= 2)[:, None] & few, 0.4, sample_columns={"rank": RANK // 2})
    (place,) = (each for each in rd.diagnose(batch) if each.kind == "place")
    tokens = place.tokens()
    counted = f"{len(tokens):,} tokens differ .* in {tokens['sample'].nunique()} of 32"
    assert re.search(counted, place.location)


def test_one_token_is_not_called_all() -> None:
    parts = arrays(NUM)
    parts["old"][3, 5] = -9999
    (level,) = (each for each in rd.diagnose(made(parts)) if each.kind == "level")
    assert level.location == "1 token differs by more than a factor of 2"


@pytest.mark.parametrize("name", FAULTS)
def test_the_headline_says_what_was_planted(name: str) -> None:
    build, facts = FAULTS[name]
    text = rd.diagnose(build()).headline
    assert all(fact in text for fact in facts), text
    assert len(text.split()) <= 40
    assert not re.search(r"\w_\w|`", text)


@pytest.mark.parametrize(
    ("in_later_rounds", "clause"),
    [
        # 2,177 of 4,143 tokens are in round 2 or later: 2177 / (1966 + 2177), and with
        # three times the advantage 6531 / (1966 + 6531).
        (1.0, "carry 53 % of the step's gradient weight."),
        (-3.0, "carry 77 % of the step's gradient weight."),
        (0.0, "carry 0 % of the step's gradient weight."),
        (math.nan, ""),
        (None, ""),  # no advantages
    ],
)
def test_a_finding_says_what_it_weighs_in_the_update(
    in_later_rounds: float | None, clause: str
) -> None:
    batch = rd.load("sample_data/image_window.parquet")
    rounds = batch.rounds
    advantages = torch.ones_like(batch.log_probs("old"))
    for index in torch.nonzero(rounds.round >= 2)[:, 0].tolist():
        start = int(rounds.start[index])
        stop = start + int(rounds.num_tokens[index])
        advantages[start:stop] = in_later_rounds or 0.0
    known = None if in_later_rounds is None else advantages
    text = rd.diagnose(replace(batch, advantages=known)).text
    assert clause in text
    assert ("These tokens, 53 % of all in" in text) == bool(clause)


def test_samples_of_the_sentence_are_those_with_such_tokens() -> None:
    batch = rd.load("sample_data/step_rows.parquet")
    size = rd.token_frame(batch)
    large = size[size["diff"].abs() > math.log(2)]
    text = rd.diagnose(batch).text
    part = f"in {large['sample'].nunique()} of {batch.num_samples} samples"
    assert f"{len(large)} tokens differ by more than a factor of 2" in text
    assert part in text


def test_a_field_that_is_there_is_not_called_missing() -> None:
    """A round of NaN is unknown; the log-probs of the others are in the file."""
    parts = arrays(NUM)
    parts["rollout"][3, :TOKENS] = np.nan
    batch = made(parts)
    missing = [
        name
        for check in rd.check(batch).not_testable
        if check.is_missing
        for name in check.field.split(",")
    ]
    assert [name for name in missing if getattr(batch, name, None) is not None] == []
    advice = rd.diagnose(batch).advice
    assert "rollout log probs" not in advice
    assert advice.endswith("; 1 more is not testable (`rd.check` says why).")


def test_a_kind_without_an_article_gets_none() -> None:
    advice = rd.diagnose(made(arrays(NUM)), kind="fp8").advice
    assert " nat is usual for FP8 on the sampling side, " in advice


@pytest.mark.parametrize(
    ("ratio", "times"), [(1.26, "1.3"), (9.949, "9.9"), (9.96, "10"), (1234.5, "1,234")]
)
def test_a_ratio_has_one_form(ratio: float, times: str) -> None:
    bare = np.empty(0, dtype=int)
    place = Place(
        conditions=(), tokens=bare, over=bare, exceeding=bare, base=bare,
        candidates=bare, num_tokens=0, num_large=0, num_samples=0, share=0.0,
        ratio=ratio, low=0.0, high=0.0, p=None, log_likelihood_ratio=0.0,
    )  # fmt: skip
    assert place.times == times
