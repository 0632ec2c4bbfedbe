"""Images before a token: recorded, by stored screenshots, or by image tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rounddiag.batch import Batch
from rounddiag.core.images_seen import images_before
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch

IMAGE = 9
OBSERVED = [*[5] * 3, *[IMAGE] * 8, 6]  # text, an image of 8 tokens, text
SAMPLE = [1, 2, *OBSERVED, 3, *OBSERVED, 4]  # 3 rounds of 2, 1 and 1 tokens
MASK = [1, 1, *[0] * 12, 1, *[0] * 12, 1]


def long_batch(**fields: Any) -> Batch:
    """Two samples, each with two images in its response."""
    zeros = torch.zeros(2, len(SAMPLE))
    return Batch.from_padded(
        response_ids=torch.tensor([SAMPLE] * 2),
        response_mask=torch.tensor([MASK] * 2, dtype=torch.bfloat16),  # any dtype
        old_log_probs=zeros,
        rollout_log_probs=zeros,
        **fields,
    )


def before_rounds(batch: Batch) -> list[int] | None:
    rounds = batch.rounds
    position = (rounds.start - batch.offsets[rounds.sample]).numpy()
    found = images_before(batch, np.arange(batch.num_rounds), position)
    return None if found is None else found.tolist()


def shot(**place: Any) -> EncodedScreenshot:
    return EncodedScreenshot(data=b"", **place)


def test_image_tokens_are_counted_and_one_of_the_prompt() -> None:
    assert before_rounds(long_batch()) == [1, 2, 3] * 2


def test_each_token_has_its_own_count() -> None:
    # As if the mask of round 0 were too wide: its last token is after an image.
    found = images_before(long_batch(), np.zeros(3, dtype=int), np.array([1, 5, 14]))
    assert found is not None
    assert found.tolist() == [1, 1, 2]


def test_a_sample_without_stored_screenshots_is_read_from_its_tokens() -> None:
    stored = (shot(position=-9), shot(position=-4), shot(position=5))
    found = before_rounds(long_batch(images=(stored, ())))
    assert found == [2, 3, 3, 1, 2, 3]


def test_a_screenshot_with_a_round_only_is_before_that_round() -> None:
    # Of three rounds: what a sample shows after the last one comes before none.
    stored = (shot(round=0), shot(round=2), shot(round=3), shot(round=7))
    assert before_rounds(long_batch(images=(stored, stored))) == [1, 1, 2] * 2


def test_recorded_numbers_go_first() -> None:
    columns = {
        "sample": np.array([0, 0, 0, 1, 1]),
        "round": np.array([0, 1, 2, 0, 2]),
        "num_images": np.array([1, 2, 2, 1, 2]),
    }
    stored = ((shot(position=-9),), (shot(position=-9),))
    batch = long_batch(images=stored, round_columns=columns)
    found = before_rounds(batch)
    assert found is not None
    assert (found[:4], found[5:]) == ([1, 2, 2, 1], [2])
    assert np.isnan(found[4])  # that round was not recorded


def test_nothing_is_known_of_few_tokens_or_of_places_unknown() -> None:
    assert before_rounds(hand_batch()) is None
    unknown = (EncodedScreenshot(data=b""),)
    assert before_rounds(hand_batch(images=(unknown, (), ()))) is None
    assert before_rounds(hand_batch(images=((),) * 3)) == [0] * 5
    assert before_rounds(hand_batch()[:0]) is None
