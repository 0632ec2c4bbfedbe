"""Places that chance explains or not, and those that cannot be tested."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.checks.contracts import LEVEL
from rounddiag.findings import View, permutation
from rounddiag.findings.permutation import (
    Null,
    _best_split,
    _num_arrangements,
    _split_gain,
    _variances,
)
from rounddiag.findings.place import find_places
from tests.faults.permutation import sound_batch
from tests.findings.small import Array, arrays, made, rounds_of, shaken

FEW, MANY = 0.05, 1.5  # added noise, beside 0.01


def batch_of(
    rows: Iterable[int],
    size: float,
    columns: dict[str, object] | None = None,
    *,
    num: int = 64,
    group: int = 8,
) -> rd.Batch:
    """Sound samples, some of which have more noise."""
    parts = arrays(num)
    inside = np.isin(np.arange(num), list(rows))[:, None] & (parts["mask"] > 0)
    shaken(parts, inside, size)
    groups = tuple(f"task-{i // group}" for i in range(num)) if group else None
    return made(parts, group_ids=groups, sample_columns=columns or {})


def texts(batch: rd.Batch) -> list[str]:
    conditions: list[str] = rd.places(batch)["conditions"].tolist()
    return conditions


RANK = np.random.default_rng(1).permutation(np.arange(64) % 4)


@pytest.mark.parametrize("size", [FEW, MANY])
@pytest.mark.parametrize(
    ("rows", "columns", "text"),
    [
        (range(8), {}, "on group id task-0"),
        (range(16), {}, "in 2 whole groups"),
        (range(12, 31), {}, "in samples 12 to 30"),
        ([i for i in range(64) if i % 8 < 4], {}, "in samples 0, 1, 2 and 29 more"),
        (
            [i for i in range(64) if i % 8 in (1, 7)],
            {},
            "in samples 1, 7, 9 and 13 more",
        ),
        (
            [i for i in range(64) if i % 5 == 2],
            {},
            "in every 5th sample from sample 2 on",
        ),
        (
            range(2, 64, 8),
            {"rank": np.arange(64) % 4},
            "in every 8th sample from sample 2 on, all on rank 2 (8 of its 16,"
            " p < 0.0001)",
        ),
        (np.flatnonzero(RANK == 3), {"rank": RANK}, "on rank 3"),
        (np.flatnonzero(RANK < 2), {"rank": RANK}, "on rank 0 or 1"),
        (
            np.flatnonzero(RANK == 3)[::2],
            {"rank": RANK},
            "in samples 6, 9, 14 and 5 more, all on rank 3 (8 of its 16, p < 0.0001)",
        ),
    ],
)
def test_samples_of_two_kinds_are_called_what_they_are(
    rows: Iterable[int], columns: dict[str, object], text: str, size: float
) -> None:
    places = rd.places(batch_of(rows, size, columns))
    assert places["conditions"].tolist() == [text]
    assert places["p"].tolist() == [1 / 200]


@pytest.mark.parametrize("group", [0, 4, 8])
def test_half_of_few_samples_that_are_far_off_are_found(group: int) -> None:
    rows = [0, 3, 5, 6, 9, 10, 12, 15]
    batch = batch_of(rows, 3.0, num=16, group=group)
    assert texts(batch) == ["in samples 0, 3, 5 and 5 more"]
    assert rd.diagnose(batch).verdict == "broken"


def test_one_of_two_prompts_is_described_and_not_tested() -> None:
    (place,) = find_places(View.from_batch(batch_of(range(8), 0.15, num=16)))
    assert place.text == "on group id task-0"
    assert not place.is_tested
    assert place.p is None
    diagnosis = rd.diagnose(batch_of(range(8), 0.15, num=16))
    assert diagnosis.verdict == "noisy"
    # Within the usual range nothing is said of it.
    assert texts(batch_of(range(8), 0.03, num=16)) == []


@pytest.mark.parametrize("num_groups", [4, 16])
def test_prompts_that_differ_in_noise_are_no_bug(num_groups: int) -> None:
    for seed in range(8):  # `python -m tests.faults.permutation` draws hundreds
        places = find_places(View.from_batch(sound_batch(num_groups, 0.35, seed)))
        assert not any(place.is_tested for place in places), places[0].text


def test_a_version_that_follows_groups_is_permuted_between_them() -> None:
    version = 7 - np.arange(64) // 8 % 2
    rows = np.flatnonzero(version == 6)
    assert texts(batch_of(rows, 0.2, {"weight_version": version})) == [
        "with weight version 6"
    ]


def test_a_round_is_found_in_samples_of_one_prompt() -> None:
    parts = arrays(8)
    shaken(parts, rounds_of(parts) >= 2, 0.5)
    assert texts(made(parts, group_ids=("a",) * 8)) == ["from round 2 on"]


def test_arrangements_are_counted_in_blocks() -> None:
    one_block = np.zeros(6, dtype=np.int64)
    member = np.array([True, True, False, False, False, False])
    assert _num_arrangements(member, one_block) == 15
    # One of three, and one of three.
    blocks = np.array([0, 1, 0, 0, 1, 1])
    assert _num_arrangements(member, blocks) == 9


def test_the_best_split_is_the_best_of_all_splits() -> None:
    values = np.array([[0.0, 5.0, 1.0, 6.0], [3.0, 3.5, 3.0, 9.0]])
    expected = [
        max(_split_gain(row, np.argsort(np.argsort(row)) >= k) for k in (1, 2, 3))
        for row in values
    ]
    assert _best_split(values) == pytest.approx(expected)
    # 26 around 3, 0.5 around each of 0.5 and 5.5: 2 log 26.
    assert expected[0] == pytest.approx(2 * np.log(26), rel=1e-4)


def test_draws_in_blocks_are_those_of_one_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A null keeps 8 MB an array, whatever the number of samples."""

    def draw_all() -> tuple[Array, list[int]]:
        rng, sizes = np.random.default_rng(0), []

        def draw(size: int) -> Array:
            sizes.append(size)
            drawn: Array = rng.random((size, 5)).max(axis=1)
            return drawn

        null = Null(draw, 5)
        assert null.p_value(2.0) == LEVEL
        return np.concatenate(null.drawn), sizes

    whole, sizes = draw_all()
    assert sizes == [9, 40, 150]
    monkeypatch.setattr(permutation, "_BLOCK", 35)
    in_blocks, sizes = draw_all()
    assert sizes == [7, 2, *[7] * 5, 5, *[7] * 21, 3]
    assert in_blocks.tolist() == whole.tolist()


def test_variances_between_and_within_groups() -> None:
    values = np.array([0.0, 2.0, 10.0, 12.0])
    # Squares of 1 over 2 free ones within; of 5 four times over 1 between, less these.
    assert _variances(values, np.array([0, 0, 1, 1])) == (49.0, 2.0)
    assert _variances(values, np.zeros(4, dtype=np.int64)) == (0.0, 26.0)
