"""What is looked at in a batch, and what it comes to."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rounddiag.core import token_frame
from rounddiag.errors import BatchError, FrameError
from rounddiag.findings.view import most_to_see
from rounddiag.loaders import load
from rounddiag.vision import EncodedScreenshot
from rounddiag.widgets.figures import heatmap_figure
from rounddiag.widgets.session import Session
from rounddiag.widgets.state import CellBox, Cursor
from tests.batches import hand_batch, padded

if TYPE_CHECKING:
    from rounddiag import Batch


def session(batch: Batch | None = None, /, **state: Any) -> Session:
    return Session(batch or hand_batch(), state)


def test_a_round_of_one_token_can_be_the_worst() -> None:
    assert session().state.current == Cursor(sample=1, round=1)


def test_bitwise_equality_is_offered_where_a_sample_begins_with_it() -> None:
    def offered(batch: Batch) -> set[str]:
        return {name for name, *_ in session(batch).options["metric"]}

    mask, rollout = torch.ones(2, 3), torch.full((2, 3), -1.0)
    old = torch.tensor([[-2.0, -1.0, -1.0], [-1.0, -1.0, -2.0]])
    begun, not_begun = padded(mask, old, rollout), padded(mask, old - 1, rollout)
    assert offered(begun) - offered(not_begun) == {"after_first_unequal"}
    found = session(begun, metric="after_first_unequal", order="sample")
    figure = heatmap_figure(found)
    assert np.ravel(figure.data[0].z).tolist() == pytest.approx([1, 1 / 3])


def test_it_opens_at_the_largest_diff_of_the_worst_round() -> None:
    mask = torch.tensor([[1] * 20 + [0] + [1] * 20] * 3)
    diff = torch.zeros(mask.shape)
    diff[:, 21:] = 0.5
    diff[1, 30] = -2
    batch = padded(mask, diff - 1, torch.zeros(mask.shape) - 1)
    found = session(batch).state.current
    assert found.round == 1
    assert session(batch, current={"sample": 2}).state.current == Cursor(sample=2)
    kept = session(batch, filter={"sample": 2, "round": 0})
    assert kept.state.current == Cursor(sample=2)
    assert session(batch[1:2]).state.current == Cursor(round=1, token=9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"current": {"sample": 2, "round": 1}},
            "`current`: expected a sample, a round and a token that the batch has;"
            " found sample 2, round 1, token 0. `rounddiag.round_frame(batch)` has"
            " samples, rounds and counts.",
        ),
        (
            {"order": "reward"},
            "`order`: expected one of ['sample', 'worst', 'rounds', 'num_tokens'];"
            " found 'reward'. Leave it out, or choose a value that the batch has.",
        ),
        ({"by": "rank"}, "`by`: expected one of [None, "),
        (
            {"cells": {"samples": [0, 3], "rounds": [0, 1]}},
            "`cells`: expected samples from 0 to 2; found (0, 3)."
            " Leave it out, or choose a value that the batch has.",
        ),
        ({"cells": {"samples": [], "rounds": [0, 1]}}, "from 0 to 2; found ()."),
        (
            {"filter": {"sample": 3}},
            "expected samples from 0 to 2, or their ids; found [3].",
        ),
    ],
)
def test_what_the_batch_does_not_have_changes_nothing(
    changes: dict[str, Any], message: str
) -> None:
    looked_at = session()
    before = looked_at.state
    with pytest.raises(FrameError, match=re.escape(message)):
        looked_at.change(changes)
    assert looked_at.state == before
    with pytest.raises(FrameError, match=re.escape(message)):
        session(**changes)


def test_a_score_that_there_is_not_is_an_error() -> None:
    with pytest.raises(BatchError, match=r"expected one of the scores \['old', 'roll"):
        session(a="other")


def test_without_cells_the_round_of_the_token_is_selected() -> None:
    looked_at = session(current={"sample": 1, "round": 0, "token": 1})
    tokens = looked_at.select_rows(looked_at.filtered_batch.tokens)
    assert tokens["diff"].tolist() == [0, 0.25, -0.5]
    looked_at.change({"cells": {"samples": [0, 2], "rounds": [0, 0]}})
    tokens = looked_at.select_rows(looked_at.filtered_batch.tokens)
    assert tokens["diff"].tolist() == [0.5, -0.25, -1]


def test_the_worst_token_of_cells() -> None:
    looked_at = session()
    first_of_equals = looked_at.worst_token(CellBox(samples=(1, 0), rounds=(0, 0)))
    assert first_of_equals == Cursor()
    both = looked_at.worst_token(CellBox(samples=(0, 1, 2), rounds=(0, 1)))
    assert both == Cursor(sample=1, round=1)


def test_in_cells_without_a_token_nothing_moves() -> None:
    looked_at = session(current={"sample": 1, "round": 1})
    assert looked_at.worst_token(CellBox(samples=(2,), rounds=(1, 5))) == Cursor(
        sample=1, round=1
    )


def test_in_cells_without_a_number_it_is_the_first_token() -> None:
    unknown = torch.full((1, 3), torch.nan)
    looked_at = session(padded([[0, 1, 1]], unknown, unknown))
    assert looked_at.worst_token(CellBox(samples=(0,), rounds=(0, 0))) == Cursor()


def test_what_was_worked_out_is_kept_until_it_is_forgotten() -> None:
    looked_at = session()
    first = looked_at.filtered_batch
    assert looked_at.filtered_batch is first is looked_at.whole_batch
    looked_at.clear_cache()
    assert looked_at.filtered_batch is not first


def test_of_tied_tokens_one_with_screenshots_is_the_evidence() -> None:
    batch = hand_batch()
    shot = EncodedScreenshot(data=b"", round=0)
    images = ((), *(((shot,),) * (batch.num_samples - 1)))
    size, sample = np.array([1.0, 0.6, np.nan]), np.array([0, 1, 1])
    assert most_to_see(size, sample, batch) == 0
    assert most_to_see(size, sample, replace(batch, images=images)) == 1
    size[1] = 0.4  # less than half of the largest
    assert most_to_see(size, sample, replace(batch, images=images)) == 0


def test_roles_that_the_diagnosis_has_read_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = load("sample_data/image_window.parquet")
    frame = token_frame(batch, ["role"])
    explored = session(batch)
    assert len(explored.diagnosis)

    def fail(_: Batch) -> None:
        raise AssertionError

    monkeypatch.setattr("rounddiag.widgets.columns.token_roles", fail)
    explored.change({"filter": {"role": ["coordinates"]}})
    keys = ["sample", "round", "token"]
    wanted = frame.loc[frame["role"] == "coordinates", keys]
    kept = explored.filtered_batch.tokens[keys]
    assert kept.to_numpy().tolist() == wanted.to_numpy().tolist()
