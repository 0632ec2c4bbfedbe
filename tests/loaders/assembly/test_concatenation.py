"""Batches end to end."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch, token_frame
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.concatenation import concatenate
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch, masks, padded, random_log_probs
from tests.loaders.facts import has
from tests.loaders.values import objects


def small(*, base: float = 0.0, **others: Any) -> Batch:
    """Two samples: a round of two tokens; two rounds of one."""
    return padded(
        [[1, 1, 0], [1, 0, 1]],
        torch.tensor([[-1.0, -2.0, 0.0], [-3.0, 0.0, -4.0]]) - base,
        torch.full((2, 3), -1.0),
        **others,
    )


def numbered(number: int) -> Batch:
    return small(
        prompt_ids=torch.tensor([[0, 5], [6, 7]]),
        prompt_mask=torch.tensor([[0, 1], [1, 1]]),
        entropy=torch.full((2, 3), float(number)),
        rewards=torch.tensor([number, 2.0]),
        group_ids=("a", "b"),
        sample_ids=(f"{number}/0", f"{number}/1"),
        position_ids=(torch.zeros(4, 3), torch.zeros(3)),
        scores={"ref": torch.full((2, 3), -float(number))},
        step=7,
        tokenizer="tokenizer.json",
        meta={"mask_source": "response_mask", "num_dropped_rows": 2},
    )


FULL = small(
    entropy=torch.zeros(2, 3),
    prompt_ids=torch.ones(2, 1, dtype=torch.int64),
    group_ids=("a", "b"),
    scores={"ref": torch.zeros(2, 3)},
    meta={"left_out": ["timing"]},
)
LEFT_OUT = {
    "entropy": None,
    "prompt_ids": None,
    "group_ids": None,
    "scores": {},
    "meta.left_out": ["entropy", "group_ids", "prompt_ids", "ref", "timing"],
}
LATER = replace(
    small(),
    prompt_ids=torch.tensor([9, 1, 2, 3]),
    prompt_offsets=torch.tensor([1, 3, 4]),
)
GROUPED = small(group_ids=("a", "b"), rewards=torch.ones(2))
RANKED = small(
    rewards=torch.tensor([1.0, 2.0]),
    sample_columns={"rank": np.array([3, 4]), "loss": np.array([0.5, 1.5])},
)
SHOT = EncodedScreenshot(data=b"", round=0)
ROUND = {"sample": np.array([1]), "round": np.array([1])}
ODD = {"left_out": 5, "num_dropped_rows": "many"}


def said(**meta: Any) -> Batch:
    return small(meta=meta)


CASES: dict[str, tuple[list[Batch], dict[str, Any]]] = {
    "samples of other widths": (
        [small(), padded([[0, 1]], [[0.0, -9.0]], [[0.0, -7.0]])],
        {
            "offsets": [0, 3, 6, 8],
            "lengths": [3, 3, 2],
            "rounds.sample": [0, 1, 1, 2],
            "rounds.num_tokens": [2, 1, 1, 1],
            "old_log_probs": [-1, -2, 0, -3, 0, -4, 0, -9],
        },
    ),
    "what all have": (
        [numbered(0), numbered(1)],
        {
            "prompt_ids": [5, 6, 7, 5, 6, 7],
            "prompt_offsets": [0, 1, 3, 4, 6],
            "entropy": [0] * 6 + [1] * 6,
            "rewards": [0, 2, 1, 2],
            "group_ids": ["a", "b", "a", "b"],
            "sample_ids": ["0/0", "0/1", "1/0", "1/1"],
            "position_ids": [[[0] * 3] * 4, [0] * 3] * 2,
            "score.ref": [0] * 6 + [-1] * 6,
            "step": 7,
            "tokenizer": "tokenizer.json",
            "meta": {
                "source": "batch 0, batch 1",
                "mask_source": "response_mask",
                "num_dropped_rows": 4,
            },
        },
    ),
    "a prompt that starts later in its storage": (
        [LATER, LATER],
        {"prompt_ids": [1, 2, 3, 1, 2, 3], "prompt_offsets": [0, 2, 3, 5, 6]},
    ),
    "what only the first has": ([FULL, small()], LEFT_OUT),
    "what only the last has": ([small(), FULL], LEFT_OUT),
    "a rank without samples takes nothing away": (
        [small()[:0], GROUPED],
        {"group_ids": ["a", "b"], "meta.left_out": None},
    ),
    "no samples": (
        [small()[:0], small(step=3)[:0]],
        {"num_samples": 0, "step": 3},
    ),
    "values of samples that only some have": (
        [RANKED, small(sample_columns={"status": objects("done", None)})],
        {
            "rewards": [1, 2, None, None],
            "sample.rank": [3, 4, None, None],
            "sample.loss": [0.5, 1.5, None, None],
            "sample.status": [None, None, "done", None],
            "meta.left_out": None,
        },
    ),
    "numbers and texts in one column": (
        [
            small(sample_columns={"id": np.array([1, 2]), "n": np.array([1, 2])}),
            small(sample_columns={"id": np.array(["a", "b"]), "n": np.array([0.5, 1])}),
        ],
        {"sample.id": [1, 2, "a", "b"], "sample.n": [1.0, 2.0, 0.5, 1.0]},
    ),
    "images of one rank": (
        [small(), small(images=((SHOT,), ()))],
        {"images": [[], [], [SHOT], []]},
    ),
    "samples in round columns count on": (
        [
            small(round_columns={**ROUND, "version": np.array([3])}),
            small(),
            small(round_columns={**ROUND, "reason": objects("stop")}),
        ],
        {
            "round.sample": [1, 5],
            "round.round": [1, 1],
            "round.reason": [None, "stop"],
            "round.version": [3, None],
        },
    ),
    "round ids of some go on dividing": (
        [small(), small(round_ids=torch.tensor([[4, 5, 5], [6, 6, 6]]))],
        {"rounds.num_tokens": [2, 1, 1, 1, 1, 1, 1]},
    ),
    "meta that differs": (
        [said(source="a", top_p=1, x=1), said(source="b", top_p=1, x=2)],
        {"meta": {"source": "a, b", "top_p": 1, "x": {"a": 1, "b": 2}}},
    ),
    "meta that is not as we write it": ([said(**ODD)] * 2, {"meta.left_out": None}),
    "parts of one file": (
        [said(source="a", mask_source="response_mask")] * 2,
        {"meta": {"source": "a, a", "mask_source": "response_mask"}},
    ),
    "meta of some files": (
        [small(), said(rounds="unknown"), small()],
        {"meta.rounds": {"batch 1": "unknown"}},
    ),
    "a tokenizer of some": (
        [small(tokenizer="a"), small(), small(tokenizer="a")],
        {"tokenizer": "a"},
    ),
    "two tokenizers": (
        [small(tokenizer="a"), small(tokenizer="b")],
        {"tokenizer": None},
    ),
    "the hand batch twice": ([hand_batch(), hand_batch()], {"num_rounds": 10}),
}


@pytest.mark.parametrize(("parts", "expected"), CASES.values(), ids=CASES)
def test_batches_are_joined(parts: list[Batch], expected: dict[str, Any]) -> None:
    has(concatenate(parts), expected)


def test_another_step_is_an_error_that_stops_the_reading() -> None:
    def parts() -> Any:
        yield small(meta={"source": "a"})
        yield small(step=3, meta={"source": "b"})
        yield small(step=4, meta={"source": "c"})
        raise AssertionError

    message = (
        "expected the files of one step; found step 3 in b and step 4 in c."
        " Pass the folder or the glob of one step."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        concatenate(parts())


def test_copies_by_other_ranks_are_dropped_and_counted() -> None:
    names = ("s0", "s1")
    first, copy = small(sample_ids=names), small(sample_ids=names)
    other = small(sample_ids=names, base=0.5)

    batch = concatenate([first, copy, other])

    assert batch.sample_ids == ("s0", "s1", "s0", "s1")
    assert batch.log_probs("old").tolist()[6] == -1.5
    assert batch.meta["num_dropped_rows"] == 2


def test_samples_of_one_name_in_one_file_or_without_a_name_are_no_copies() -> None:
    twice = replace(small()[:1], sample_ids=("s",))

    batch = concatenate([small(), small()])
    assert len(batch) == 4
    assert len(concatenate([concatenate([twice, small()]), small()])) == 5
    alike = concatenate([replace(batch, sample_ids=("s",) * 4), small()])
    assert len(alike) == 6


def test_a_prompt_or_a_score_makes_another_sample() -> None:
    def one(prompt: int, ref: float) -> Batch:
        return small(
            sample_ids=("a", "b"),
            prompt_ids=torch.tensor([[prompt], [0]]),
            scores={"ref": torch.tensor([[0.0] * 3, [0.0, 0.0, ref]])},
        )

    assert len(concatenate([one(1, 0), one(1, 0)])) == 2
    assert concatenate([one(1, 0), one(2, 0)]).sample_ids == ("a", "b", "a")
    assert concatenate([one(1, 0), one(1, -1)]).sample_ids == ("a", "b", "b")


@given(masks(), st.integers(0, 5), st.integers(0, 2**32))
def test_the_parts_of_a_batch_make_the_batch(
    mask: list[list[int]], cut: int, seed: int
) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    tensor = torch.tensor(mask, dtype=torch.int64).reshape(shape)
    old, rollout = (random_log_probs(shape, seed + i) for i in (0, 1))
    batch = padded(tensor, old, rollout)

    joined = concatenate([batch[:cut], batch[cut:]])

    assert token_frame(joined).equals(token_frame(batch))
    assert token_frame(joined[:cut]).equals(token_frame(batch[:cut]))
    assert token_frame(joined[cut:]).equals(token_frame(batch[cut:]))
