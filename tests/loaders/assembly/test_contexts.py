"""Contexts of rows that are steps: what the model read before each round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch
from rounddiag.batch import ContextPiece, context_joining
from rounddiag.batch.context_joining import rows_to_compare
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.batch.trajectories import join_rows
from rounddiag.errors import BatchError
from rounddiag.loaders import load, save
from rounddiag.vision import EncodedScreenshot, Screenshot, patch_screenshots

PAD = 9  # the token that stands for pictures


def shot(name: str, position: int) -> EncodedScreenshot:
    return EncodedScreenshot(data=name.encode(), position=position)


def rows_of(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    names: Sequence[int] | None = None,
    **others: Any,
) -> Batch:
    """One row a step, in the order of the file."""
    rows = [torch.tensor(row, dtype=torch.int64) for row in responses]
    return Batch.from_rows(
        response_ids=rows,
        response_mask=[torch.ones(len(row), dtype=torch.int64) for row in rows],
        rollout_log_probs=[torch.full((len(row),), -1.0) for row in rows],
        old_log_probs=[torch.full((len(row),), -2.0) for row in rows],
        prompt_ids=[torch.tensor(row, dtype=torch.int64) for row in prompts],
        sample_columns={"name": np.array(names or [0] * len(rows))},
        **others,
    )


def text(start: int, stop: int) -> ContextPiece:
    return ContextPiece(kind="text", start=start, stop=stop)


def picture(start: int, stop: int, image: Screenshot) -> ContextPiece:
    return ContextPiece(kind="image", start=start, stop=stop, image=image)


def names_of(images: Sequence[Screenshot]) -> list[bytes]:
    return [image.data for image in images if isinstance(image, EncodedScreenshot)]


def test_rows_that_append_are_one_context_and_nothing_is_stored_twice() -> None:
    # Written: 5 6, then 7 8; the template adds 3 between them.
    batch = join_rows(rows_of([[1, 2], [1, 2, 5, 6, 3]], [[5, 6], [7, 8]]), "name")

    assert batch.contexts is None
    assert batch.round_ids is None
    assert batch.prompt_ids.tolist() == [1, 2]
    assert batch.require_ids().tolist() == [5, 6, 3, 7, 8]
    assert batch.response_mask.tolist() == [1, 1, 0, 1, 1]
    assert batch.chains(0) == [range(2)]
    assert batch.meta["contexts"] == "1 appended, 0 rewritten"
    context = batch.context(0, 1)
    assert context.ids.tolist() == [1, 2, 5, 6, 3]
    assert (context.follows, context.entered) == ("append", (text(4, 5),))
    assert context.left == ()


def test_a_rewritten_context_is_kept_whole_and_what_entered_is_an_observation() -> None:
    # The summary 4 replaces the reply 5 6 of the first round.
    batch = join_rows(rows_of([[1, 2], [1, 4, 2, 3]], [[5, 6], [7, 8]]), "name", "row")

    assert batch.require_ids().tolist() == [5, 6, 4, 2, 3, 7, 8]
    assert batch.response_mask.tolist() == [1, 1, 0, 0, 0, 1, 1]
    assert batch.chains(0) == [range(1), range(1, 2)]
    first, second = (batch.context(0, round_) for round_ in range(2))
    assert (first.ids.tolist(), first.follows) == ([1, 2], "first")
    assert (first.entered, first.left) == ((text(0, 2),), ())
    assert (second.ids.tolist(), second.follows) == ([1, 4, 2, 3], "rewritten")
    # Two tokens that agree are too few to be the same text.
    assert second.entered == (text(1, 4),)
    # Of the context before with its reply, [1, 2, 5, 6].
    assert second.left == (text(1, 4),)


def test_round_columns_count_what_enters_and_leaves() -> None:
    images = [(shot("a", -3),), (shot("a", -6), shot("b", -2)), (shot("b", -3),)]
    prompts = [[1, PAD, PAD, 2], [1, PAD, PAD, 2, 5, PAD, PAD], [1, 4, PAD, PAD, 3]]
    batch = join_rows(
        rows_of(prompts, [[5], [6], [7]], images=tuple(images)), "name", "row"
    )
    columns = {
        name: batch.round_columns[name].tolist()
        for name in (
            *("num_context_tokens", "num_context_images", "num_entered_tokens"),
            *("num_left_tokens", "num_left_images", "is_rewritten"),
        )
    }
    # At round 2, `1` and the picture b stay; a, 2, 5 and the reply 6 leave.
    assert columns == {
        "num_context_tokens": [4, 7, 5],
        "num_context_images": [1, 2, 1],
        "num_entered_tokens": [4, 2, 2],
        "num_left_tokens": [0, 0, 5],
        "num_left_images": [0, 0, 1],
        "is_rewritten": [False, False, True],
    }
    context = batch.context(0, 2)
    assert names_of(context.images) == [b"b"]
    assert [piece.image for piece in context.left if piece.kind == "image"] == [
        batch.images[0][0]
    ]
    assert [shot.position for shot in batch.images[0]] == [-3, 1]


def test_the_same_tokens_with_another_picture_are_another_context() -> None:
    prompts = [[1, PAD, PAD], [1, PAD, PAD, 5, 3]]
    images = ((shot("a", -2),), (shot("b", -4),))
    batch = join_rows(rows_of(prompts, [[5], [6]], images=images), "name", "row")

    context = batch.context(0, 1)
    assert context.follows == "rewritten"
    assert context.ids.tolist() == prompts[1]
    assert names_of(context.images) == [b"b"]
    assert context.entered[0] == picture(1, 3, batch.images[0][1])
    assert context.left[0] == picture(1, 3, batch.images[0][0])
    assert batch.round_columns["num_context_images"].tolist() == [1, 1]


def test_a_context_that_goes_on_from_a_rewritten_one_is_of_its_chain() -> None:
    prompts = [[1, 2], [1, 4, 3], [1, 4, 3, 7, 8]]
    batch = join_rows(rows_of(prompts, [[5], [7], [6]]), "name", "row")

    assert batch.chains(0) == [range(1), range(1, 3)]
    assert batch.context(0, 2).ids.tolist() == prompts[2]
    assert batch.context(0, 2).follows == "append"
    assert batch.context(0, 2).entered == (text(4, 5),)


def test_position_ids_go_on_in_a_chain_and_restart_in_the_next() -> None:
    prompts = [[1, 2], [1, 2, 5, 3], [4, 3]]
    places = tuple(torch.arange(size)[None] for size in (3, 5, 3))
    rows = rows_of(prompts, [[5], [7], [6]], position_ids=places)
    batch = join_rows(rows, "name", "row")

    assert batch.position_ids[0].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]


def test_a_row_in_which_nothing_was_written_still_changes_the_context() -> None:
    prompts = [[1, 2], [1, 4], [1, 4, 8]]
    rows = rows_of(prompts, [[5], [], [6]])
    batch = join_rows(rows, "name", "row")

    assert [batch.context(0, at).ids.tolist() for at in range(2)] == [[1, 2], [1, 4, 8]]
    assert batch.context(0, 1).follows == "rewritten"


def test_smaller_batches_keep_the_contexts_of_their_samples() -> None:
    prompts = [[1, 2], [1, 4], [2, 2], [2, 4]]
    batch = join_rows(rows_of(prompts, [[5], [6]] * 2, [0, 0, 1, 1]), "name", "row")

    assert batch[1].context(0, 1).ids.tolist() == [2, 4]
    assert batch[[1, 0]].context(1, 1).ids.tolist() == [1, 4]
    assert batch.where([False, True]).chains(0) == [range(1), range(1, 2)]


def test_hashes_of_the_recorder_say_which_picture_is_which() -> None:
    prompts = [[1, PAD, PAD], [1, PAD, PAD, 5, 3]]
    images = ((shot("a", -2),), (shot("b", -4),))
    columns = {
        "sample": np.arange(2),
        "round": np.zeros(2, int),
        "image_hashes": np.array([None, None], dtype=object),
    }
    columns["image_hashes"][:] = [["0f"], ["0f"]]
    rows = rows_of(prompts, [[5], [6]], images=images, round_columns=columns)
    batch = join_rows(rows, "name", "row")
    assert batch.context(0, 1).follows == "append"

    columns["image_hashes"][1] = []  # of some rows alone: pixels tell
    batch = join_rows(replace(rows, round_columns=columns), "name", "row")
    assert batch.context(0, 1).follows == "rewritten"


def test_of_many_pixels_rows_of_patches_tell_pictures_apart() -> None:
    values = torch.zeros(64, 1176)
    values[63] = 1
    asked: list[tuple[int, int]] = []

    def rows(start: int, stop: int) -> torch.Tensor:
        asked.append((start, stop))
        return values[start:stop]

    (first,) = patch_screenshots(rows, (64, 1176), [(1, 8, 8)]) or ()
    other = replace(first, patches=lambda: torch.zeros(64, 1176), rows=None)
    assert first.digest() != other.digest()
    asked.clear()
    first.digest(4)
    assert asked == [(8, 9), (24, 25), (40, 41), (56, 57)]
    # 10^9 bytes of two pictures of 32 x 1,000 patches: all; of 2,000 such, 106 rows.
    large = replace(first, grid_thw=(1, 32, 1000))
    assert rows_to_compare([[large] * 2]) is None
    assert rows_to_compare([[large] * 2000]) == 10**9 // (2000 * 24 * 14**2)


def test_pictures_that_were_not_compared_whole_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They differ in the first row of patches; the one in the middle is compared."""
    parts = [torch.zeros(8, 1176), torch.zeros(8, 1176)]
    parts[1][0] = 1

    def picture(values: torch.Tensor, position: int) -> Screenshot:
        (one,) = (
            patch_screenshots(
                lambda start, stop: values[start:stop], values.shape, [(1, 2, 4)]
            )
            or ()
        )
        return replace(one, position=position)

    prompts = [[1, PAD, PAD], [1, PAD, PAD, 5, 3]]
    images = ((picture(parts[0], -2),), (picture(parts[1], -4),))
    rows = rows_of(prompts, [[5], [6]], images=images)
    assert join_rows(rows, "name", "row").meta["contexts"] == (
        "0 appended, 1 rewritten, all at round 1"
    )
    monkeypatch.setattr(context_joining, "_MOST_BYTES", 1)
    assert join_rows(rows, "name", "row").meta["contexts"] == (
        "1 appended, 0 rewritten; pictures with 1 equal row of patches, spread evenly,"
        " count as the same"
    )


