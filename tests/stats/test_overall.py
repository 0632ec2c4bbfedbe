"""A whole batch in two numbers."""

from __future__ import annotations

import numpy as np
import pytest

from rounddiag.stats.perplexity import Overall, overall


@pytest.mark.parametrize("size", [1, 100_000])
def test_the_sign_is_kept_and_a_diff_of_1_is_not_far(size: int) -> None:
    diff = np.tile(np.array([1.0, -1.0, 3.0, -1.5], dtype=np.float32), size)
    assert overall(diff) == Overall(mean_diff=0.375, share_far=0.5)


def test_what_is_not_finite_is_left_out() -> None:
    diff = np.array([np.nan, np.inf, -np.inf, -2.0])
    assert overall(diff) == Overall(mean_diff=-2.0, share_far=1.0)
    assert overall(diff[:3]) is None
    assert overall(diff[:0]) is None
