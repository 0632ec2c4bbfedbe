"""The worst samples of a report: which they are, and how much of their text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tests.batches import hand_batch, padded
from tests.export.pages import page_of

if TYPE_CHECKING:
    from pathlib import Path


def test_the_worst_samples_are_those_of_the_largest_mean(tmp_path: Path) -> None:
    # Mean |diff|: 1.75 / 3 = 0.583; 2.75 / 4 = 0.6875; 1.
    page = page_of(hand_batch(), tmp_path)
    assert page.titles[-3:] == ["Sample 2", "Sample 1", "Sample 0"]
    assert "3 of 3 samples, selected by the mean of |diff| over all" in page.text
    assert "no finite diff" not in page.text


def test_of_a_long_text_the_worst_rounds_are_there_and_it_says_so(
    tmp_path: Path,
) -> None:
    mask = torch.ones(1, 3001)
    mask[0, 1000] = 0
    old = torch.full((1, 3001), -1.0)
    old[0, 0] = -2.0
    page = page_of(padded(mask, old, torch.full((1, 3001), -1.0)), tmp_path)
    assert (
        "1,000 of 3,000 tokens are shown, of the rounds with the largest" in page.text
    )
    assert "Left out: round 1, 2,000 tokens." in page.text
