"""Images before a token: recorded, by stored screenshots, or by image tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.core.images_seen import images_before
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch
from tests.vision.test_image_tokens import ids_of, llama4, pixtral, qwen, smolvlm

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


WRITTEN, ROUNDS = "click", 3
SIZES = [
    (llama4, [(5, 3), (1, 1), (2, 2)]),
    (smolvlm, [(3, 4), (0, 0), (1, 3)]),
    (pixtral, [(36, 64), (2, 5), (3, 64)]),
    (qwen, [(4, 5), (2, 4), (1, 9)]),
]


def batch_of_pictures(
    write: Any, sizes: list[tuple[int, int]], per_round: int, *, saved: bool
) -> Batch:
    """Four samples of three rounds; before each are so many pictures."""
    shown = [write(*sizes[k % 3]) for k in range(ROUNDS * per_round)]
    rounds = ["".join(shown[k * per_round :][:per_round]) for k in range(ROUNDS)]
    text = "look" + "".join(f" saw {each} then {WRITTEN}" for each in rounds)
    ids = torch.from_numpy(ids_of(text))
    is_written = ids == ids[-1]
    start = int(is_written.nonzero()[0, 0])
    shots = tuple(EncodedScreenshot(data=b"") for _ in shown)  # no places
    return Batch.from_rows(
        prompt_ids=[ids[:start]] * 4,
        response_ids=[ids[start:]] * 4,
        response_mask=[is_written[start:].int()] * 4,
        images=(shots,) * 4 if saved else None,
    )


@pytest.mark.parametrize("per_round", [1, 2])
@pytest.mark.parametrize(("write", "sizes"), SIZES)
def test_several_runs_of_a_picture_are_one_picture(
    write: Any, sizes: list[tuple[int, int]], per_round: int
) -> None:
    counts = [write(*size).count("<IMG>") for size in sizes]
    last = [(per_round * (k + 1) - 1) % 3 for k in range(ROUNDS)]
    batch = batch_of_pictures(write, sizes, per_round, saved=True)
    assert before_rounds(batch) == [per_round, 2 * per_round, 3 * per_round] * 4
    read = batch.columns.made("num_image_tokens")
    assert read is not None
    assert read.filled.tolist() == [counts[k] for k in last] * 4
    # Nobody says how many there are: the numbers are right, or there are none.
    batch = batch_of_pictures(write, sizes, per_round, saved=False)
    is_plain = write is qwen
    assert (batch.columns.made("num_image_tokens") is not None) == is_plain
    if is_plain:
        assert before_rounds(batch) == [per_round, 2 * per_round, 3 * per_round] * 4
    else:
        assert before_rounds(batch) is None


def test_samples_whose_pictures_are_not_saved_are_unknown() -> None:
    sizes = SIZES[0][1]
    batch = batch_of_pictures(llama4, sizes, 1, saved=True)
    batch = replace(batch, images=(batch.images[0], (), (), ()))  # type: ignore[index]
    found = before_rounds(batch)
    assert found is not None
    assert found[:ROUNDS] == [1, 2, 3]
    assert np.isnan(found[ROUNDS:]).all()
    tokens = batch.columns.made("num_image_tokens")
    assert tokens is not None
    assert tokens.is_known().tolist() == [True] * 3 + [False] * 9
