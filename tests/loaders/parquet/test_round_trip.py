from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rounddiag.batch import Batch
from rounddiag.loaders.parquet import load_parquet, save
from tests.loaders.facts import has


@pytest.fixture
def again(full: Batch, tmp_path: Path) -> Batch:
    save(full, tmp_path / "batch.parquet")
    return load_parquet(tmp_path / "batch.parquet")


INF = float("inf")
KEPT = {
    # Padding is left out.
    "offsets": [0, 3, 3, 5],
    "lengths": [3, 0, 2],
    "response_ids": [5, 6, 7, 8, 151655],
    "response_mask": [True, False, True, True, True],
    "rollout_log_probs": [-0.5, 0.0, None, -INF, -2.0],
    "old_log_probs": [-0.1, -1.0, INF, None, -2.5],
    "entropy": [0.5, 0.25, None, 1.0, 2.0],
    "advantages": [-1.5] * 5,
    "loss_mask": [True, False, False, False, True],
    "round_ids": [0, 0, 1, 0, 1],
    "scores": {"ref": [-0.75] * 5, "a b.c": [0.0] * 5},
    "rewards": [1.0, 0.0, None],
    "group_ids": ["a", "a", "ü"],
    "sample_ids": ["a-0", "a-1", ""],
    "prompt_ids": [1, 2, 3, 4, 5],
    "prompt_offsets": [0, 2, 2, 5],
    "rollout_ids": [[5, 60, 7, 70], [], [8]],
    "rounds.sample": [0, 0, 2, 2],
    "rounds.num_tokens": [1, 1, 1, 1],
    "step": 40,
    # In the order of the samples.
    "round_columns": {
        "sample": [0, 0, 2],
        "round": [0, 1, 0],
        "version": [5, 6, 7],
        "request": ["a", "b", "c"],
        "hashes": [None, [], ["h"]],
    },
    "meta.mask_source": "response_mask",
    "meta.sampling": {"top_p": 0.9, "seed": None},
}


def test_every_field_comes_back(again: Batch, tmp_path: Path) -> None:
    has(again, {**KEPT, "meta.source": str(tmp_path / "batch.parquet")})
    assert [tuple(row.shape) for row in again.position_ids] == [(4, 5), (4, 0), (5,)]
    assert again.position_ids[0][3].tolist() == [15, 16, 17, 18, 19]


def test_every_field_keeps_its_dtype(full: Batch, again: Batch) -> None:
    names = [*full.per_token, "prompt_ids", "prompt_offsets", "rewards", "lengths"]
    assert {n: getattr(again, n).dtype for n in names} == {
        n: getattr(full, n).dtype for n in names
    }
    assert again.scores["ref"].dtype == torch.bfloat16
    assert {row.dtype for row in (*again.position_ids, *again.rollout_ids)} == {
        torch.int64
    }
    dtypes = {name: str(column.dtype) for name, column in again.round_columns.items()}
    assert dtypes == {
        "sample": "int16",
        "round": "int64",
        "version": "int32",
        "request": "<U1",
        "hashes": "object",
    }
    assert list(again.sample_columns) == list(full.sample_columns)
    for name, column in full.sample_columns.items():
        found = again.sample_columns[name]
        assert (found.dtype, found.shape) == (column.dtype, column.shape)
        assert repr(found.tolist()) == repr(column.tolist())  # NaN is NaN, None is None


def test_rows_of_one_dimension_need_no_shapes(full: Batch, tmp_path: Path) -> None:
    save(full, tmp_path / "batch.parquet")
    names = pq.read_schema(tmp_path / "batch.parquet").names
    assert [name for name in names if name.endswith("_shape")] == ["position_ids_shape"]


def test_no_samples(full: Batch, tmp_path: Path) -> None:
    save(full[:0], tmp_path / "empty.parquet")
    again = load_parquet(tmp_path / "empty.parquet")
    assert (again.num_samples, again.num_tokens) == (0, 0)
    assert (again.group_ids, again.images, again.position_ids) == ((), (), ())
    assert {*again.sample_columns} == {"original_sample", *full.sample_columns}
    assert {*again.round_columns} == {*full.round_columns}


def test_what_is_absent_stays_absent(tmp_path: Path) -> None:
    save(bare([2]), tmp_path / "bare.parquet")
    again = load_parquet(tmp_path / "bare.parquet")
    names = ("prompt_ids", "prompt_offsets", "entropy", "advantages", "loss_mask")
    others = ("round_ids", "rewards", "group_ids", "sample_ids", "step", "images")
    rest = ("tokenizer", "position_ids", "rollout_ids")
    assert [getattr(again, name) for name in (*names, *others, *rest)] == [None] * 14
    assert again.scores == again.sample_columns == again.round_columns == {}
    assert again.meta == {"source": str(tmp_path / "bare.parquet")}


