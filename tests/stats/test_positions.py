"""Means by where tokens stand."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from rounddiag import Batch
from rounddiag.errors import FrameError
from rounddiag.stats import position_means
from rounddiag.vision import EncodedScreenshot, Screenshot
from tests.batches import hand_batch, padded

# Places of the tokens of `hand_batch`: 0 1 . 3 | . 1 2 3 . 5 | 0, and their |diff|:
# 0.5 0.25 1 | 0 0.25 0.5 2 | 1


def screenshots_at(*places: tuple[int | None, int | None]) -> tuple[Screenshot, ...]:
    """Screenshots that begin at a position and come before a round."""
    return tuple(
        EncodedScreenshot(data=b"", position=position, round=round_)
        for position, round_ in places
    )


def rows(batch: Batch, along: str) -> list[tuple[float, float, int, float]]:
    means = position_means(batch, along=along)  # type: ignore[arg-type]
    names = ["low", "high", "num_tokens", "mean"]
    return list(means[names].itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("along", "expected"),
    [
        (
            "round",
            [(0, 0, 5, (0.5 + 1 + 0 + 2 + 1) / 5), (1, 1, 2, 0.25), (2, 3, 1, 0.5)],
        ),
        ("end", [(0, 0, 5, 4.75 / 5), (1, 1, 2, 0.375), (2, 3, 1, 0.0)]),
        (
            "response",
            [(0, 0, 2, 0.75), (1, 1, 2, 0.125), (2, 3, 3, 1.75 / 3), (4, 7, 1, 2.0)],
        ),
        (
            "context",
            [(0, 0, 1, 1.0), (1, 1, 1, 0.5), (2, 3, 2, 0.125), (4, 7, 4, 3.75 / 4)],
        ),
    ],
)
def test_tokens_are_counted_from_many_places(
    along: str, expected: list[tuple[float, ...]]
) -> None:
    prompts = torch.tensor([[7, 7], [7, 7], [7, 7]])
    mask = torch.tensor([[0, 1], [1, 1], [0, 0]])
    batch = hand_batch(prompt_ids=prompts, prompt_mask=mask)
    assert rows(batch, along) == expected


def test_tokens_are_counted_from_the_last_screenshot_before_their_round() -> None:
    images = (screenshots_at((-4, 0), (2, 1)), screenshots_at((4, 1)), ())
    batch = replace(hand_batch(), images=images)
    # 4 5 . 1 | before any, 1 | before any
    places = rows(batch, "image")
    assert places[:2] == [(1, 1, 2, 1.5), (4, 7, 2, 0.375)]
    assert np.isnan(places[2][:2]).all()
    assert places[2][2:] == (4, 1.75 / 4)


def test_the_order_of_screenshots_does_not_matter() -> None:
    images = (screenshots_at((2, 1), (-4, 0)), screenshots_at((4, 1)), ())
    batch = replace(hand_batch(), images=images)
    assert rows(batch, "image")[:2] == [(1, 1, 2, 1.5), (4, 7, 2, 0.375)]


def test_screenshots_seen_are_counted_one_by_one() -> None:
    first = screenshots_at((-4, 0), (-3, 0), (2, 1))
    images = (first, screenshots_at((4, 1), (9, None)), ())
    batch = replace(hand_batch(), images=images)
    # 2 2 . 3 | 0 0 0 1 | 0
    assert rows(batch, "images") == [
        (0, 0, 4, 1.75 / 4),
        (1, 1, 1, 2.0),
        (2, 2, 2, 0.375),
        (3, 3, 1, 1.0),
    ]


def test_bins_double_in_size() -> None:
    batch = padded([[1] * 20], [[0.0] * 20], [[0.5] * 20])
    means = position_means(batch)
    assert means["low"].tolist() == [0, 1, 2, 4, 8, 16]
    assert means["high"].tolist() == [0, 1, 3, 7, 15, 31]
    assert means["num_tokens"].tolist() == [1, 1, 2, 4, 8, 4]


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    means = position_means(padded([[1, 1]], [[np.nan, 1.0]], [[0.5, 0.5]]))
    assert means["num_nonfinite"].tolist() == [1, 0]
    assert means["mean"].tolist() == pytest.approx([np.nan, 0.5], nan_ok=True)


@pytest.mark.parametrize(
    "along", ["round", "end", "response", "context", "image", "images"]
)
def test_no_tokens_have_no_rows(along: str) -> None:
    prompts = torch.tensor([[7, 7]])
    nothing = padded([[0, 0]], [[0.0, 0.0]], [[0.0, 0.0]], prompt_ids=prompts)
    assert rows(replace(nothing, images=((),)), along) == []
    assert rows(replace(nothing, images=((),))[:0], along) == []


@pytest.mark.parametrize(
    ("along", "expected", "found"),
    [
        ("context", "a batch with `prompt_ids`", "a batch without them"),
        ("image", "a batch with screenshots", "a batch without them"),
        ("images", "a batch with screenshots", "a batch without them"),
    ],
)
def test_a_batch_that_does_not_know_is_an_error(
    along: str, expected: str, found: str
) -> None:
    message = f"`along`: expected {expected} for along='{along}'; found {found}."
    with pytest.raises(FrameError, match=f"^{re.escape(message)} Choose another one.$"):
        rows(hand_batch(), along)


@pytest.mark.parametrize(
    ("along", "expected", "num"), [("image", "position", 2), ("images", "round", 1)]
)
def test_screenshots_of_unknown_places_are_an_error(
    along: str, expected: str, num: int
) -> None:
    images = (screenshots_at((0, 1), (None, 1), (None, None)), (), ())
    message = (
        f"`along`: expected screenshots whose `{expected}` is known for"
        f" along='{along}'; found {num} of 3 without it. Choose another one."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        rows(replace(hand_batch(), images=images), along)


def test_an_unknown_place_is_an_error() -> None:
    message = (
        "`along`: expected one of ['round', 'response', 'end', 'image', 'images',"
        " 'context']; found 'token'. Choose what tokens are counted from."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        rows(hand_batch(), "token")
