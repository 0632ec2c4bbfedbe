"""Which round first sees a screenshot, and which bytes are read for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from rounddiag import Batch
from rounddiag.loaders import load
from rounddiag.loaders.screens import image_rounds
from rounddiag.loaders.source import Span
from tests.loaders.verl_writer import small_batch, write

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = 900


def batch_of(prompt: list[int], response: list[int], mask: list[int]) -> Batch:
    zeros = torch.zeros(len(response))
    return Batch.from_rows(
        response_ids=[torch.tensor(response)],
        response_mask=[torch.tensor(mask)],
        rollout_log_probs=[zeros],
        old_log_probs=[zeros],
        prompt_ids=[torch.tensor(prompt)],
    )


def test_a_picture_belongs_to_the_next_round() -> None:
    batch = batch_of(
        [1, IMAGE, IMAGE, 2], [5, 6, 3, IMAGE, IMAGE, IMAGE, 4, 7], [1, 1, *[0] * 5, 1]
    )

    assert image_rounds(batch, 0, [2, 3]) == [0, 1]


def test_two_pictures_before_one_round_belong_to_it_both() -> None:
    batch = batch_of([IMAGE, IMAGE, 1, IMAGE, IMAGE], [5], [1])

    assert image_rounds(batch, 0, [2, 2]) == [0, 0]


def test_a_picture_after_the_last_round_belongs_to_none() -> None:
    batch = batch_of([1, IMAGE, IMAGE], [5, 3, IMAGE, IMAGE], [1, 0, 0, 0])

    assert image_rounds(batch, 0, [2, 2]) == [0, None]


def test_a_picture_that_is_cut_off_belongs_to_no_round() -> None:
    batch = batch_of([1, IMAGE, IMAGE], [5, 3, IMAGE], [1, 0, 0])

    assert image_rounds(batch, 0, [2, 2, 2]) == [0, None, None]


def test_no_round_is_guessed_where_two_tokens_could_be_the_picture() -> None:
    batch = batch_of([8, 8, 1, IMAGE, IMAGE], [5], [1])

    assert image_rounds(batch, 0, [2]) == [None]


def test_repeated_text_is_no_picture() -> None:
    batch = batch_of([8, 8, 8, 1, IMAGE, IMAGE], [8, 8, 8, 8], [1, 1, 1, 1])

    assert image_rounds(batch, 0, [2]) == [0]


def inputs(grids: list[list[int]], width: int = 1176) -> dict[str, torch.Tensor]:
    rows = sum(t * h * w for t, h, w in grids)
    values = torch.arange(rows)[:, None].expand(-1, width).float().contiguous()
    return {"pixel_values": values, "image_grid_thw": torch.tensor(grids)}


def test_one_screenshot_reads_its_own_patches_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"multi_modal_inputs": [inputs([[1, 2, 2], [1, 2, 4]]), {}]}
    batch = load(write(tmp_path / "a.pkl", small_batch(), columns))
    assert batch.images is not None
    (first, second), nothing = batch.images
    reads: list[int] = []

    def counting(span: Span, buffer: memoryview) -> None:
        reads.append(len(buffer))
        original(span, buffer)

    original = Span.read_into
    monkeypatch.setattr(Span, "read_into", counting)

    assert nothing == ()
    assert (first.size, second.size) == ((28, 28), (56, 28))
    assert second.patches()[:, 0].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]  # type: ignore[attr-defined]
    assert reads == [8 * 1176 * 4]


def test_nothing_of_the_pixels_is_read_to_open_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"multi_modal_inputs": [inputs([[1, 8, 8]]), {}]}
    path = write(tmp_path / "a.pkl", small_batch(), columns)
    reads: list[int] = []

    def counting(span: Span, buffer: memoryview) -> None:
        reads.append(len(buffer))
        original(span, buffer)

    original = Span.read_into
    monkeypatch.setattr(Span, "read_into", counting)
    load(path)

    assert max(reads) == 96  # `attention_mask`, 2 x 6 numbers of 8 bytes
    assert 24 in reads  # the grid


ONE = torch.tensor([[1, 2, 2]])


@pytest.mark.parametrize(
    ("values", "grid"),
    [
        (torch.zeros(3, 1176), ONE),
        (torch.zeros(4, 999), ONE),
        (torch.zeros(4), ONE),
        (torch.zeros(4, 1176), None),
        ("none", ONE),
        (torch.zeros(4, 1176), torch.tensor([1, 2])),
        (torch.zeros(0, 1176), torch.tensor([[1, 0, 2]])),
    ],
)
def test_pixels_of_another_processor_are_no_screenshots(
    values: object, grid: object, tmp_path: Path
) -> None:
    odd = {"pixel_values": values, "image_grid_thw": grid}
    columns = {"multi_modal_inputs": [odd, {}]}
    batch = load(write(tmp_path / "a.pkl", small_batch(), columns))

    assert batch.images is None
    assert batch.num_samples == 2
