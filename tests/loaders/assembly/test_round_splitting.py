"""Stop tokens, and holes that a rejection left."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch, token_frame
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.assembly.round_splitting import fill_mask_holes, split_after
from rounddiag.vision import EncodedScreenshot
from tests.batches import masks, padded
from tests.loaders.verl_writer import small_batch, write

STOP = 2


def turns(ids: list[list[int]], mask: list[list[int]], **others: Any) -> Batch:
    """A batch of these tokens, all with log-probs of -1 and -2."""
    zeros = torch.zeros(len(ids), len(ids[0]))
    batch = padded(mask, zeros - 1, zeros - 2, **others)
    return replace(batch, response_ids=torch.tensor(ids).flatten())


def test_a_run_is_divided_after_each_stop_token() -> None:
    batch = turns([[5, STOP, 6, 7, STOP, 8]], [[1, 1, 1, 1, 1, 1]])

    divided = split_after(batch, [STOP])

    assert divided.rounds.num_tokens.tolist() == [2, 3, 1]
    assert divided.rounds.round.tolist() == [0, 1, 2]
    assert divided.meta["stop_tokens"] == "2 runs divided after 2"


def test_a_stop_token_at_the_end_of_a_run_or_sample_divides_nothing() -> None:
    ids = [[5, STOP, 9, STOP], [STOP, 5, 6, STOP]]
    batch = turns(ids, [[1, 1, 0, 0], [0, 1, 1, 1]])

    divided = split_after(batch, [STOP])

    assert divided.rounds.num_tokens.tolist() == [2, 3]
    assert divided.meta["stop_tokens"] == "0 runs divided after 2"


def test_several_stop_tokens_in_a_row_end_a_round_each() -> None:
    batch = turns([[5, STOP, 3, 6]], [[1, 1, 1, 1]])

    assert split_after(batch, (3, STOP)).rounds.num_tokens.tolist() == [2, 1, 1]


def test_round_ids_of_the_file_go_on_dividing() -> None:
    ids = torch.tensor([[7, 7, 7, 9, 9, 7]])
    batch = turns([[5, STOP, 6, 7, 8, 9]], [[1] * 6], round_ids=ids)

    assert split_after(batch, [STOP]).rounds.num_tokens.tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize("token", ["<|im_end|>", -1, 1 << 70, None, 2.0])
def test_what_is_no_token_id_is_an_error(token: Any) -> None:
    message = (
        f"`stop_tokens`: expected a list of token ids; found {[token]}."
        " Pass the numbers: `tokenizer.convert_tokens_to_ids(...)`."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        split_after(turns([[5]], [[1]]), [token])


def test_stop_tokens_may_be_an_array() -> None:
    batch = turns([[5, STOP, 6]], [[1, 1, 1]])
    assert split_after(batch, np.array([STOP])).num_rounds == 2


def test_images_and_round_columns_go_with_their_tokens() -> None:
    shots = [EncodedScreenshot(data=b"", round=index) for index in (0, 1, None)]
    columns = {
        "sample": np.array([1, 1]),
        "round": np.array([0, 1]),
        "version": np.array(["a", "b"]),
    }
    batch = turns(
        [[5, 6, 7, 8, 9], [5, STOP, 6, 9, 8]],
        [[1, 1, 1, 1, 1], [1, 1, 1, 0, 1]],
        images=((), tuple(shots)),
        round_columns=columns,
    )

    divided = split_after(batch, [STOP])

    assert [shot.round for shot in divided.images[1]] == [0, 2, None]
    assert divided.round_columns["round"].tolist() == [0, 2]
    assert divided.round_columns["version"].tolist() == ["a", "b"]
    assert "left_out" not in divided.meta


def punched(**others: Any) -> Batch:
    """A round of five tokens with two holes, an observation, and one more token."""
    batch = padded(
        [[1, 0, 1, 0, 1, 0, 1]],
        torch.full((1, 7), -1.0),
        torch.tensor([[-1.0, -9.0, -1.0, -8.0, -1.0, 0.0, -1.0]]),
        **others,
    )
    assert batch.num_rounds == 4
    return batch


def test_holes_are_reported() -> None:
    batch = fill_mask_holes(punched(), fill=False)

    assert batch.num_rounds == 4
    assert batch.meta["holes"] == "2 found; load(..., fill_holes=True) fills them"


def test_holes_are_filled_and_the_mask_of_the_file_is_kept() -> None:
    batch = fill_mask_holes(punched(), fill=True)

    assert batch.rounds.num_tokens.tolist() == [5, 1]
    assert batch.response_mask.tolist() == [1, 1, 1, 1, 1, 0, 1]
    assert batch.loss_mask.tolist() == [1, 0, 1, 0, 1, 0, 1]
    assert batch.meta["holes"] == "2 filled"


def test_a_loss_mask_of_the_file_stays() -> None:
    loss_mask = torch.tensor([[0, 0, 1, 0, 1, 0, 1]])

    batch = fill_mask_holes(punched(loss_mask=loss_mask), fill=True)

    assert batch.loss_mask.tolist() == [0, 0, 1, 0, 1, 0, 1]


def test_rows_of_rounds_that_become_one_are_counted() -> None:
    columns = {
        "sample": np.array([0, 0, 0]),
        "round": np.array([3, 1, 0]),
        "version": np.array([30, 10, 0]),
    }
    shot = EncodedScreenshot(data=b"", round=3)

    batch = fill_mask_holes(
        punched(round_columns=columns, images=((shot,),)), fill=True
    )

    assert batch.round_columns["round"].tolist() == [1, 0]
    assert batch.round_columns["version"].tolist() == [30, 10]
    assert batch.meta["left_out"] == ["1 row of `round_columns`"]
    assert batch.images[0][0].round == 1


def test_rows_of_rounds_that_are_not_there_stay_as_they_are() -> None:
    columns = {
        "sample": np.array([0, 0, 7], dtype=np.uint64),
        "round": np.array([3, 9, 0], dtype=np.uint64),
    }
    batch = fill_mask_holes(punched(round_columns=columns), fill=True)

    assert batch.round_columns["sample"].tolist() == [0, 0, 7]
    assert batch.round_columns["round"].tolist() == [1, 9, 0]


def test_a_batch_without_holes_is_left_alone() -> None:
    batch = turns([[5, 6, 7]], [[1, 1, 0]])
    assert fill_mask_holes(batch, fill=True) is batch


def test_load_has_both_options(tmp_path: Path) -> None:
    fields = {
        **small_batch(),
        "response_mask": torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]]),
    }
    path = write(tmp_path / "a.pkl", fields)

    batch = load(path, fill_holes=True, stop_tokens=[6])

    assert batch.meta["holes"] == "1 filled"
    assert batch.meta["stop_tokens"] == "1 runs divided after 6"
    assert batch.rounds.num_tokens.tolist() == [2, 2, 1]


@given(masks(), st.lists(st.integers(0, 3), max_size=60), st.sets(st.integers(0, 3)))
def test_dividing_moves_no_token(
    mask: list[list[int]], ids: list[int], stops: set[int]
) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    size = shape[0] * shape[1]
    zeros = torch.zeros(shape)
    tensor = torch.tensor(mask, dtype=torch.int64).reshape(shape)
    batch = padded(tensor, zeros - 1, zeros - 2)
    tokens = torch.tensor([*ids, *[0] * size][:size], dtype=torch.int64)
    batch = replace(batch, response_ids=tokens)

    divided = split_after(batch, stops)

    columns = ["token_id", "position"]
    before, after = token_frame(batch, columns), token_frame(divided, columns)
    for name in ("sample", "diff", *columns):
        assert before[name].tolist() == after[name].tolist()
    ends = after.groupby(["sample", "round"])["token_id"].agg(list)
    assert all({*found[:-1]}.isdisjoint(stops) for found in ends)


def test_one_stop_token_alone_is_no_list(tmp_path: Path) -> None:
    path = write(tmp_path / "batch.pkl", small_batch())
    message = (
        "`stop_tokens`: expected a list of token ids; found 99."
        " Pass the numbers: `tokenizer.convert_tokens_to_ids(...)`."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load(path, stop_tokens=99)  # type: ignore[arg-type]
