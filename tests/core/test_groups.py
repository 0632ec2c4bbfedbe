"""Groups of samples: a row each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.core.groups import GroupedSamples, describe_row_weights
from rounddiag.errors import BatchError
from rounddiag.schema import GROUP_ROWS
from rounddiag.wording import percent


def batch_of(**more: object) -> rd.Batch:
    """Four samples in two groups; sample 2 has no generated token."""
    mask = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
    return rd.Batch.from_padded(
        response_ids=torch.ones_like(mask),
        response_mask=mask,
        group_ids=("b", "a", "b", "a"),
        **more,
    )


ADVANTAGES = torch.tensor(
    [[1.0, 9.0, 3.0], [-1.0, -1.0, -1.0], [9.0, 9.0, 9.0], [0.5, -0.5, 9.0]]
)


def test_a_row_by_hand() -> None:
    rows = rd.groups(
        batch_of(
            advantages=ADVANTAGES,
            rewards=torch.tensor([1.0, 0.0, 0.0, 2.0]),
            prompt_ids=torch.tensor([[1], [2], [1], [3]]),
        )
    )
    assert [*rows] == [column.name for column in GROUP_ROWS.columns]
    assert rows.to_dict("list") == {
        "group_id": ["b", "a"],
        "num_samples": [2, 2],
        "num_trajectories": [2, 2],
        "num_rows": [2, 2],
        "num_prompts": [1, 2],
        "num_tokens": [2, 5],
        "mean_reward": [0.5, 1.0],
        "std_reward": pytest.approx([0.5**0.5, 2**0.5]),
        "min_advantage": [1.0, -1.0],
        "max_advantage": [3.0, 0.5],
        # Sample 2 has no mean; those of samples 1 and 3 are -1 and 0.
        "std_advantage": pytest.approx([np.nan, 0.5**0.5], nan_ok=True),
        "gradient_share": [0.5, 0.5],
    }


def test_tokens_that_the_loss_leaves_out_have_no_weight() -> None:
    loss_mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]])
    rows = rd.groups(batch_of(advantages=ADVANTAGES, loss_mask=loss_mask))
    assert rows["num_tokens"].tolist() == [1, 1]
    assert rows["max_advantage"].tolist() == [1.0, -1.0]
    assert rows["gradient_share"].tolist() == [0.5, 0.5]


def test_columns_without_a_field_are_absent() -> None:
    assert [*rd.groups(batch_of())] == [
        *("group_id", "num_samples", "num_trajectories", "num_rows", "num_tokens")
    ]


@pytest.mark.parametrize(
    ("columns", "num_trajectories"),
    [
        ({"traj_uid": ["x", "x", "x", "y"]}, [1, 2]),  # x of b is not x of a
        ({"traj_uid": ["x", "y", None, "y"]}, [2, 1]),
        ({"episode_ids": [*"xyxy"], "trajectory_ids": [*"1112"]}, [1, 2]),
        ({"episode_ids": [*"xyxy"]}, [2, 2]),
        ({"trajectory_ids": [*"xyxz"]}, [1, 2]),
        ({"rollout_ids": [0, 1, 0, 1]}, [1, 1]),
    ],
)
def test_rows_of_one_trajectory_are_counted_once(
    columns: dict[str, list[object]], num_trajectories: list[int]
) -> None:
    arrays = {name: np.array(v, dtype=object) for name, v in columns.items()}
    rows = rd.groups(batch_of(sample_columns=arrays))
    assert rows["num_trajectories"].tolist() == num_trajectories


def test_joined_rows_are_counted() -> None:
    rows = rd.groups(batch_of(sample_columns={"num_rows": np.array([3, 1, 2, 1])}))
    assert rows["num_rows"].tolist() == [5, 2]


def test_without_groups_there_is_no_row() -> None:
    batch = rd.Batch.from_padded(response_mask=[[1]], response_ids=[[1]])
    with pytest.raises(BatchError, match=r"^This batch has no `group_ids`\.$"):
        rd.groups(batch)


@given(st.data())
def test_shares_are_those_of_tokens_in_float64(data: st.DataObject) -> None:
    num, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    flags = st.lists(st.sampled_from([0, 1]), min_size=width, max_size=width)
    mask = torch.tensor(data.draw(st.lists(flags, min_size=num, max_size=num)))
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=num, max_size=num))
    values = torch.randn(num, width, generator=torch.Generator().manual_seed(num))
    batch = rd.Batch.from_padded(
        response_ids=torch.ones_like(mask),
        response_mask=mask,
        advantages=values,
        group_ids=tuple(names),
    )
    sizes = (values.double().abs() * mask).sum(1).numpy()
    expected = pd.Series(sizes).groupby(names, sort=False).sum()
    rows = rd.groups(batch).set_index("group_id")
    if sizes.sum():
        shares = rows["gradient_share"].to_dict()
        assert shares == pytest.approx((expected / sizes.sum()).to_dict())
    samples = GroupedSamples.of(batch)
    assert np.isnan(samples.low).tolist() == [not row.any() for row in mask]


_trajectories = st.lists(
    st.tuples(
        st.integers(1, 4),  # tokens of a row
        st.integers(1, 5),  # rows
        st.sampled_from([-1.5, -0.5, 0.5, 2.0]),  # advantage
    ),
    min_size=1,
    max_size=6,
)


@given(_trajectories, st.booleans())
def test_a_trajectory_weighs_by_its_rows_where_a_loss_averages_them(
    trajectories: list[tuple[int, int, float]], is_joined: bool
) -> None:
    """Rows of the file, joined or not: each has weight |A|, its tokens |A| each."""
    rows: list[tuple[int, float]] = []
    columns: dict[str, list[object]] = {"traj_uid": [], "num_rows": []}
    for number, (size, count, advantage) in enumerate(trajectories):
        parts = [size * count] if is_joined else [size] * count
        rows += [(part, advantage) for part in parts]
        columns["traj_uid"] += [str(number)] * len(parts)
        columns["num_rows"] += [count if is_joined else 1] * len(parts)
    batch = rd.Batch.from_rows(
        response_ids=[torch.ones(n, dtype=torch.int64) for n, _ in rows],
        response_mask=[torch.ones(n) for n, _ in rows],
        advantages=[torch.full((n,), value) for n, value in rows],
        rewards=torch.tensor([value for _, value in rows]),
        group_ids=("a",) * len(rows),
        sample_columns={name: np.array(v) for name, v in columns.items()},
    )
    found = rd.groups(batch, by="num_rows").to_dict("records")
    total = sum(n * abs(a) for _, n, a in trajectories)
    num_tokens = sum(k * n * abs(a) for k, n, a in trajectories)
    for row in found:
        key = (row["num_rows"], row["reward"])
        own = [(k, n, a) for k, n, a in trajectories if (n, a) == key]
        assert row["num_trajectories"] == len(own)
        assert row["num_tokens"] == sum(k * n for k, n, _ in own)
        expected = sum(n * abs(a) for _, n, a in own) / total
        assert row["row_share"] == pytest.approx(expected)
        expected = sum(k * n * abs(a) for k, n, a in own) / num_tokens
        assert row["gradient_share"] == pytest.approx(expected)
    text = describe_row_weights(batch)
    if len({n for _, n, _ in trajectories}) == 1:
        assert text == ""
    else:
        losing = sum(n * -a for _, n, a in trajectories if a < 0) / total
        assert f"have {percent(losing)} of the gradient weight" in text
        facts = {"facts": {"loss_agg_mode": "token-mean"}}
        assert describe_row_weights(replace(batch, meta=facts)) == ""
        facts = {"facts": {"loss_agg_mode": "seq-mean-token-mean"}}
        assert describe_row_weights(replace(batch, meta=facts)).startswith("The loss")
