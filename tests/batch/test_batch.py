from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import Batch
from rounddiag.errors import BatchError
from tests.batches import MASK, OLD, ROLLOUT, hand_batch, padded, redacted
from tests.loaders.facts import has


def rows(**others: Any) -> Batch:
    lengths = [6, 6, 1]
    fields: dict[str, Any] = {
        "response_mask": MASK,
        "old_log_probs": OLD,
        "rollout_log_probs": ROLLOUT,
    }
    cut = {
        name: [torch.tensor(row[:n]) for row, n in zip(values, lengths, strict=True)]
        for name, values in fields.items()
    }
    ids = [torch.arange(6 * i, 6 * i + n) for i, n in enumerate(lengths)]
    return Batch.from_rows(response_ids=ids, **cut, **others)


def test_padded_tensors_are_viewed_not_copied() -> None:
    mask, old, rollout = (torch.tensor(v) for v in (MASK, OLD, ROLLOUT))
    batch = padded(mask, old, rollout)
    assert batch.response_mask.data_ptr() == mask.data_ptr()
    assert batch.log_probs("old").data_ptr() == old.data_ptr()
    assert batch.log_probs("rollout").data_ptr() == rollout.data_ptr()


def test_rows_and_padding_give_the_same_rounds() -> None:
    left, right = rows(), hand_batch()
    assert left.offsets.tolist() == [0, 6, 12, 13]
    assert right.offsets.tolist() == [0, 6, 12, 18]
    assert left.rounds.num_tokens.tolist() == right.rounds.num_tokens.tolist()
    assert (left.num_samples, left.num_rounds, left.num_tokens) == (3, 5, 8)


def test_left_padding_of_prompts_is_stripped() -> None:
    batch = hand_batch(
        prompt_ids=torch.tensor([[0, 0, 5], [0, 6, 7], [0, 0, 0]]),
        prompt_mask=torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 0]]),
    )
    assert batch.prompt_ids.tolist() == [5, 6, 7]
    assert batch.prompt_offsets.tolist() == [0, 1, 3, 3]


def test_a_number_of_a_frame_chooses_a_sample() -> None:
    assert hand_batch()[np.int64(1)].log_probs("old").tolist() == OLD[1]  # type: ignore[index]


def test_a_smaller_batch_keeps_every_field_and_where_it_came_from(
    device: torch.device,
) -> None:
    batch = hand_batch(
        device,
        prompt_ids=torch.tensor([[1, 2], [3, 4], [5, 6]]),
        rewards=torch.tensor([0.0, 0.5, 1.0]),
        group_ids=("a", "a", "b"),
        sample_ids=("x", "y", "z"),
        scores={"ref": torch.arange(18.0).reshape(3, 6)},
        sample_columns={"rank": np.array([7, 8, 9])},
        round_columns={
            "sample": np.array([0, 0, 2]),
            "round": np.array([0, 1, 0]),
            "version": np.array([3, 4, 5]),
        },
        meta={"mask_source": "response_mask"},
    )
    expected = {
        "response_ids": [12, 13, 14, 15, 16, 17],
        "prompt_ids": [5, 6],
        "rewards": [1.0],
        "group_ids": ["b"],
        "sample_ids": ["z"],
        "score.ref": [12, 13, 14, 15, 16, 17],
        "sample_columns": {"rank": [9], "original_sample": [2]},
        "round.sample": [0],
        "round.version": [5],
        "meta": {"mask_source": "response_mask", "reward_scale": []},
    }
    has(batch[-1], expected)


def test_a_selection_of_a_selection_names_the_first_batch() -> None:
    batch = hand_batch().where([True, False, True])[1:]
    assert batch.sample_columns["original_sample"].tolist() == [2]
    assert batch.rounds.num_tokens.tolist() == [1]


def test_a_slice_is_a_view() -> None:
    batch = hand_batch()
    assert (
        batch[1:].log_probs("old").data_ptr() == batch.log_probs("old")[6:].data_ptr()
    )


def test_an_empty_selection_is_a_batch() -> None:
    empty = hand_batch().where([False] * 3)
    assert (len(empty), empty.num_rounds, empty.num_tokens) == (0, 0, 0)


def test_no_rows_are_a_batch() -> None:
    fields = ("response_ids", "response_mask", "old_log_probs", "rollout_log_probs")
    empty = Batch.from_rows(**{name: [] for name in fields}, scores={"ref": []})
    assert (len(empty), empty.num_rounds, len(empty.scores["ref"])) == (0, 0, 0)


