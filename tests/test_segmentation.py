from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.errors import BatchError
from rounddiag.segmentation import Rounds, find_on_device, find_rounds
from tests.batches import AWKWARD, MASK, masks
from tests.oracle import rounds_of


def table(mask: torch.Tensor, **options: torch.Tensor) -> list[tuple[int, ...]]:
    offsets = torch.arange(len(mask) + 1, device=mask.device) * mask.shape[1]
    found = rows(find_rounds(mask.reshape(-1), offsets, **options))
    # The operations of a GPU give the same on any device.
    assert found == rows(find_on_device(mask.reshape(-1), offsets, **options))
    return found


def rows(found: Rounds) -> list[tuple[int, ...]]:
    columns = found.sample, found.round, found.start, found.num_tokens
    return list(zip(*(column.tolist() for column in columns), strict=True))


def expected(mask: list[list[int]]) -> list[tuple[int, ...]]:
    return [
        (sample, index, sample * len(row) + positions[0], len(positions))
        for sample, row in enumerate(mask)
        for index, positions in enumerate(rounds_of(row))
    ]


def test_a_round_never_crosses_two_samples(device: torch.device) -> None:
    assert table(torch.tensor(MASK, device=device)) == [
        (0, 0, 0, 2),
        (0, 1, 3, 1),
        (1, 0, 7, 3),
        (1, 1, 11, 1),
        (2, 0, 12, 1),
    ]


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    ],
)
def test_every_dtype_of_mask_gives_the_same_rounds(
    device: torch.device, dtype: torch.dtype
) -> None:
    mask = torch.tensor(AWKWARD, device=device).to(dtype)
    assert table(mask) == expected(AWKWARD)


@given(masks())
def test_equals_the_loop(mask: list[list[int]]) -> None:
    width = len(mask[0]) if mask else 0
    tensor = torch.tensor(mask, dtype=torch.int64).reshape(len(mask), width)
    assert table(tensor) == expected(mask)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0)])
def test_nothing_has_no_rounds(device: torch.device, shape: tuple[int, int]) -> None:
    assert table(torch.ones(shape, device=device)) == []


@pytest.mark.parametrize("width", [65535, 65536, 65537, 131072])
def test_runs_that_meet_the_end_of_a_block(width: int) -> None:
    mask = torch.zeros(2, width, dtype=torch.int64)
    mask[:, -2:] = 1
    mask[1, 0] = 1
    assert table(mask) == [
        (0, 0, width - 2, 2),
        (1, 0, width, 1),
        (1, 1, 2 * width - 2, 2),
    ]


def test_round_ids_divide_a_run(device: torch.device) -> None:
    mask = torch.tensor([[1, 1, 1, 0]], device=device)
    ids = torch.tensor([4, 4, 5, 5], device=device)
    assert table(mask, round_ids=ids) == [(0, 0, 0, 2), (0, 1, 2, 1)]


def test_samples_of_no_positions_have_no_rounds(device: torch.device) -> None:
    mask = torch.tensor([1, 1, 1], device=device)
    offsets = torch.tensor([0, 0, 2, 2, 3, 3], device=device)
    found = find_rounds(mask, offsets)
    assert found.sample.tolist() == [1, 3]
    assert found.num_tokens.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("mask", "value"),
    [
        (torch.tensor([0, 1, 2]), "2"),
        (torch.tensor([0, -1, 1]), "-1"),
        (torch.tensor([0.0, 0.5, 1.0]), "0.5"),
        (torch.tensor([1.0, float("nan")]), "nan"),
    ],
)
def test_a_weight_is_no_mask(
    device: torch.device, mask: torch.Tensor, value: str
) -> None:
    message = (
        f"`response_mask`: expected a mask of 0 and 1; found the value {value}. "
        "Pass the mask itself, not a weight."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        find_rounds(mask.to(device), torch.tensor([0, len(mask)], device=device))
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        find_on_device(mask.to(device), torch.tensor([0, len(mask)], device=device))


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=12),
    st.lists(st.integers(0, 12), max_size=5),
)
def test_breaks_anywhere_give_the_rounds_of_the_loop(
    positions: list[tuple[bool, int]], cuts: list[int]
) -> None:
    mask = torch.tensor([one for one, _ in positions], dtype=torch.bool)
    ids = torch.tensor([one for _, one in positions], dtype=torch.int64)
    ends = [min(one, len(mask)) for one in cuts]
    limits = [0, *sorted(ends), len(mask)]
    wanted: list[list[int]] = []
    for sample, (low, high) in enumerate(pairwise(limits)):
        before, index = None, -1
        for position in range(low, high):
            is_one, number = positions[position]
            if is_one and before == (True, number):
                wanted[-1][3] += 1
            elif is_one:
                index += 1
                wanted.append([sample, index, position, 1])
            before = (is_one, number)
    for find in (find_rounds, find_on_device):
        found = rows(find(mask, torch.tensor(limits), ids))
        assert found == [tuple(row) for row in wanted]


def test_nothing_but_single_numbers_leaves_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a copy to the host")

    for name in ("cpu", "numpy", "tolist", "__array__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    mask = torch.tensor([1, 1, 0, 1])
    found = find_on_device(mask, torch.tensor([0, 1, 4]))
    assert torch.equal(found.start, torch.tensor([0, 1, 3]))
    assert torch.equal(found.num_tokens, torch.tensor([1, 1, 1]))
