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


def small(*, base: float = 0.0, **others: Any) -> Batch:
    """Two samples: a round of two tokens; two rounds of one."""
    return padded(
        [[1, 1, 0], [1, 0, 1]],
        torch.tensor([[-1.0, -2.0, 0.0], [-3.0, 0.0, -4.0]]) - base,
        torch.full((2, 3), -1.0),
        **others,
    )


def column(*values: object) -> np.ndarray[Any, Any]:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def test_samples_of_other_widths_follow_each_other() -> None:
    batch = concatenate([small(), padded([[0, 1]], [[0.0, -9.0]], [[0.0, -7.0]])])

    assert batch.offsets.tolist() == [0, 3, 6, 8]
    assert batch.lengths.tolist() == [3, 3, 2]
    assert batch.rounds.sample.tolist() == [0, 1, 1, 2]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1, 1]
    assert batch.log_probs("old").tolist() == [-1, -2, 0, -3, 0, -4, 0, -9]


def test_what_all_have_is_kept() -> None:
    parts = [
        small(
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
        for number in (0, 1)
    ]

    batch = concatenate(parts)

    assert batch.prompt_ids.tolist() == [5, 6, 7, 5, 6, 7]
    assert batch.prompt_offsets.tolist() == [0, 1, 3, 4, 6]
    assert batch.entropy[::3].tolist() == [0, 0, 1, 1]
    assert batch.rewards.tolist() == [0, 2, 1, 2]
    assert batch.group_ids == ("a", "b", "a", "b")
    assert batch.sample_ids == ("0/0", "0/1", "1/0", "1/1")
    assert batch.position_ids is not None
    assert [tuple(ids.shape) for ids in batch.position_ids] == [(4, 3), (3,)] * 2
    assert batch.scores["ref"][::3].tolist() == [0, 0, -1, -1]
    assert (batch.step, batch.tokenizer) == (7, "tokenizer.json")
    assert batch.meta == {
        "source": "batch 0, batch 1",
        "mask_source": "response_mask",
        "num_dropped_rows": 4,
    }


def test_a_prompt_that_starts_later_in_its_storage_is_found() -> None:
    ids, offsets = torch.tensor([9, 1, 2, 3]), torch.tensor([1, 3, 4])
    part = replace(small(), prompt_ids=ids, prompt_offsets=offsets)

    batch = concatenate([part, part])

    assert batch.prompt_ids.tolist() == [1, 2, 3, 1, 2, 3]
    assert batch.prompt_offsets.tolist() == [0, 2, 3, 5, 6]


def test_what_only_some_have_is_left_out_and_named() -> None:
    full = small(
        entropy=torch.zeros(2, 3),
        prompt_ids=torch.ones(2, 1, dtype=torch.int64),
        group_ids=("a", "b"),
        scores={"ref": torch.zeros(2, 3)},
        meta={"left_out": ["timing"]},
    )

    for parts in ([full, small()], [small(), full]):
        batch = concatenate(parts)
        assert (batch.entropy, batch.prompt_ids, batch.group_ids) == (None, None, None)
        assert dict(batch.scores) == {}
        names = ["entropy", "group_ids", "prompt_ids", "ref", "timing"]
        assert batch.meta["left_out"] == names


def test_a_rank_without_samples_takes_nothing_away() -> None:
    full = small(group_ids=("a", "b"), rewards=torch.ones(2))

    batch = concatenate([small()[:0], full])

    assert batch.group_ids == ("a", "b")
    assert "left_out" not in batch.meta
    empty = concatenate([small()[:0], small(step=3)[:0]])
    assert (len(empty), empty.step) == (0, 3)


def test_values_a_sample_that_only_some_have_are_nan_or_none_elsewhere() -> None:
    one = small(
        rewards=torch.tensor([1.0, 2.0]),
        sample_columns={"rank": np.array([3, 4]), "loss": np.array([0.5, 1.5])},
    )
    other = small(sample_columns={"status": column("done", None)})

    batch = concatenate([one, other])

    assert batch.rewards[:2].tolist() == [1, 2]
    assert batch.rewards[2:].isnan().all()
    assert batch.sample_columns["rank"][:2].tolist() == [3, 4]
    assert np.isnan(batch.sample_columns["rank"][2:]).all()
    assert batch.sample_columns["loss"].dtype == np.float64
    assert batch.sample_columns["status"].tolist() == [None, None, "done", None]
    assert "left_out" not in batch.meta


def test_numbers_and_texts_in_one_column_stay_what_they_are() -> None:
    parts = [
        small(sample_columns={"id": np.array([1, 2]), "n": np.array([1, 2])}),
        small(sample_columns={"id": np.array(["a", "b"]), "n": np.array([0.5, 1])}),
    ]

    batch = concatenate(parts)

    assert batch.sample_columns["id"].tolist() == [1, 2, "a", "b"]
    assert batch.sample_columns["n"].tolist() == [1.0, 2.0, 0.5, 1.0]


def test_images_of_one_rank_are_kept_and_the_others_have_none() -> None:
    shot = EncodedScreenshot(data=b"", round=0)

    batch = concatenate([small(), small(images=((shot,), ()))])

    assert batch.images == ((), (), (shot,), ())


def test_samples_in_round_columns_count_on() -> None:
    columns = {"sample": np.array([1]), "round": np.array([1])}
    parts = [
        small(round_columns={**columns, "version": np.array([3])}),
        small(),
        small(round_columns={**columns, "reason": column("stop")}),
    ]

    batch = concatenate(parts)

    assert batch.round_columns["sample"].tolist() == [1, 5]
    assert batch.round_columns["round"].tolist() == [1, 1]
    assert batch.round_columns["reason"].tolist() == [None, "stop"]
    assert batch.round_columns["version"][0] == 3
    assert np.isnan(batch.round_columns["version"][1])


def test_round_ids_of_some_go_on_dividing() -> None:
    divided = small(round_ids=torch.tensor([[4, 5, 5], [6, 6, 6]]))

    batch = concatenate([small(), divided])

    assert batch.rounds.num_tokens.tolist() == [2, 1, 1, 1, 1, 1, 1]


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


def test_meta_entries_that_differ_are_reported_for_each_file() -> None:
    parts = [
        small(meta={"source": "a", "sampling": {"top_p": 1}, "x": 1}),
        small(meta={"source": "b", "sampling": {"top_p": 1}, "x": 2}),
    ]

    meta = concatenate(parts).meta

    assert meta == {"source": "a, b", "sampling": {"top_p": 1}, "x": {"a": 1, "b": 2}}


def test_meta_that_is_not_as_we_write_it_does_no_harm() -> None:
    odd = {"left_out": 5, "num_dropped_rows": "many"}
    assert "left_out" not in concatenate([small(meta=odd), small(meta=odd)]).meta


def test_parts_of_one_file_say_the_same() -> None:
    part = small(meta={"source": "a", "mask_source": "response_mask"})
    meta = concatenate([part, part]).meta
    assert meta == {"source": "a, a", "mask_source": "response_mask"}


def test_a_meta_entry_of_some_files_is_reported_with_their_names() -> None:
    parts = [small(), small(meta={"rounds": "unknown"}), small()]
    assert concatenate(parts).meta["rounds"] == {"batch 1": "unknown"}


def test_another_tokenizer_in_one_file_leaves_none() -> None:
    parts = [small(tokenizer="a"), small(), small(tokenizer="a")]
    assert concatenate(parts).tokenizer == "a"
    assert concatenate([*parts, small(tokenizer="b")]).tokenizer is None


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


def test_the_hand_batch_twice_has_each_round_twice() -> None:
    assert concatenate([hand_batch(), hand_batch()]).num_rounds == 10
