"""Columns that rounds are divided by: those of the file, and screenshots seen."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rounddiag.errors import FrameError
from rounddiag.stats.grouping import values_from_batch
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch

# Rounds of the hand batch: 2, 2 and 1.
FIRST, SECOND, UNDATED = (EncodedScreenshot(data=b"", round=r) for r in (0, 1, None))


def test_screenshots_seen_by_a_round_are_counted() -> None:
    batch = hand_batch(images=((FIRST, SECOND), (SECOND, SECOND), ()))
    assert values_from_batch(batch, "num_images").tolist() == [1, 2, 0, 2, 0]


def test_a_column_of_the_file_goes_first() -> None:
    columns = {"num_images": np.array([5, 6, 7])}
    batch = hand_batch(images=((), (), ()), sample_columns=columns)
    assert values_from_batch(batch, "num_images").tolist() == [5, 5, 6, 6, 7]


def test_screenshots_of_unknown_rounds_cannot_be_counted() -> None:
    message = (
        "`num_images`: expected screenshots whose `round` is known; found 1 of 2"
        " without it. Count something else."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        values_from_batch(hand_batch(images=((FIRST, UNDATED), (), ())), "num_images")


@pytest.mark.parametrize(("images", "offered"), [(None, ""), (((),) * 3, "num_images")])
def test_they_are_offered_where_there_are_screenshots(
    images: object, offered: str
) -> None:
    names = ["sample", "num_rounds", "max_abs_diff", *([offered] if offered else [])]
    message = f"`by`: expected one of {names}; found 'rank'. Name a column of samples"
    with pytest.raises(FrameError, match=f"^{re.escape(message)}"):
        values_from_batch(hand_batch(images=images), "rank")
