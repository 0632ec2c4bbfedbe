"""What the constructors of a Batch take, and how they refuse the rest."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.capture import Recorder
from rounddiag.errors import BatchError
from tests.batches import hand_batch

ROWS: dict[str, list[list[Any]]] = {
    "response_ids": [[5, 6, 7], [8, 9, 10]],
    "response_mask": [[1, 0, 1], [1, 1, 0]],
    "rollout_log_probs": [[-1.0, 0.0, -2.0], [-0.5, -0.25, 0.0]],
    "old_log_probs": [[-1.5, 0.0, -2.0], [-0.5, -0.5, 0.0]],
}
TENSORS = {name: torch.tensor(rows) for name, rows in ROWS.items()}


def frozen(rows: list[list[Any]]) -> np.ndarray[Any, Any]:
    array = np.array(rows)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "convert",
    [torch.tensor, list, np.array, frozen, lambda rows: np.array(rows).astype(">f4")],
)
@pytest.mark.parametrize("make", [Batch.from_padded, Batch.from_rows])
def test_rows_are_tensors_arrays_or_lists(make: Any, convert: Any) -> None:
    fields = {name: convert(rows) for name, rows in ROWS.items()}
    fields["response_ids"] = torch.as_tensor(ROWS["response_ids"]).numpy()
    batch = make(**fields, rewards=[0.5, 1], scores={"ref": convert([[-3.0] * 3] * 2)})
    assert batch.response_ids.tolist() == [5, 6, 7, 8, 9, 10]
    assert batch.old_log_probs.tolist() == [-1.5, 0, -2, -0.5, -0.5, 0]
    assert batch.scores["ref"].tolist() == [-3.0] * 6
    assert batch.rounds.num_tokens.tolist() == [1, 1, 2]
    assert batch.rewards.tolist() == [0.5, 1.0]


def test_empty_lists_of_ids_are_integers() -> None:
    rows = {name: [[], *values] for name, values in ROWS.items()}
    batch = Batch.from_rows(**rows, prompt_ids=[[], [3], [3, 4]])
    assert batch.lengths.tolist() == [0, 3, 3]
    assert batch.require_ids().dtype == torch.int64
    assert batch.prompt_ids.tolist() == [3, 3, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"response_mask": TENSORS["response_mask"].to_sparse()},
            "`response_mask`: expected a dense tensor with its values in memory; found"
            " a tensor of layout torch.sparse_coo.",
        ),
        (
            {"response_ids": TENSORS["response_ids"].to("meta")},
            "`response_ids`: expected a dense tensor with its values in memory; found"
            " a tensor of torch.int64 on meta.",
        ),
        (
            {"old_log_probs": [[-1.0], [-1.0, -2.0]]},
            "`old_log_probs`: expected a tensor, an array or lists of numbers; found a"
            " list: ",
        ),
        (
            {"rewards": ["good", "bad"]},
            "`rewards`: expected a tensor, an array or lists of numbers; found a list:",
        ),
        (
            {"sample_ids": ["a", None]},
            "`sample_ids`: expected a text per sample; found None at sample 1. Name"
            " every sample, for example by its number, or leave it out.",
        ),
        (
            {"group_ids": [7, 7]},
            "`group_ids`: expected a text per sample; found 7 at sample 0.",
        ),
        (
            {"sample_columns": {"rank": [0, 1]}},
            "`rank`: expected an array with a value per row; found a list. Convert the"
            " column with `numpy.array`.",
        ),
        (
            {"round_columns": {"sample": [0], "round": np.array([0])}},
            "`sample`: expected an array with a value per row; found a list.",
        ),
    ],
)
def test_other_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BatchError, match=f"^{re.escape(message)}"):
        Batch.from_padded(**{**TENSORS, **changes})


@pytest.mark.parametrize("name", ["old_log_probs", "response_ids"])
def test_a_nested_tensor_is_refused(name: str) -> None:
    nested = torch.nested.as_nested_tensor([torch.zeros(3)] * 2, layout=torch.jagged)
    message = (
        f"`{name}`: expected a dense tensor with its values in memory; found a nested"
        " tensor. Pass `list(tensor.unbind())`"
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}"):
        Batch.from_padded(**{**TENSORS, name: nested})


def test_the_negative_bit_of_torch_changes_no_number(tmp_path: Path) -> None:
    """A view of the negative, whose bytes have the other sign; numpy has no such."""

    def negative(values: torch.Tensor) -> torch.Tensor:
        view: torch.Tensor = torch._neg_view(-values)
        assert view.is_neg()
        return view

    fields = {
        "response_ids": torch.tensor([[5, 6, 7], [8, 9, 10]]),
        "response_mask": torch.tensor([[1, 1, 0], [1, 0, 1]]),
        "rollout_log_probs": torch.tensor([[-1.0, -2.0, 0.0], [-3.0, 0.0, -4.0]]),
        "old_log_probs": torch.tensor([[-1.5, -2.0, 0.0], [-3.5, 0.0, -4.0]]),
        "entropy": torch.rand(2, 3),
    }
    odd = {name: negative(values) for name, values in fields.items()}
    columns = ["token_id", "rollout_log_prob", "old_log_prob", "entropy"]
    expected = rd.token_frame(rd.Batch.from_padded(**fields), columns)
    torch.save(odd, tmp_path / "odd.pt")
    rows = {name: [negative(row) for row in fields[name]] for name in fields}
    with Recorder(tmp_path, every=1, diagnose=False) as recorder:
        recorder.step(1, {**odd, "responses": odd["response_ids"]})
    for batch in (
        rd.Batch.from_padded(**odd),
        rd.Batch.from_rows(**rows),
        rd.load(odd),
        rd.load(tmp_path / "odd.pt"),
        rd.load(tmp_path / "step_1.parquet"),
    ):
        pd.testing.assert_frame_equal(rd.token_frame(batch, columns), expected)
        rd.diagnose(batch)
    whole = rd.Batch.from_padded(**fields)
    with pytest.raises(BatchError, match="a tensor with torch's negative bit"):
        replace(whole, entropy=negative(fields["entropy"].reshape(-1)))


@pytest.mark.parametrize("index", [slice(None, None, -1), slice(0, 2, 0)])
def test_a_slice_that_goes_back_is_refused(index: slice) -> None:
    with pytest.raises(BatchError, match="expected sample numbers below 3"):
        hand_batch()[index]