@pytest.mark.parametrize("redact", [False, True])
def test_a_saved_batch_has_its_contexts(tmp_path: Path, *, redact: bool) -> None:
    prompts = [[1, 2], [1, 4], [2, 2, 3], [2, 4, 3], [2, 4, 3, 6, 1]]
    places = tuple(torch.arange(len(prompt) + 1) for prompt in prompts)
    rows = rows_of(prompts, [[5], [6], [5], [6], [7]], [0, 0, 1, 1, 1])
    batch = join_rows(replace(rows, position_ids=places), "name", "row")
    save(batch, tmp_path / "a.parquet", redact=redact)
    again = load(tmp_path / "a.parquet")

    assert [again.chains(sample) for sample in range(2)] == [
        [range(1), range(1, 2)],
        [range(1), range(1, 3)],
    ]
    parts = SampleSequence(again, 1).position_ids()
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    assert again.round_columns["is_rewritten"].tolist() == [0, 1, 0, 1, 0]
    if redact:
        with pytest.raises(BatchError, match="`redact=True`"):
            again.context(1, 2)
    else:
        assert again.context(1, 2).ids.tolist() == prompts[4]


def test_the_samplers_prompt_is_a_context_of_its_own() -> None:
    prompts = [[1, 2], [1, 2, 3]]  # the trainer drops the reply
    columns = {
        "sample": np.arange(2),
        "round": np.zeros(2, int),
        "prompt_ids": np.array([None, None], dtype=object),
    }
    columns["prompt_ids"][:] = [[1, 2], [1, 2, 5, 3]]
    rows = rows_of(prompts, [[5], [6]], round_columns=columns)
    batch = join_rows(rows, "name", "row")

    assert batch.context_engines == ("old", "rollout")
    assert batch.context(0, 1).ids.tolist() == [1, 2, 3]
    sampler = batch.context(0, 1, "rollout")
    assert sampler.ids.tolist() == [1, 2, 5, 3]
    assert (sampler.follows, sampler.entered) == ("append", (text(3, 4),))


