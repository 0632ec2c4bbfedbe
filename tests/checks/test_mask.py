"""Ends of samples that are padding under the mask, by hand and against a loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.batch import Batch
from rounddiag.checks.mask import COVERS_WRITTEN
from rounddiag.checks.written import Written
from tests.checks.chats import came_to, scored


def padded_ends(*sizes: int) -> Batch:
    """Samples of five tokens, and as many more of one id, exactly 0 in both columns."""
    rows = [[-1.0 - k / 8 for k in range(5)] + [0.0] * size for size in sizes]
    olds = [[value and value - 0.5 for value in row] for row in rows]
    batch = scored(rows, olds)
    ids = [token for size in sizes for token in (*range(5), *[9] * size)]
    return replace(batch, response_ids=torch.tensor(ids))


@pytest.mark.parametrize(
    ("sizes", "samples"),
    [
        ((3, 3), (0, 1)),  # three tokens are padding
        ((3, 4, 2), (0, 1)),
        ((2, 2), ()),
        ((9, 0), ()),  # a single sample may end with tokens that both are sure of
    ],
)
def test_ends_of_several_samples_are_padding(
    sizes: tuple[int, ...], samples: tuple[int, ...]
) -> None:
    assert came_to(COVERS_WRITTEN, padded_ends(*sizes))[2] == samples


@pytest.mark.parametrize(("size", "samples"), [(3, ()), (6, (2, 4))])
def test_rows_with_log_probs_only_outside_of_the_mask_are_inverted(
    size: int, samples: tuple[int, ...]
) -> None:
    """With one zero in ten elsewhere, three are likely in some row, and six are not."""
    rows = [[-1.0, *[-0.5] * 8, 0.0] if k % 5 else [-1.0] * 10 for k in range(10)]
    mask = torch.ones(10, 10, dtype=torch.int64)
    for row in (2, 4):
        mask[row, size:] = 0
        rows[row] = [0.0] * size + [-1.0] * (10 - size)
    batch = replace(scored(rows, rows), response_mask=mask.flatten())
    assert came_to(COVERS_WRITTEN, batch)[2] == samples


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1))
def test_the_flagged_end_of_a_sample_is_that_of_a_loop(rows: list[list[bool]]) -> None:
    written = Written.from_batch(scored(*[[[-1.0] * len(row) for row in rows]] * 2))
    expected = []
    for row in rows:
        size = 0
        while size < len(row) and row[-1 - size]:
            size += 1
        expected += [0] * (len(row) - size) + [size] * size
    flags = np.array([flag for row in rows for flag in row])
    assert written.size_of_end(flags).tolist() == expected
