"""Whatever a Batch takes, `save`, `load` and the frames keep."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rounddiag.batch import Batch
from rounddiag.capture import Recorder
from rounddiag.core import round_frame, sample_frame, token_frame
from rounddiag.findings import diagnose
from rounddiag.loaders import load, save
from rounddiag.wording import encodable

TEXT = st.text(st.characters(exclude_categories=()), max_size=6)  # surrogates as well
OBJECTS = st.none() | TEXT | st.integers(-(2**70), 2**70) | st.booleans() | st.floats()
FLOATS = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])
INTEGERS = st.sampled_from([torch.int16, torch.int32, torch.int64, torch.uint8])
MASKS = st.sampled_from([torch.bool, torch.int8, torch.int64, torch.float32])
DTYPES = st.sampled_from(["i1", "u8", ">i4", "f2", ">f8", "U3", "S2", "M8[D]", "m8[s]"])


def tensors(size: int, dtypes: Any, low: int, high: int) -> st.SearchStrategy[Any]:
    values = st.lists(st.integers(low, high), min_size=size, max_size=size)
    return st.builds(lambda v, dtype: torch.tensor(v).to(dtype), values, dtypes)


def columns(size: int) -> st.SearchStrategy[Any]:
    numbers = st.lists(st.integers(0, 99), min_size=size, max_size=size)
    plain = st.builds(lambda v, dtype: np.array(v, "i8").astype(dtype), numbers, DTYPES)
    values = st.lists(OBJECTS, min_size=size, max_size=size)
    others = values.map(lambda v: np.fromiter(v, object, len(v)))
    return st.dictionaries(TEXT, plain | others, max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    size, count = sum(lengths), len(lengths)
    log_probs = tensors(size, FLOATS, -9, 0)
    ids = st.none() | st.lists(TEXT, min_size=count, max_size=count).map(tuple)
    ends = torch.tensor(lengths)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), ends.cumsum(0)])
    return Batch(
        response_ids=draw(tensors(size, INTEGERS, 0, 200)),
        response_mask=draw(tensors(size, MASKS, 0, 1)),
        rollout_log_probs=draw(log_probs),
        old_log_probs=draw(log_probs),
        offsets=offsets,
        lengths=ends,
        entropy=draw(st.none() | log_probs),
        rewards=draw(st.none() | tensors(count, FLOATS, -2, 2)),
        group_ids=draw(ids),
        sample_ids=draw(ids),
        step=draw(st.none() | st.integers(0, 2**62)),
        scores=draw(st.dictionaries(TEXT, log_probs, max_size=2)),
        sample_columns=draw(columns(count)),
        meta=draw(st.dictionaries(TEXT, OBJECTS | st.lists(OBJECTS), max_size=2)),
    )


def same(one: object, other: object) -> bool:
    """Return whether values are equal in kind and value; NaN equals NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and same(one.tolist(), other.tolist())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    is_nan = isinstance(one, float) and math.isnan(one)
    if is_nan and isinstance(other, float):
        return math.isnan(other)
    return type(one) is type(other) and one == other


@settings(max_examples=60, deadline=None, derandomize=True)
@given(batches())
def test_what_a_batch_takes_comes_back(batch: Batch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save(batch, Path(folder) / "batch.parquet")
        again = load(Path(folder) / "batch.parquet")
    for name in ("response_mask", "lengths", "group_ids", "sample_ids", "step"):
        assert same(getattr(again, name), getattr(batch, name)), name
    for name, values in {**batch.per_token, **batch.scores}.items():
        assert same({**again.per_token, **again.scores}[name], values), name
    assert same(again.rewards, batch.rewards)
    assert [*again.sample_columns] == [*batch.sample_columns]
    for name, column in batch.sample_columns.items():
        assert same(again.sample_columns[name], column), name
    diagnose(batch)
    for frame in (token_frame, round_frame, sample_frame):
        pd.testing.assert_frame_equal(frame(again), frame(batch))
    ids = batch.sample_ids or ()
    assert all(encodable(name) == name for name in (*ids, *again.scores))


def test_a_lone_surrogate_in_an_id_loses_no_recorded_step(tmp_path: Path) -> None:
    ones = torch.ones(2, 3)
    data = {
        "responses": ones.int(),
        "response_mask": ones,
        "rollout_log_probs": -ones,
        "old_log_probs": -ones / 2,
        "uid": np.array(["a", "\ud800"], dtype=object),
    }
    with Recorder(tmp_path, every=1, diagnose=False) as recorder:
        recorder.step(1, data)
    assert load(tmp_path / "step_1.parquet").group_ids == ("a", "\\ud800")
