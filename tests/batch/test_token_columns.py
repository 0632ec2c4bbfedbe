"""Columns with a value per token, from the Batch to frames, files and filters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag import Batch
from rounddiag.batch.trajectories import join_rows
from rounddiag.core.measured import Measured
from rounddiag.errors import BatchError, FrameError
from rounddiag.findings import View
from rounddiag.findings.conditions import columns_of_tokens
from rounddiag.loaders.assembly.concatenation import concatenate
from rounddiag.stats import round_summary
from rounddiag.stats.grouping import split_by
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.sample_view import sample_payload
from tests.batches import hand_batch

VERSION = torch.arange(18).reshape(3, 6)
# The numbers of the hand batch's generated positions.
GENERATED = [0, 1, 3, 7, 8, 9, 11, 12]
NAMES = ["version", "kl", "clipped"]


def batch_of(**others: Any) -> Batch:
    columns = {
        "version": VERSION,
        "kl": (VERSION / 8).bfloat16(),
        "clipped": VERSION % 2 == 1,
    }
    return hand_batch(token_columns=columns, **others)


def test_the_frame_has_the_values_of_generated_tokens() -> None:
    frame = rd.token_frame(batch_of(), NAMES)
    assert frame["version"].tolist() == GENERATED
    assert frame["kl"].tolist() == [n / 8 for n in GENERATED]
    assert frame["clipped"].tolist() == [n % 2 == 1 for n in GENERATED]
    assert [*map(str, frame.dtypes[NAMES])] == ["int64", "float32", "bool"]


def test_a_column_of_tokens_hides_one_of_rounds_and_samples() -> None:
    batch = batch_of(sample_columns={"version": np.array([70, 80, 90])})
    assert rd.token_frame(batch, ["version"])["version"].tolist() == GENERATED


def test_samples_keep_their_values() -> None:
    batch = batch_of()
    assert rd.token_frame(batch[1], ["version"])["version"].tolist() == [7, 8, 9, 11]
    chosen = batch.where([True, False, True])
    assert rd.token_frame(chosen, ["version"])["version"].tolist() == [0, 1, 3, 12]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_to_moves_them_and_the_frame_is_the_same() -> None:
    moved = batch_of().to("cuda")
    assert {flat.device.type for flat in moved.token_columns.values()} == {"cuda"}
    pd.testing.assert_frame_equal(
        rd.token_frame(moved, NAMES), rd.token_frame(batch_of(), NAMES)
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(3, 5), "`x`: expected shape (3, 6), as `response_mask`"),
        (torch.zeros(3, 6, 2), "`x`: expected shape (3, 6), as `response_mask`"),
        (torch.zeros(3, 6, dtype=torch.complex64), "`x`: expected numbers or flags"),
        ([["a"] * 6] * 3, "`x`: expected a tensor, an array or lists of numbers"),
    ],
)
def test_odd_values_are_refused(values: Any, message: str) -> None:
    with pytest.raises(BatchError, match=f"^{re.escape(message)}"):
        hand_batch(token_columns={"x": values})


rows = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(-(2**40), 2**40)), max_size=6),
    min_size=1,
    max_size=4,
)
DTYPES = [torch.int64, torch.int8, torch.float32, torch.float16, torch.bool]


def ragged(samples: list[list[tuple[bool, int]]], dtype: torch.dtype) -> Batch:
    mask = [[int(flag) for flag, _ in row] for row in samples]
    numbers = [torch.tensor([n for _, n in row]).to(dtype) for row in samples]
    zeros = [[0.0] * len(row) for row in samples]
    return Batch.from_rows(
        response_mask=mask,
        response_ids=mask,
        old_log_probs=zeros,
        rollout_log_probs=zeros,
        token_columns={"x": numbers},
    )


@given(samples=rows, dtype=st.sampled_from(DTYPES))
def test_a_round_trip_keeps_values_and_dtype(
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[list[tuple[bool, int]]],
    dtype: torch.dtype,
) -> None:
    batch = ragged(samples, dtype)
    path = tmp_path_factory.mktemp("saved") / "batch.parquet"
    rd.save(batch, path)
    again = rd.load(path).token_columns["x"]
    assert again.dtype == dtype
    assert torch.equal(again, batch.token_columns["x"])


@given(samples=rows, num_padding=st.integers(0, 3))
def test_padding_changes_nothing(
    samples: list[list[tuple[bool, int]]], num_padding: int
) -> None:
    batch = ragged(samples, torch.int64)
    width = int(batch.lengths.max()) + num_padding

    def pad(flat: torch.Tensor, value: int) -> torch.Tensor:
        out = torch.full((len(batch), width), value, dtype=flat.dtype)
        for row, values in enumerate(flat.split(batch.lengths.tolist())):
            out[row, : len(values)] = values
        return out

    padded = Batch.from_padded(
        response_mask=pad(batch.response_mask, 0),
        response_ids=pad(batch.require_ids(), 0),
        old_log_probs=torch.zeros(len(batch), width),
        rollout_log_probs=torch.zeros(len(batch), width),
        lengths=batch.lengths,
        token_columns={"x": pad(batch.token_columns["x"], 99)},
    )
    pd.testing.assert_frame_equal(
        rd.token_frame(padded, ["x"]), rd.token_frame(batch, ["x"])
    )


@given(samples=rows, keep=st.data())
def test_slices_have_the_rows_of_the_frame(
    samples: list[list[tuple[bool, int]]], keep: st.DataObject
) -> None:
    batch = ragged(samples, torch.int64)
    chosen = keep.draw(st.lists(st.integers(0, len(batch) - 1), unique=True))
    frame = rd.token_frame(batch, ["x"])
    expected = [frame["x"][frame["sample"] == sample] for sample in chosen]
    part = rd.token_frame(batch[chosen], ["x"])
    assert part["x"].tolist() == [n for values in expected for n in values]


def test_redaction_keeps_measures_and_flags_and_no_ids(tmp_path: Path) -> None:
    columns = {
        "kl": VERSION / 8,
        "clipped": VERSION % 2 == 1,
        "weight": (VERSION % 2).float(),
        "labels": VERSION + 1000,
        "targets": (VERSION + 1000).float(),
        "request_id": VERSION / 8,
    }
    rd.save(hand_batch(token_columns=columns), tmp_path / "r.parquet", redact=True)
    again = rd.load(tmp_path / "r.parquet")
    assert [*again.token_columns] == ["kl", "clipped", "weight"]


def test_parts_are_joined_and_what_one_lacks_is_named() -> None:
    whole = batch_of()
    joined = concatenate([whole[:2], whole[2:]])
    assert torch.equal(joined.token_columns["version"], VERSION.reshape(-1))
    joined = concatenate([whole[:2], hand_batch()[2:]])
    assert joined.token_columns == {}
    assert joined.meta["left_out"] == sorted(NAMES)


def test_observations_between_joined_steps_are_unknown() -> None:
    steps = batch_of(
        prompt_ids=torch.tensor([[1, 2], [3, 4], [5, 6]]),
        sample_columns={"run": np.array([0, 0, 0]), "step": np.array([0, 1, 2])},
    )
    joined = join_rows(steps, "run", "step")
    kl = joined.token_columns["kl"].float()
    assert kl.isnan().nonzero()[:, 0].tolist() == [6, 7, 14, 15]
    assert joined.token_columns["version"][[6, 7]].tolist() == [0, 0]
    assert rd.token_frame(joined, ["version"])["version"].tolist() == GENERATED


def test_by_divides_tokens_and_rounds() -> None:
    constant = torch.tensor([[3] * 6, [4] * 6, [3] * 6])
    batch = hand_batch(token_columns={"version": constant, "flag": VERSION % 2})
    summary = round_summary(batch, by="version")
    assert summary[["version", "round", "num_tokens"]].to_numpy().tolist() == [
        *([3, 0, 3], [3, 1, 1], [4, 0, 3], [4, 1, 1])
    ]
    split = split_by(Measured.of(batch), "flag")
    assert split.codes.tolist() == [n % 2 for n in GENERATED]
    with pytest.raises(FrameError, match="one value for all tokens of a round"):
        round_summary(batch, by="flag")


def test_filters_offer_and_apply_them() -> None:
    columns = BatchColumns(batch_of())
    offers = {offer["name"]: offer for offer in columns.offers()}
    assert offers["version"]["values"] == GENERATED
    assert offers["kl"]["ends"] == [0, 1.5]
    assert offers["clipped"]["values"] == [False, True]
    assert columns.keep("version", [8, 9]).nonzero()[0].tolist() == [4, 5]
    assert columns.keep("kl", {"from": 1.1}).nonzero()[0].tolist() == [5, 6, 7]
    assert columns.scope("version") == "token"


def test_the_page_gets_the_numbers_of_a_sample() -> None:
    of_file = sample_payload(batch_of(), 1)["tokens"]["of_file"]
    assert {name: values.tolist() for name, values in of_file.items()} == {
        "version": [7, 8, 9, 11],
        "kl": [0.875, 1, 1.125, 1.375],
        "clipped": [True, False, True, True],
    }


def test_flags_and_names_are_conditions_of_places_and_measures_are_not() -> None:
    columns = {
        column.name: column
        for column in columns_of_tokens(View.from_batch(batch_of()))
        if column.name in NAMES
    }
    assert [*columns] == ["version", "clipped"]
    assert columns["clipped"].codes.tolist() == [0, 1, 1, 1, 0, 1, 1, 0]
