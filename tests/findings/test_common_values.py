"""What the samples of a set have in common: all on one rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.checks.contracts import LEVEL
from rounddiag.findings.common_values import CommonValue, find_common_values
from rounddiag.findings.conditions import columns_of_tokens
from rounddiag.findings.place import find_places
from rounddiag.findings.view import View
from tests.faults.planted import place_columns, plant
from tests.faults.steps import realistic_step
from tests.findings.small import Array, arrays, made


def common_values(
    rows: list[int] | Array,
    columns: dict[str, Any],
    *,
    num: int = 16,
    candidates: list[int] | None = None,
    **others: Any,
) -> dict[str, CommonValue]:
    """What samples have in common, by the condition."""
    view = View.from_batch(made(arrays(num), sample_columns=columns, **others))
    tokens = np.isin(view.sample, rows)
    values = find_common_values(
        view,
        columns_of_tokens(view),
        tokens=tokens,
        over=tokens,
        candidates=np.arange(num) if candidates is None else np.array(candidates),
    )
    return {str(value.condition): value for value in values}


RANK = np.arange(16) % 4


def test_the_p_value_counts_each_value_that_could_have_been_as_unlikely() -> None:
    # 4 of 16 on one of four ranks: 4 of 1,820. Half of the samples cannot be as rare.
    half = np.where(np.arange(16) < 8, "done", "failed")
    values = common_values([1, 5, 9, 13], {"rank": RANK, "status": half})
    assert [*values] == ["rank = 1"]
    value = values["rank = 1"]
    assert value.p == pytest.approx(4 / 1820)
    assert value.is_whole
    # Columns of four values more: the third is above the level, and none is named.
    others = {"host": np.arange(16) // 4, "engine": np.arange(16)[::-1] // 4}
    values = common_values([1, 5, 9, 13], {"rank": RANK, "host": others["host"]})
    assert values["rank = 1"].p == pytest.approx(8 / 1820)
    assert not common_values([1, 5, 9, 13], {"rank": RANK, **others})


def test_a_part_of_a_rank_is_counted() -> None:
    rank = np.arange(32) % 4
    (value,) = common_values([1, 5, 9, 13, 17, 21], {"rank": rank}, num=32).values()
    assert value.text == "all on rank 1 (6 of its 8, p 0.0001)"
    assert not value.is_whole
    # Samples that cannot be in the set say nothing against the whole of it.
    rows = [1, 5, 9, 13, 17, 21]
    can_be = [row for row in range(32) if row < 24]
    (value,) = common_values(rows, {"rank": rank}, num=32, candidates=can_be).values()
    assert value.is_whole
    assert value.num_with_value == 8


def test_a_set_of_whole_groups_is_a_set_of_groups() -> None:
    group = np.arange(64) // 4
    rank, groups = group // 2, tuple(f"task-{i}" for i in group)
    rows = np.flatnonzero(rank == 3)
    # Two of 16 groups are on one rank in 1 of 15 cases.
    assert not common_values(rows, {"rank": rank}, num=64, group_ids=groups)
    assert "rank = 3" in common_values(rows, {"rank": rank}, num=64)


def test_numbers_that_are_cut_into_ranges_are_no_values() -> None:
    scores = np.sort(np.random.default_rng(0).normal(size=128))
    assert not common_values(np.arange(8), {"score": scores}, num=128)


def test_random_ranks_are_named_at_most_at_the_level() -> None:
    rng = np.random.default_rng(0)
    num = 200
    named = sum(
        bool(
            common_values(
                rng.permutation(64)[:4],
                {"rank": rng.permutation(64) % 8, "replica": rng.permutation(64) % 16},
                num=64,
            )
        )
        for _ in range(num)
    )
    # Binomial: more than 5 of 200 at a level of 1 / 200 has a probability of 6e-4.
    assert named <= 5
    assert LEVEL == 1 / 200


def test_the_rank_of_a_few_bad_samples_of_a_step_is_named() -> None:
    step = realistic_step(1, num_samples=64, rounds=(8, 20))
    rows = np.flatnonzero(step.sample_columns["rank"] == 3)
    bad = rows[:: len(rows) // 4].tolist()
    place = {"role": ("==", "coordinates"), "sample": ("in", bad), "round": (">=", 6)}
    planted, affected, _ = plant(step, place, "all", 0, columns=place_columns(step))
    diagnosis = rd.diagnose(planted)
    (finding,) = diagnosis
    (first,) = find_places(finding.view)
    (value,) = first.common_values
    listed = ", ".join(map(str, bad))
    assert (
        first.text == f"coordinates, in samples {listed}, {value.text}, from round 6 on"
    )
    assert value.text.startswith(f"all on rank 3 (4 of its {len(rows)}, p 0.00")
    assert "bad_worker" in {name.cause for name in finding.candidates}
    assert value.text in diagnosis.headline
    assert str(finding.where["common_values"][0].condition) == "rank = 3"
    assert finding.where["place"].num_large == affected.sum()