def test_moved_there_and_back_nothing_changed(device: torch.device) -> None:
    batch = hand_batch(device, scores={"ref": torch.zeros(3, 6)}).to("cpu")
    assert batch.log_probs("old").tolist() == [v for row in OLD for v in row]
    assert batch.scores["ref"].device.type == "cpu"


def test_text_in_meta_is_escaped() -> None:
    batch = hand_batch(meta={"source": "<script>"})
    assert ">&lt;script&gt;</td>" in batch._repr_html_()
    assert repr(batch) == "Batch(num_samples=3, num_rounds=5, num_tokens=8)"


CASES = [
    (
        {"old_log_probs": torch.zeros(3, 5)},
        "`old_log_probs`: expected shape (3, 6), as `response_mask`; found shape "
        "(3, 5). Cut every field to the response before building the batch.",
    ),
    (
        {"response_ids": None},
        "`response_ids`: expected a tensor; found nothing. A batch needs "
        "`response_mask` and `response_ids`; build one of texts alone with "
        "`Batch.from_turns`.",
    ),
    (
        {"old_log_probs": torch.zeros(3, 6, dtype=torch.int64)},
        "`old_log_probs`: expected floating-point log-probabilities; found "
        "torch.int64. Pass log-probabilities in nats.",
    ),
    (
        {"response_ids": torch.zeros(3, 6)},
        "`response_ids`: expected integers; found torch.float32. Pass token ids.",
    ),
    (
        {"response_ids": torch.zeros(3, 6, dtype=torch.complex64)},
        "`response_ids`: expected integers; found torch.complex64. Pass token ids.",
    ),
    (
        {"response_mask": torch.zeros(18)},
        "`response_mask`: expected two dimensions, samples and positions; found shape "
        "(18,). Stack the samples, or pass them to `Batch.from_rows`.",
    ),
    (
        {"rewards": torch.zeros(2)},
        "`rewards`: expected 3 values, one per sample; found 2. "
        "Pass one value per sample.",
    ),
    (
        {"lengths": torch.tensor([6, 6, 7])},
        "`lengths`: expected values from 0 to the stored length of each sample; found "
        "values from 6 to 7. Pass the number of real positions of each row.",
    ),
    (
        {"lengths": torch.tensor([6, 4, 6])},
        "`response_mask`: expected 0 beyond the 4 real positions of sample 1; found 1 "
        "in its padding. Correct `lengths`, or mask out the padding.",
    ),
    (
        {"round_columns": {"sample": np.array([0]), "round": np.array(["0"])}},
        "`round_columns`: expected integer columns `sample` and `round`; found "
        "['int64', '<U1']. Give the sample and round of each row.",
    ),
    (
        {"round_columns": {"version": np.array([1])}},
        "`round_columns`: expected `sample`, `round` and columns of the same length; "
        "found lengths {'version': 1}. Give the sample and round of each row.",
    ),
    (
        {"prompt_ids": torch.zeros(2, 4, dtype=torch.int64)},
        "`prompt_offsets`: expected 4 values, the last equal to the number of "
        "`prompt_ids`; found shape (3,). Build the batch with `Batch.from_padded` or "
        "`Batch.from_rows`.",
    ),
]


@pytest.mark.parametrize(("change", "message"), CASES)
def test_fields_that_do_not_fit_are_refused(
    change: dict[str, Any], message: str
) -> None:
    fields = {
        "response_ids": torch.zeros(3, 6, dtype=torch.int64),
        "response_mask": torch.tensor(MASK),
        "old_log_probs": torch.tensor(OLD),
        "rollout_log_probs": torch.tensor(ROLLOUT),
    }
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        Batch.from_padded(**{**fields, **change})


def test_rows_of_other_lengths_are_named() -> None:
    message = (
        "`entropy`: expected 3 rows as long as those of `response_mask`; found shape "
        "(5,) in row 1, where `response_mask` has 6 values. Cut every field to the "
        "response before building the batch."
    )
    entropy = [torch.zeros(n) for n in (6, 5, 1)]
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        rows(entropy=entropy)