def test_a_sample_that_is_one_context_has_what_stands_before_the_round() -> None:
    batch = Batch.from_rows(
        response_ids=[torch.tensor([5, 3, 6, 4])],
        response_mask=[torch.tensor([1, 0, 1, 0])],
        prompt_ids=[torch.tensor([1, 2])],
    )
    assert [batch.context(0, at).ids.tolist() for at in range(2)] == [
        [1, 2],
        [1, 2, 5, 3],
    ]
    assert batch.context(0, 1).entered == (text(3, 4),)
    assert batch.context_engines == ("old",)
    with pytest.raises(BatchError, match=r"expected a round of sample 0.*found 'r1'"):
        batch.context(0, "r1")  # type: ignore[arg-type]
    with pytest.raises(BatchError, match="`round`: expected a round of sample 0"):
        batch.context(0, 2)
    with pytest.raises(BatchError, match="`engine`: expected 'old'; found 'rollout'"):
        batch.context(0, 1, "rollout")


def test_a_batch_of_texts_has_the_text_before_the_round() -> None:
    turns = [("user", "Go."), ("assistant", "click(1)"), ("tool", "done")]
    batch = Batch.from_turns([[*turns, ("assistant", "stop()")]])
    context = batch.context(0, 1)

    assert context.text == "Go.click(1)done"
    assert context.text[slice(context.entered[0].start, None)] == "done"