def test_a_selection_keeps_its_prompts(full: Batch, tmp_path: Path) -> None:
    save(full[2], tmp_path / "one.parquet")
    again = load_parquet(tmp_path / "one.parquet")
    assert again.prompt_ids.tolist() == [3, 4, 5]
    assert again.sample_columns["original_sample"].tolist() == [2]


def test_ids_beyond_32_bits(tmp_path: Path) -> None:
    batch = Batch.from_rows(
        response_ids=[torch.tensor([1 << 40, -1])],
        response_mask=[torch.ones(2)],
        rollout_log_probs=[torch.zeros(2)],
        old_log_probs=[torch.zeros(2)],
    )
    save(batch, tmp_path / "wide.parquet")
    again = load_parquet(tmp_path / "wide.parquet")
    assert again.require_ids().tolist() == [1 << 40, -1]


def test_tensors_of_any_device_that_require_grad(
    device: torch.device, tmp_path: Path
) -> None:
    batch = Batch.from_padded(
        response_ids=torch.tensor([[1, 2]], device=device),
        response_mask=torch.tensor([[0.0, 1.0]], device=device),
        rollout_log_probs=torch.tensor(
            [[-0.5, -1.0]], dtype=torch.bfloat16, device=device
        ),
        old_log_probs=torch.tensor(
            [[-0.5, -1.25]], dtype=torch.float16, device=device, requires_grad=True
        ),
    )
    save(batch, tmp_path / "device.parquet")
    again = load_parquet(tmp_path / "device.parquet")
    assert again.log_probs("old").dtype == torch.float16
    assert again.log_probs("rollout").dtype == torch.bfloat16
    assert again.log_probs("old").tolist() == [-0.5, -1.25]
    assert again.log_probs("rollout").tolist() == [-0.5, -1.0]


@settings(max_examples=min(40, settings().max_examples))
@given(data=st.data(), sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_any_rows_come_back_bit_for_bit(
    data: st.DataObject, sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    numbers = hnp.arrays(np.float32, sum(sizes), elements=st.floats(width=32))
    old = torch.from_numpy(data.draw(numbers))
    batch = bare(sizes, old=old)
    path = tmp_path_factory.mktemp("any") / "batch.parquet"
    save(batch, path)
    again = load_parquet(path)
    assert torch.equal(again.offsets, batch.offsets)
    assert torch.equal(again.response_mask, batch.response_mask != 0)
    assert torch.equal(again.log_probs("old").view(torch.int32), old.view(torch.int32))


def bare(sizes: list[int], old: torch.Tensor | None = None) -> Batch:
    total = sum(sizes)
    ids = torch.arange(total)
    fields = {
        "response_ids": ids,
        "response_mask": ids % 3 != 0,
        "rollout_log_probs": torch.zeros(total),
        "old_log_probs": torch.zeros(total) if old is None else old,
    }
    return Batch.from_rows(**{k: list(v.split(sizes)) for k, v in fields.items()})


DTYPES = [
    *("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"),
    *(">i2", ">f8", ">M8[s]", ">m8[ms]", "U4", "S3", "O"),
    *(f"M8[{unit}]" for unit in ("Y", "M", "D", "h", "s", "ms", "us", "ns", "25s")),
    *(f"m8[{unit}]" for unit in ("Y", "D", "m", "s", "ms", "us", "ns", "ps")),
]


def test_days_beyond_those_of_arrow(tmp_path: Path) -> None:
    column = np.array([1 << 31, 0]).astype("M8[D]")
    batch = replace(bare([1, 1]), sample_columns={"x": column})
    save(batch, tmp_path / "batch.parquet")
    found = load_parquet(tmp_path / "batch.parquet").sample_columns["x"]
    np.testing.assert_array_equal(found, column, strict=True)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@settings(
    max_examples=min(60, settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    num_samples=st.integers(0, 3),
    kinds=st.lists(
        st.tuples(st.sampled_from(DTYPES), st.sampled_from([(), (2,)])), min_size=5
    ),
)
def test_any_column_comes_back_with_its_dtype(
    data: st.DataObject,
    num_samples: int,
    kinds: list[tuple[str, tuple[int, ...]]],
    tmp_path: Path,
) -> None:
    columns = {
        f"column {number}": data.draw(
            hnp.arrays(
                dtype,
                (num_samples, *shape),
                elements=PLAIN if dtype == "O" else None,
                fill=st.nothing(),
            )
        )
        for number, (dtype, shape) in enumerate(kinds)
    }
    batch = replace(bare([1] * num_samples), sample_columns=columns)
    save(batch, tmp_path / "batch.parquet")
    found = load_parquet(tmp_path / "batch.parquet").sample_columns
    for name, column in columns.items():
        assert (found[name].dtype, found[name].shape) == (column.dtype, column.shape)
        assert repr(_values(found[name])) == repr(_values(column))


def _values(column: np.ndarray[Any, Any]) -> list[Any]:
    """Times as numbers: numpy 2.5 cannot print those far from today."""
    is_time = column.dtype.kind in "mM"
    values = column.view(column.dtype.str[0] + "i8") if is_time else column
    return list(values.tolist())
