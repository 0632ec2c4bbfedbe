"""Sets of samples that no column names, their price, and distances from screenshots."""

from __future__ import annotations

from math import comb, log

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.findings import View
from rounddiag.findings.conditions import ColumnOfTokens, columns_of_tokens
from rounddiag.findings.sample_sets import columns_of_sets
from rounddiag.findings.slices import overdispersion
from tests.findings.small import ROUNDS, TOKENS, Array, arrays, made, shaken

PER_SAMPLE = ROUNDS * TOKENS


def sets_of(view: View, over: Array) -> dict[str, ColumnOfTokens]:
    """The sets that are found where all tokens are equally likely."""
    bins = np.zeros(len(view), dtype=np.uint8)
    return {column.name: column for column in columns_of_sets(view, [over], bins)}


def samples_of(view: View, column: ColumnOfTokens) -> list[int]:
    samples: list[int] = np.unique(view.sample[column.codes == 0]).tolist()
    return samples


def test_a_block_pays_for_its_two_ends_and_a_set_for_its_choice() -> None:
    view = View.from_batch(made(arrays(16)))
    over = np.isin(view.sample, [5, 6, 7])
    columns = sets_of(view, over)
    assert samples_of(view, columns["block_of_samples"]) == [5, 6, 7]
    assert columns["block_of_samples"].selection_penalty == pytest.approx(2 * log(16))
    assert samples_of(view, columns["set_of_samples"]) == [5, 6, 7]
    assert columns["set_of_samples"].selection_penalty == pytest.approx(
        log(comb(16, 3) * 16)
    )
    (text,) = (
        column.condition("=", 0).text for column in (columns["block_of_samples"],)
    )
    assert text == "in samples 5 to 7"


def test_every_third_sample_and_all_but_every_third() -> None:
    view = View.from_batch(made(arrays(16)))
    columns = sets_of(view, view.sample % 3 == 1)
    assert samples_of(view, columns["every_nth"]) == [1, 4, 7, 10, 13]
    assert columns["every_nth"].condition("=", 0).text == (
        "in every third sample from sample 1 on"
    )
    assert columns["every_nth"].selection_penalty == pytest.approx(
        log(16)
    )  # periods up to 4
    packs = sets_of(view, view.sample % 3 != 0)["all_but_every_nth"]
    assert packs.condition("=", 0).text == "in all samples but every third"


def test_samples_that_differ_each_from_a_token_of_its_own_on() -> None:
    view = View.from_batch(made(arrays(16)))
    index = np.arange(len(view)) - view.sample * PER_SAMPLE
    start = np.full(16, PER_SAMPLE)
    start[[3, 9]] = 30, 55
    over = index >= start[view.sample]
    column = sets_of(view, over)["own_start"]
    assert ((column.codes == 0) == over).all()
    # 50 and 25 tokens at which to start, and two of 16 samples.
    price = log(50) + log(25) + log(comb(16, 2) * 16)
    assert column.selection_penalty == pytest.approx(price)


def test_sound_tokens_make_no_set() -> None:
    view = View.from_batch(made(arrays(16)))
    rng = np.random.default_rng(0)
    assert sets_of(view, rng.random(len(view)) < 0.1) == {}


def test_the_spread_is_that_of_the_half_that_agrees() -> None:
    expected = np.full(10, 100.0)
    assert overdispersion(np.repeat([100.0, 900.0], 5), expected) == 1.0
    # z of 0, 3, 6 .. 27: half of them within 12, a standard deviation of 12 / 1.349.
    hits = 100 + 10 * np.arange(0.0, 30, 3)
    sigma = 12 / (2 * 0.6745) * (1 + 5 / 9)
    assert overdispersion(hits, expected) == pytest.approx(sigma**2)


def images_in(batch: rd.Batch) -> Array:
    """A screenshot in rounds 0 and 2."""
    index = batch.rounds.round.numpy()
    return np.where(index < 2, 1, 2)


def test_a_place_after_screenshots_is_named() -> None:
    parts = arrays()
    place = np.arange(parts["mask"].shape[1])
    near = (place % 46) < 8  # rounds 0 and 2 begin at 0 and 46
    shaken(parts, np.broadcast_to(near, parts["mask"].shape), 0.5)
    plain = made(parts)
    columns = {
        "sample": plain.rounds.sample.numpy(),
        "round": plain.rounds.round.numpy(),
        "num_images": images_in(plain),
    }
    batch = made(parts, round_columns=columns)
    names = {
        column.name: column for column in columns_of_tokens(View.from_batch(batch))
    }
    since = names["after_image"].codes[:PER_SAMPLE]
    assert since[:17].tolist() == [*range(16), -1]
    assert since[2 * TOKENS :][:17].tolist() == [*range(16), -1]
    assert (since[TOKENS : 2 * TOKENS] == -1).all()
    conditions = rd.places(batch)["conditions"].tolist()
    assert conditions[0] == "in the first 8 tokens after a screenshot"


def test_where_each_round_begins_with_a_screenshot_the_round_says_it() -> None:
    plain = made(arrays())
    columns = {
        "sample": plain.rounds.sample.numpy(),
        "round": plain.rounds.round.numpy(),
        "num_images": plain.rounds.round.numpy() + 1,
    }
    batch = made(arrays(), round_columns=columns)
    names = {column.name for column in columns_of_tokens(View.from_batch(batch))}
    assert not names & {"after_image", "since_image"}
