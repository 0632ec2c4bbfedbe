"""Where the tokens of a real batch stand, against plain loops over its samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

import rounddiag as rd
from rounddiag import Batch
from rounddiag.stats import position_means
from tests import oracle


@cache
def batch() -> Batch:
    return rd.load("sample_data/image_window.parquet")


def images_seen(sample: int, index: int, _: int) -> tuple[int, int]:
    shots = (batch().images or ())[sample]
    num = sum(shot.round is not None and shot.round <= index for shot in shots)
    return num, num


def doubling(place: int) -> tuple[int, int]:
    """First and last place of the bin: 0, 1, 2 to 3, 4 to 7, ..."""
    low = 0 if place == 0 else 2 ** (place.bit_length() - 1)
    return low, max(2 * low - 1, 0)


def context(sample: int, _: int, position: int) -> tuple[int, int]:
    offsets = batch().prompt_offsets
    assert offsets is not None
    return doubling(int(offsets[sample + 1] - offsets[sample]) + position)


def in_response(_: int, __: int, position: int) -> tuple[int, int]:
    return doubling(position)


@pytest.mark.parametrize(
    ("along", "place"),
    [("images", images_seen), ("context", context), ("response", in_response)],
)
def test_means_by_place_are_those_of_plain_loops(
    along: str, place: Callable[[int, int, int], tuple[int, int]]
) -> None:
    tokens = rd.token_frame(batch(), ["position"])
    columns = tokens[["sample", "round", "position", "diff"]]
    sizes: dict[tuple[int, int], list[float]] = {}
    samples: dict[tuple[int, int], set[int]] = {}
    for sample, index, position, diff in columns.itertuples(index=False, name=None):
        cell = place(sample, index, position)
        sizes.setdefault(cell, []).append(abs(diff))
        samples.setdefault(cell, set()).add(sample)
    means = position_means(batch(), along=along)  # type: ignore[arg-type]

    cells = sorted(sizes)
    assert list(zip(means["low"], means["high"], strict=True)) == cells
    assert means["num_tokens"].tolist() == [len(sizes[cell]) for cell in cells]
    assert means["num_samples"].tolist() == [len(samples[cell]) for cell in cells]
    assert means["mean"].tolist() == pytest.approx(
        [oracle.mean(sizes[cell]) for cell in cells]
    )


def test_every_round_of_the_sample_batch_sees_one_more_screenshot() -> None:
    means = position_means(batch(), along="images")
    summary = rd.round_summary(batch())
    assert means["low"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert means["num_tokens"].tolist() == summary["num_tokens"].tolist()
    assert means["num_tokens"].tolist() == [1132, 834, 835, 512, 333, 249, 150, 98]