@st.composite
def any_rows(draw: st.DrawFn) -> tuple[Batch, list[list[int]]]:
    """Rows whose prompts share parts by chance, with pictures in some places."""
    count = draw(st.integers(1, 5))
    ids = st.lists(st.integers(1, 3), max_size=7)
    prompts: list[list[int]] = []
    responses: list[list[int]] = []
    images = []
    for _ in range(count):
        # Parts of what came before are likely, as in a context that is rewritten.
        parts = draw(st.lists(ids, max_size=3))
        has_shared: bool = draw(st.booleans())
        if prompts and has_shared:
            row = draw(st.integers(0, len(prompts) - 1))
            whole = [*prompts[row], *responses[row]]
            cut = draw(st.integers(0, len(whole)))
            parts.insert(draw(st.integers(0, len(parts))), whole[cut:])
        plain = [token for part in parts for token in part if token != PAD]
        places = sorted(draw(st.sets(st.integers(0, len(plain)), max_size=2)))
        prompt: list[int] = []
        shots: list[tuple[str, int]] = []
        for start, stop in pairwise([0, *places, len(plain)]):
            prompt += plain[start:stop]
            if stop in places and len(shots) < len(places):
                shots.append((draw(st.sampled_from("ab")), len(prompt)))
                prompt += [PAD, PAD, 4]
        prompts.append(prompt)
        responses.append(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
        images.append([shot(name, at - len(prompt)) for name, at in shots])
    batch = rows_of(prompts, responses, images=tuple(map(tuple, images)))
    return batch, prompts


@given(any_rows())
def test_contexts_rebuilt_from_any_rows_equal_the_rows(
    drawn: tuple[Batch, list[list[int]]],
) -> None:
    rows, prompts = drawn
    batch = join_rows(rows, "name", "row")
    contexts = [batch.context(0, number) for number in range(len(prompts))]

    assert [context.ids.tolist() for context in contexts] == prompts
    assert [names_of(context.images) for context in contexts] == [
        names_of(images) for images in rows.images or ()
    ]
    chains = batch.chains(0)
    assert [at for chain in chains for at in chain] == [*range(len(prompts))]
    for before, after in pairwise(contexts):
        kept = len(after.ids) - sum(p.stop - p.start for p in after.entered)
        gone = sum(piece.stop - piece.start for piece in after.left)
        size = len(rows.require_ids()[_part(rows, before.round)])
        if after.follows == "rewritten":
            assert len(before.ids) + size - gone == kept
        else:
            assert kept == len(before.ids) + size


def _part(rows: Batch, row: int) -> slice:
    begin = int(rows.offsets[row])
    return slice(begin, begin + int(rows.lengths[row]))


def forged(batch: Batch, **changes: Any) -> Batch:
    """Return a batch whose rewritten contexts have other starts or ranges."""
    return replace(batch, contexts=replace(batch.contexts, **changes))


@pytest.mark.parametrize("has_ids", [True, False])
def test_contexts_are_of_what_stands_before_their_rounds(*, has_ids: bool) -> None:
    """The prompt is at -2 and -1, round 0 at 0, what entered from `start` to `stop`."""
    if has_ids:
        batch = join_rows(rows_of([[1, 2], [3, 4]], [[5], [6]]), "name", "row")
        start, stop = 1, 3
    else:
        say = [[{"role": "user", "content": text}] for text in ("Go.", "On.")]
        rows = [
            {"trajectory": "a", "step": i, "messages": said, "response": "a b"}
            for i, said in enumerate(say)
        ]
        batch = Batch.from_steps(rows)
        start, stop = 2, 4
    assert batch.contexts.start.tolist() == [start]
    assert batch.contexts.ranges.tolist() == [[start, stop]]
    honest = [[[-2, stop]], [[start, stop], [-2, -1]], [[-1, 0], [start, stop]]]
    for ranges in honest:
        fits = {"ranges": np.array(ranges), "offsets": np.array([0, len(ranges)])}
        assert forged(batch, **fits).context(0, 1)
    wrong: list[dict[str, object]] = [
        {"ranges": np.array(ranges), "offsets": np.array([0, len(ranges)])}
        for ranges in (
            [[-3, stop]],  # before the prompt
            [[-2_000_000_000, -1_999_999_990]],
            [[0, stop + 1]],  # the round's own answer
            [[0, 0]],
            [[-2, stop], [-2, stop]],  # more than there is
            [[-1, 0], [-1, 0]],  # text comes once
            [[-1, 1], [-2, 0]],
        )
    ]
    wrong += [{"start": np.array([at])} for at in (-1, start - 1, stop + 1)]
    for changes in wrong:
        with pytest.raises(BatchError, match="ranges of positions of the samples"):
            forged(batch, **changes)
