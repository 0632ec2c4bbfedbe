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
from tests.loaders.facts import has
from tests.loaders.verl_writer import small_batch, write

STOP = 2


def turns(ids: list[list[int]], mask: list[list[int]], **others: Any) -> Batch:
    """A batch of these tokens, all with log-probs of -1 and -2."""
    zeros = torch.zeros(len(ids), len(ids[0]))
    batch = padded(mask, zeros - 1, zeros - 2, **others)
    return replace(batch, response_ids=torch.tensor(ids).flatten())


ROUND_IDS = {"round_ids": torch.tensor([[7, 7, 7, 9, 9, 7]])}
# Ids, mask, other fields, stop tokens; the sizes of the rounds, and what is said.
DIVIDED: dict[str, tuple[Any, Any, dict[str, Any], Any, list[int], str]] = {
    "after each stop token": (
        [[5, STOP, 6, 7, STOP, 8]],
        [[1, 1, 1, 1, 1, 1]],
        {},
        [STOP],
        [2, 3, 1],
        "2 runs divided after 2",
    ),
    "not at the end of a run or sample": (
        [[5, STOP, 9, STOP], [STOP, 5, 6, STOP]],
        [[1, 1, 0, 0], [0, 1, 1, 1]],
        {},
        [STOP],
        [2, 3],
        "0 runs divided after 2",
    ),
    "after several in a row": (
        [[5, STOP, 3, 6]],
        [[1, 1, 1, 1]],
        {},
        (3, STOP),
        [2, 1, 1],
        "2 runs divided after 3, 2",
    ),
    "beside round ids of the file": (
        [[5, STOP, 6, 7, 8, 9]],
        [[1] * 6],
        ROUND_IDS,
        [STOP],
        [2, 1, 2, 1],
        "1 runs divided after 2",
    ),
    "after those of an array": (
        [[5, STOP, 6]],
        [[1, 1, 1]],
        {},
        np.array([STOP]),
        [2, 1],
        "1 runs divided after 2",
    ),
}


@pytest.mark.parametrize(
    ("ids", "mask", "others", "stops", "sizes", "said"), DIVIDED.values(), ids=DIVIDED
)
def test_runs_are_divided(
    ids: Any, mask: Any, others: Any, stops: Any, sizes: list[int], said: str
) -> None:
    batch = split_after(turns(ids, mask, **others), stops)
    has(batch, {"rounds.num_tokens": sizes, "meta.stop_tokens": said})


@pytest.mark.parametrize("tokens", [["<|im_end|>"], [-1], [1 << 70], [None], [2.0], 99])
def test_what_are_no_token_ids_is_an_error(tokens: Any) -> None:
    message = f"`stop_tokens`: expected a list of token ids; found {tokens}."
    with pytest.raises(LoadError, match=f"^{re.escape(message)}"):
        split_after(turns([[5]], [[1]]), tokens)


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


ROWS = {"sample": np.array([0, 0, 0]), "round": np.array([3, 1, 0])}
LATER = {
    "sample": np.array([0, 0, 7], dtype=np.uint64),
    "round": np.array([3, 9, 0], dtype=np.uint64),
}
FILLED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the mask of the file is kept": (
        {},
        {
            "rounds.num_tokens": [5, 1],
            "response_mask": [1, 1, 1, 1, 1, 0, 1],
            "loss_mask": [1, 0, 1, 0, 1, 0, 1],
            "meta.holes": "2 filled",
        },
    ),
    "a loss mask of the file stays": (
        {"loss_mask": torch.tensor([[0, 0, 1, 0, 1, 0, 1]])},
        {"loss_mask": [0, 0, 1, 0, 1, 0, 1]},
    ),
    "rows of rounds that become one are counted": (
        {"round_columns": {**ROWS, "version": np.array([30, 10, 0])}},
        {
            "round.round": [1, 0],
            "round.version": [30, 10],
            "meta.left_out": ["1 row of `round_columns`"],
        },
    ),
    "rows of rounds that are not there": (
        {"round_columns": LATER},
        {"round.sample": [0, 0, 7], "round.round": [1, 9, 0]},
    ),
}


@pytest.mark.parametrize(("others", "expected"), FILLED.values(), ids=FILLED)
def test_holes_are_filled(others: dict[str, Any], expected: dict[str, Any]) -> None:
    has(fill_mask_holes(punched(**others), fill=True), expected)


def test_holes_are_reported_and_pictures_go_with_their_rounds() -> None:
    found = "2 found; load(..., fill_holes=True) fills them"
    has(fill_mask_holes(punched(), fill=False), {"num_rounds": 4, "meta.holes": found})
    shot = EncodedScreenshot(data=b"", round=3)
    batch = fill_mask_holes(punched(images=((shot,),)), fill=True)
    assert batch.images[0][0].round == 1


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