OTHER_ORDER = "flags in the order of the samples; found a Series whose index is not 0"
# What is no flag per sample, and what the message must say of it.
NO_FLAGS: list[tuple[Any, str]] = [
    ([True, False], "3 flags, one per sample; found shape (2,)."),
    *(
        (pd.Series([True, False, False], index=order), OTHER_ORDER)
        for order in list[Any]([[2, 1, 0], ["a", "b", "c"]])
    ),
    *(
        (flags, f"3 flags, True or False; found {flags!r}. Pass sample numbers to")
        for flags in list[Any](
            [["a"] * 3, [None] * 3, [2, 0, 1], [0.5, 0, 1], [[True], [1, 0]]]
        )
    ),
]


@pytest.mark.parametrize(("flags", "message"), NO_FLAGS)
def test_what_is_no_flag_is_an_error(flags: Any, message: str) -> None:
    with pytest.raises(BatchError, match=f"^expected {re.escape(message)}"):
        hand_batch().where(flags)


@pytest.mark.parametrize(
    "flags",
    [
        pd.Series([True, False, True], index=[2, 1, 0]).sort_index(),
        pd.array([True, False, True], dtype="boolean"),
        np.array([1, 0, 1]),
        torch.tensor([True, False, True]),
    ],
)
def test_flags_of_any_kind_choose_samples(flags: Any) -> None:
    chosen = hand_batch().where(flags).sample_columns["original_sample"]
    assert chosen.tolist() == [0, 2]


def test_an_unknown_score_lists_the_known() -> None:
    message = (
        "expected one of the scores ['old', 'ref', 'rollout']; found 'rf'. "
        "Name a score that the batch has."
    )
    batch = hand_batch(scores={"ref": torch.zeros(3, 6)})
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        batch.log_probs("rf")


def test_meta_is_shown_in_words() -> None:
    meta = {
        "mask_source": "`loss_mask`",
        "sampling": {"temperature": 1.0, "top_k": -1},
        "screenshots": ["one", "two"],
        "capture": {"num_saved": 6, "rounds": [{"round": 0}, {"round": 1}]},
        "empty": {},
        "unknown": None,
    }
    cells = re.sub("<td[^>]*>", "<td>", hand_batch(meta=meta)._repr_html_())
    assert "mask source</th><td><code>loss_mask</code></td>" in cells
    assert "sampling</th><td>temperature 1.0, top_k -1</td>" in cells
    assert "screenshots</th><td>one; two</td>" in cells
    assert "capture</th><td>num_saved 6, rounds [2 entries]</td>" in cells
    assert "empty" not in cells
    assert "unknown" not in cells


def test_a_redacted_batch_says_so() -> None:
    batch = redacted(hand_batch())
    assert batch.is_redacted
    assert repr(batch) == (
        "Batch(num_samples=3, num_rounds=5, num_tokens=8, redacted=True)"
    )


@pytest.mark.parametrize("index", [[2, 0], np.array([2, 0]), torch.tensor([2, 0])])
def test_numbers_of_samples_give_those_in_their_order(index: Any) -> None:
    assert hand_batch()[index].sample_columns["original_sample"].tolist() == [2, 0]
    assert len(hand_batch()[[]]) == 0


@pytest.mark.parametrize(("index", "found"), [([0, 3], "[0, 3]"), ([0.5], "[0.5]")])
def test_what_is_no_number_of_a_sample_is_an_error(index: Any, found: str) -> None:
    message = (
        f"expected sample numbers below 3; found {found}. Pass an integer, a slice or"
        " a list of integers."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        hand_batch()[index]


def test_a_sample_goes_by_its_id() -> None:
    batch = hand_batch(sample_ids=("x", "y", "z"))
    assert batch["y"].log_probs("old").tolist() == OLD[1]
    assert batch[["z", 0]].sample_columns["original_sample"].tolist() == [2, 0]
    assert [batch.sample_number(sample) for sample in ("z", 1)] == [2, 1]


@pytest.mark.parametrize(
    ("sample", "found"),
    [
        ("w", "'w': 0 of 3 samples"),
        ("x", "'x': 2 of 3 samples"),
        (3, "3: 0 of 3 samples"),
    ],
)
def test_an_id_of_no_sample_or_of_several_is_an_error(
    sample: str | int, found: str
) -> None:
    batch = hand_batch(sample_ids=("x", "y", "x"))
    message = (
        f"`sample`: expected the id of one sample, or a number below 3; found {found}."
        " `rounddiag.sample_frame(batch)` lists samples and their ids."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        batch.sample_number(sample)
