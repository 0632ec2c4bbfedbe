"""What a mismatch looks like, and the causes that are named from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.findings import CAUSES, Evidence, View
from rounddiag.findings.measures import describe
from rounddiag.findings.naming import rank_causes, read_table
from tests.findings.small import LENGTH, arrays, made, shaken

PLACE = np.broadcast_to(np.arange(LENGTH), (32, LENGTH))
ROW = np.arange(32)[:, None] + 0 * PLACE
FAULT = 0.6


def looks(where: Any, *, evidence: dict[str, Any] | None = None, **columns: Any) -> Any:
    """Describe sound samples that differ somewhere."""
    parts = arrays()
    shaken(parts, where, FAULT)
    view = View.from_batch(made(parts, **columns))
    tokens = np.ones(len(view), dtype=bool)
    found = Evidence(score=1.0, explanation="", tokens=tokens, where=evidence or {})
    return describe(view, found)


@pytest.mark.parametrize(
    ("where", "begins"),
    [
        (PLACE >= 0, "everywhere"),
        (PLACE // 23 >= 1, "round 1"),
        (PLACE // 23 >= 2, "later round"),
        (PLACE < 20, "fades"),
        (PLACE < 60, "until"),
    ],
)
def test_where_along_a_sample_it_begins(where: Any, begins: str) -> None:
    assert looks(where)["begins"] == begins


def test_the_last_tokens_of_the_longest_samples() -> None:
    parts = arrays()
    parts["mask"][16:, 40:] = 0
    shaken(parts, (PLACE >= LENGTH - 6) & (ROW < 16), 5.0)
    view = View.from_batch(made(parts, lengths=torch.tensor([LENGTH] * 16 + [40] * 16)))
    found = Evidence(score=1.0, explanation="", tokens=np.ones(len(view), dtype=bool))
    assert describe(view, found)["begins"] == "end"


@pytest.mark.parametrize(
    ("where", "samples"),
    [
        (ROW >= 0, "all"),
        ((ROW >= 8) & (ROW < 16), "block"),
        ((ROW // 4) % 4 == 1, "groups"),
        (np.isin(ROW, [0, 5, 9, 21, 30]), "some"),
        (ROW % 8 == 3, "period"),
        (ROW % 4 != 0, "pack"),
    ],
)
def test_which_samples_differ(where: Any, samples: str) -> None:
    groups = tuple(str(i // 4) for i in range(32))
    assert looks(where, group_ids=groups)["samples"] == samples


@pytest.mark.parametrize(
    ("column", "samples"),
    [("dp_rank", "worker"), ("weight_version", "version"), ("cached_tokens", "cached")],
)
def test_a_column_says_which_samples_differ(column: str, samples: str) -> None:
    evidence = {"column": column, "value": 1}
    assert looks(ROW % 2 == 0, evidence=evidence)["samples"] == samples


def test_a_mismatch_that_fades_inside_of_rounds() -> None:
    token = PLACE % 23
    assert looks(PLACE >= 0)["in rounds"] == "flat"
    assert looks((token >= 3) & (token < 10))["in rounds"] == "fades fast"
    assert looks(token >= 10)["in rounds"] == "late"


def test_first_tokens_of_rounds_differ_less_alike_or_more() -> None:
    token = PLACE % 23
    assert looks(PLACE >= 0)["first tokens"] == "alike"
    assert looks(token >= 3)["first tokens"] == "less"
    assert looks(token < 3)["first tokens"] == "more"


@pytest.mark.parametrize(("drawn", "as_sampled"), [(0.7, "yes"), (0.5, "no")])
def test_the_mean_of_exp_diff_is_one_for_ids_that_were_drawn(
    drawn: float, as_sampled: str
) -> None:
    # Two ids: the sampling engine says 0.7 and 0.3, the training engine 0.5 and 0.5.
    # If the first id was drawn in half of the cases, the mean of exp(diff) is
    # 0.5 * 0.5 / 0.7 + 0.5 * 0.5 / 0.3 = 1.19.
    parts = arrays()
    first = np.random.default_rng(0).random(parts["mask"].shape) < drawn
    parts["rollout"] = np.log(np.where(first, 0.7, 0.3)) * parts["mask"]
    parts["old"] = np.log(0.5) * parts["mask"]
    view = View.from_batch(made(parts))
    found = Evidence(score=1.0, explanation="", tokens=np.ones(len(view), dtype=bool))
    assert describe(view, found)["as sampled"] == as_sampled


def test_older_weights_end_with_a_plateau_and_lost_content_fades() -> None:
    for size, begins in ((PLACE < 45, "until"), (8.0 / (PLACE + 4), "fades")):
        assert looks(size)["begins"] == begins


@pytest.mark.parametrize(
    ("by_id", "begins"), [(True, "rises with ids"), (False, "round 1")]
)
def test_what_grows_with_rounds_is_no_lost_content_if_ids_predict_round_0(
    by_id: bool, begins: str
) -> None:
    parts, rng = arrays(), np.random.default_rng(0)
    parts["ids"] = rng.integers(10, 14, PLACE.shape)
    noise = rng.normal(0, 1, PLACE.shape)
    shift = np.array([-1.0, 0.5, -0.5, 1.0])[parts["ids"] - 10] if by_id else noise
    size = 0.03 * np.where(PLACE < 20, 1, 6) * np.minimum(-parts["rollout"], 1)
    parts["old"] = np.minimum(parts["rollout"] + shift * size, 0) * parts["mask"]
    view = View.from_batch(made(parts))
    found = Evidence(score=1.0, explanation="", tokens=np.ones(len(view), dtype=bool))
    assert describe(view, found)["begins"] == begins


def test_sign_and_size() -> None:
    parts = arrays()
    parts["old"] = np.minimum(parts["rollout"] - 0.2 * parts["mask"], 0)
    view = View.from_batch(made(parts))
    found = Evidence(score=1.0, explanation="", tokens=np.ones(len(view), dtype=bool))
    seen = describe(view, found)
    assert (seen["sign"], seen["size"]) == ("mostly below", "up to 0.4")


def test_the_table_has_known_causes_and_finite_points() -> None:
    names, table = read_table()
    assert {*names} <= {*CAUSES}
    assert "unknown" in names
    assert all(
        np.isfinite(row).all() and len(row) == len(names) for row in table.values()
    )
    assert all((row <= 0).all() for key, row in table.items() if key[0] != "prior")


def test_probabilities_sum_to_one_and_need_images_for_images() -> None:
    seen = {"samples": "all", "begins": "later round", "sign": "below"}
    with_images, without = (
        rank_causes(seen, has_images=flag) for flag in (True, False)
    )
    assert with_images.sum() == pytest.approx(1)
    assert without.sum() == pytest.approx(1)
    assert with_images.index[0] == "image_window"
    assert "image_window" not in without.index
    assert with_images.is_monotonic_decreasing


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        ({"samples": "pack", "begins": "fades"}, "packing_leak"),
        ({"samples": "worker", "begins": "everywhere"}, "bad_worker"),
        ({"samples": "block", "begins": "everywhere", "sign": "both"}, "bad_worker"),
        ({"samples": "all", "begins": "end"}, "truncated_round"),
        ({"samples": "all", "begins": "power of two"}, "position_ids"),
        ({"samples": "version in samples", "begins": "until"}, "mixed_weights"),
    ],
)
def test_places_that_name_a_cause(seen: dict[str, str], cause: str) -> None:
    assert rank_causes(seen, has_images=False).index[0] == cause
