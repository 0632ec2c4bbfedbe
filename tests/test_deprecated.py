"""Former names work for one release, with a warning that names the new one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import rounddiag
from rounddiag import plot_compare, plot_positions, plot_probabilities, stats
from rounddiag.findings import Alternative
from tests.batches import hand_batch

if TYPE_CHECKING:
    from collections.abc import Callable

FOUND = rounddiag.diagnose(rounddiag.load("sample_data/image_window.parquet"))[0]
CALLS: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "a statistic": (
        "rounddiag.stats.tails is now `tail_shares`",
        lambda: stats.tails,  # type: ignore[attr-defined]
        lambda: stats.tail_shares,
    ),
    "an axis as `by`": (
        "by='end' is now along='end'",
        lambda: plot_positions(hand_batch(), by="end"),
        lambda: plot_positions(hand_batch(), along="end"),
    ),
    "a check": (
        "check(cheap=...) is now check(fast=...)",
        lambda: rounddiag.check(hand_batch(), cheap=True).as_plain(),
        lambda: rounddiag.check(hand_batch(), fast=True).as_plain(),
    ),
    "an alternative": (
        "Alternative.would_tell is now `how_to_tell`",
        lambda: Alternative(cause="a", how_to_tell="b").would_tell,
        lambda: "b",
    ),
    "a finding": (
        "Finding.place is now `location`",
        lambda: FOUND.place,
        lambda: FOUND.location,
    ),
    "a layer": (
        "the layer 'strip' is now 'heatmap'",
        lambda: plot_compare([hand_batch()] * 2, layers={"strip": False}),
        lambda: plot_compare([hand_batch()] * 2, layers={"heatmap": False}),
    ),
    "a figure": (
        "plot_log_ppl(...) is now plot_probabilities(..., axes='log_ppl')",
        lambda: rounddiag.plot_log_ppl(hand_batch()),  # type: ignore[attr-defined]
        lambda: plot_probabilities(hand_batch(), axes="log_ppl"),
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_former_name_still_works(case: str) -> None:
    text, old, new = CALLS[case]
    message = f"^{re.escape(text)}; the old name stops working in the next release.$"
    with pytest.warns(DeprecationWarning, match=message) as warned:
        found = old()
    assert found == new()
    assert warned[0].filename == __file__


def test_former_names_are_not_listed() -> None:
    assert dir(stats) == sorted(stats.__all__)
    for old, new in stats._RENAMED.items():
        assert old not in stats.__all__
        assert new in stats.__all__
