"""Contexts that hypotheses build from those of other rounds, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.batch.chains import split_chains
from rounddiag.batch.trajectories import join_rows
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.hypotheses.steps import Steps
from rounddiag.proof.trajectory import Picture, Samples, Trajectory
from rounddiag.vision import EncodedScreenshot
from tests.loaders.assembly.test_contexts import rows_of

# 1 begins a message and 2 ends it; 7 is the model's; 9 stands for a picture.
FIRST = [1, 9, 9, 20, 2, 1, 7]
APPENDED = [1, 9, 9, 21, 2, 1, 7]
WRITTEN = [[60, 61, 62, 2], [63, 64, 2], [65, 2]]


def joined(*prompts: list[int]) -> rd.Batch:
    """One trajectory; each context has the newest pictures, one token pair each."""
    count = [sum(np.diff([0, *(np.array(ids) == 9)]) == 1) for ids in prompts]
    pictures = []
    for number, (ids, size) in enumerate(zip(prompts, count, strict=True)):
        starts = np.flatnonzero(np.diff([0, *(np.array(ids) == 9)]) == 1)
        names = range(number + 1 - size, number + 1)
        pictures.append(
            tuple(
                EncodedScreenshot(data=bytes([name]), position=int(at) - len(ids))
                for name, at in zip(names, starts, strict=True)
            )
        )
    return join(rows_of(prompts, WRITTEN[: len(prompts)], images=tuple(pictures)))


def join(rows: rd.Batch) -> rd.Batch:
    """Join rows in their order."""
    columns = {**rows.sample_columns, "step": np.arange(len(rows))}
    return join_rows(replace(rows, sample_columns=columns), "name", "step")


def with_spans(trajectory: Trajectory) -> Trajectory:
    is_image = np.concatenate([[False], trajectory.ids.numpy() == 9, [False]])
    edges = np.flatnonzero(np.diff(is_image.astype(int)))
    spans = tuple((start, stop) for start, stop in edges.reshape(-1, 2).tolist())
    return replace(trajectory, spans=spans)


def edit(name: str, batch: rd.Batch, sample: int) -> list[tuple[list[int], list[Any]]]:
    """Return ids and pictures of each pass, the latter by their data."""
    (hypothesis,) = (each for each in all_registered() if each.name == name)
    samples = Samples(split_chains(batch), with_spans)
    assert hypothesis.edit is not None
    passes = hypothesis.edit(samples[sample], samples)
    assert passes is not None
    images = samples.batch.images
    assert images is not None
    return [
        (
            each.ids.tolist(),
            [images[shown.sample][shown.index].digest() for shown in each.pictures],
        )
        for each in passes  # type: ignore[union-attr]
    ]


def digests(*names: int) -> list[bytes]:
    return [EncodedScreenshot(data=bytes([name])).digest() for name in names]


def test_the_newest_picture_of_the_context_before() -> None:
    batch = joined(FIRST, [1, 9, 9, 30, 2, 1, 7])
    ids = [1, 9, 9, 30, 2, 1, 7, 63, 64, 2]
    assert edit("previous_image", batch, 1) == [(ids, digests(0))]


def test_replies_as_they_were_written_and_the_picture_that_left() -> None:
    second = [1, 20, 2, 1, 7, 62, 2, *APPENDED]
    batch = joined(FIRST, second)
    ids = [1, 20, 2, 1, 7, *WRITTEN[0], *APPENDED, *WRITTEN[1]]
    assert edit("replies_as_written", batch, 1) == [(ids, digests(1))]
    ids = [1, 9, 9, 20, 2, 1, 7, 62, 2, *APPENDED, *WRITTEN[1]]
    assert edit("window_one_longer", batch, 1) == [(ids, digests(0, 1))]


def test_pictures_are_those_of_the_context_in_its_order() -> None:
    # The newest picture, 1, is put before the older one, 0.
    first = [1, 9, 9, 20, 21, 22, 23, 2, 1, 7]
    second = [1, 9, 9, 30, 2, 9, 9, 20, 21, 22, 23, 2, 1, 7]
    pictures = (
        (EncodedScreenshot(data=b"\0", position=-9),),
        (
            EncodedScreenshot(data=b"\1", position=-13),
            EncodedScreenshot(data=b"\0", position=-9),
        ),
    )
    batch = join(rows_of([first, second], WRITTEN[:2], images=pictures))
    assert [image.digest() for image in batch.context(0, 1).images] == digests(1, 0)
    chains = split_chains(batch)
    assert chains.chains[1].shown == (1, 0)
    assert chains.batch.images is not None
    images = chains.batch.images[1]
    assert [image.digest() for image in images] == digests(1, 0)
    assert [image.position for image in images] == [-13, -9]
    samples = Samples(chains, with_spans)
    assert Steps(samples, 0).shown(1) == (Picture(1, 0), Picture(0, 0))


def test_thoughts_leave_the_replies_of_a_context() -> None:
    second = [1, 20, 2, 1, 7, *WRITTEN[0], *APPENDED]
    words = {61: "</think>"}
    batch = replace(
        joined(FIRST, second),
        tokenizer=lambda ids: "".join(words.get(each, "x") for each in ids),
    )
    ids = [1, 20, 2, 1, 7, 62, 2, *APPENDED, *WRITTEN[1]]
    assert edit("replies_without_thoughts", batch, 1) == [(ids, digests(1))]


def test_a_context_that_goes_on_as_if_none_were_rewritten() -> None:
    second = [*FIRST, *WRITTEN[0], *APPENDED]
    summary = [1, 9, 9, 40, 2, 1, 7]
    batch = joined(FIRST, second, summary)
    ids = [*second, *WRITTEN[1], *APPENDED, *WRITTEN[2]]
    assert edit("never_rewritten", batch, 1) == [(ids, digests(0, 1, 2))]


def test_a_recorded_prompt_has_pictures_that_left_the_trainer_s_context() -> None:
    second = [*FIRST, *WRITTEN[0], *APPENDED]
    batch = joined(FIRST, second, [1, 9, 9, 40, 2, 1, 7])
    never = [*second, *WRITTEN[1], *APPENDED]
    prompts = np.array([None, None, never], dtype=object)
    columns = {**batch.round_columns, "prompt_ids": prompts}
    batch = replace(batch, round_columns=columns)
    ids = [*never, *WRITTEN[2]]
    assert edit("recorded_prompts", batch, 1) == [(ids, digests(0, 1, 2))]


def test_an_ordinary_batch_has_no_other_contexts() -> None:
    batch = joined(FIRST, [*FIRST, *WRITTEN[0], *APPENDED])
    samples = Samples(split_chains(batch), with_spans)
    for hypothesis in all_registered():
        if hypothesis.cause == "rewritten_history":
            assert hypothesis.edit is not None
            assert hypothesis.edit(samples[0], samples) is None


def test_chains_are_scored_as_the_rows_that_they_were_joined_from() -> None:
    prompts = [FIRST, [1, 20, 2, 1, 7, 62, 2, 1, 30, 2, 1, 7]]
    rows = rows_of(
        [[each for each in ids if each != 9] for ids in prompts], WRITTEN[:2]
    )

    def engine(ids: list[int], _: object) -> list[float]:
        return [-float(np.log1p(total)) for total in np.cumsum(ids)]

    alone = rd.rescore(rows, engine).scores["rescored"]
    together = rd.rescore(join(rows), engine)
    tokens = rd.token_frame(together, a="rescored", b="old")
    expected = (alone - rows.log_probs("old")).tolist()
    assert tokens["diff"].tolist() == pytest.approx(expected)


@pytest.mark.slow
def test_scores_of_a_joined_batch_are_written_and_attached(tmp_path: Any) -> None:
    batch = join_rows(rows_of([[1, 20, 1, 7], [1, 30, 1, 7]], WRITTEN[:2]), "name")
    rd.export_rescore(batch, tmp_path / "out")
    chains = split_chains(batch)
    scores = {
        "sample": [0, 1],
        "token_ids": WRITTEN[:2],
        "log_probs": [[-0.5] * len(ids) for ids in WRITTEN[:2]],
    }
    rescored = rd.attach(batch, "rescored", scores).scores["rescored"]
    assert len(chains.chains) == 2
    written = batch.response_mask != 0
    assert torch.equal(rescored[written], torch.full((7,), -0.5))
    assert (tmp_path / "out" / "samples.jsonl").read_text().count("\n") == 2
