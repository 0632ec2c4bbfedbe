"""Which round first sees a screenshot, and which bytes are read for it."""

from __future__ import annotations

from itertools import accumulate, count
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch
from rounddiag.batch.picture_places import ImagePlace, image_places
from rounddiag.batch.sample_sequence import known_sequence
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.source import Span
from rounddiag.vision.image_tokens import find_image_token
from tests.loaders.facts import has
from tests.loaders.verl_writer import small_batch, write

IMAGE = 900


def batch_of(prompt: list[int], response: list[int], mask: list[int]) -> Batch:
    zeros = torch.zeros(len(response))
    return Batch.from_rows(
        response_ids=[torch.tensor(response, dtype=torch.int64)],
        response_mask=[torch.tensor(mask)],
        rollout_log_probs=[zeros],
        old_log_probs=[zeros],
        prompt_ids=[torch.tensor(prompt, dtype=torch.int64)],
    )


def image_token(batch: Batch, sizes: list[list[int]]) -> int | None:
    ids = [known_sequence(batch, sample)[1] for sample in range(len(batch))]
    return find_image_token(ids, sizes=sizes)


def places(batch: Batch, *num_tokens: int) -> list[tuple[int | None, int | None]]:
    return [(at, round_) for at, round_ in image_places(batch, 0, num_tokens)]


Places = list[tuple[int | None, int | None]]
TWO = [IMAGE] * 2
PLACES: dict[str, tuple[list[list[int]], list[int], Places]] = {
    "before the next round": (
        [[1, *TWO, 2], [5, 6, 3, *TWO, IMAGE, 4, 7], [1, 1, 0, 0, 0, 0, 0, 1]],
        [2, 3],
        [(-3, 0), (3, 1)],
    ),
    "without a prompt": ([[], [*TWO, 5], [0, 0, 1]], [2], [(0, 0)]),
    "two before one round": ([[*TWO, 1, *TWO], [5], [1]], [2, 2], [(-5, 0), (-2, 0)]),
    "after the last round": (
        [[1, *TWO], [5, 3, *TWO], [1, 0, 0, 0]],
        [2, 2],
        [(-2, 0), (2, None)],
    ),
    "cut off at the end": (
        [[1, *TWO], [5, 3, IMAGE], [1, 0, 0]],
        [2, 2, 2],
        [(-2, 0), (2, None), (None, None)],
    ),
    "a short run before the end is none": (
        [[1, *TWO], [5, 3, IMAGE, 4], [1, 0, 0, 1]],
        [2, 2],
        [(None, None), (None, None)],
    ),
    "repeated text is none": (
        [[8, 8, 8, 1, *TWO], [8, 8, 8, 8], [1, 1, 1, 1]],
        [2],
        [(-2, 0)],
    ),
    "no tokens": ([[], [], []], [2], [(None, None)]),
}


@pytest.mark.parametrize("kind", PLACES)
def test_pictures_are_placed(kind: str) -> None:
    rows, sizes, expected = PLACES[kind]
    assert places(batch_of(*rows), *sizes) == expected


def test_no_place_is_guessed_where_two_tokens_could_be_the_picture() -> None:
    batch = batch_of([8, 8, 1, IMAGE, IMAGE], [5], [1])

    assert places(batch, 2) == [(None, None)]
    assert image_token(batch, [[2]]) is None
    assert image_places(batch, 0, [2], token=IMAGE) == [
        ImagePlace(position=-2, round=0)
    ]


def test_the_image_token_is_the_one_of_most_samples() -> None:
    rows = [[8, 8, 1, IMAGE, IMAGE], [8, IMAGE, IMAGE], [7]]
    batch = Batch.from_rows(
        response_ids=[torch.tensor(row) for row in rows],
        response_mask=[torch.zeros(len(row)) for row in rows],
        rollout_log_probs=[torch.zeros(len(row)) for row in rows],
        old_log_probs=[torch.zeros(len(row)) for row in rows],
    )

    assert image_token(batch, [[2], [2], []]) == IMAGE
    assert image_token(batch, [[3], [], []]) is None


@given(
    st.lists(st.integers(2, 5), max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(2, 5), max_size=2))),
)
def test_every_picture_is_found_where_it_was_put(
    before: list[int], turns: list[tuple[int, list[int]]]
) -> None:
    """Prompt of pictures; then rounds of some tokens, each followed by pictures."""
    text = count(1_000)  # no token of the text twice
    prompt = [token for size in before for token in (next(text), *[IMAGE] * size)]
    ends = [*accumulate(size + 1 for size in before)]
    expected = [
        (end - size - len(prompt), 0) for size, end in zip(before, ends, strict=True)
    ]
    response: list[int] = []
    mask: list[int] = []
    for number, (num_tokens, sizes) in enumerate(turns):
        response += [next(text) for _ in range(num_tokens)]
        for size in sizes:
            response += [next(text)]
            expected += [(len(response), number + 1)]
            response += [IMAGE] * size
        response += [next(text)]  # an observation, also where no picture is
        mask += [1] * num_tokens + [0] * (len(response) - len(mask) - num_tokens)
    sizes = before + [size for _, part in turns for size in part]
    rounds = len(turns)

    assert places(batch_of(prompt, response, mask), *sizes) == [
        (position, round_ if round_ < rounds else None) for position, round_ in expected
    ]


def inputs(grids: list[list[int]], width: int = 1176) -> dict[str, torch.Tensor]:
    rows = sum(t * h * w for t, h, w in grids)
    values = torch.arange(rows)[:, None].expand(-1, width).float().contiguous()
    return {"pixel_values": values, "image_grid_thw": torch.tensor(grids)}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read of a file."""
    reads: list[int] = []
    original = Span.read_into

    def counting(span: Span, buffer: memoryview) -> None:
        reads.append(len(buffer))
        original(span, buffer)

    monkeypatch.setattr(Span, "read_into", counting)
    return reads


def test_one_screenshot_reads_its_own_patches_only(
    tmp_path: Path, reads: list[int]
) -> None:
    columns = {"multi_modal_inputs": [inputs([[1, 2, 2], [1, 2, 4]]), {}]}
    batch = load(write(tmp_path / "a.pkl", small_batch(), columns))
    (first, second), nothing = batch.images
    assert nothing == ()
    assert (first.size, second.size) == ((28, 28), (56, 28))
    reads.clear()
    assert second.patches()[:, 0].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]  # type: ignore[attr-defined]
    assert reads == [8 * 1176 * 4]


def test_nothing_of_the_pixels_is_read_to_open_the_file(
    tmp_path: Path, reads: list[int]
) -> None:
    columns = {"multi_modal_inputs": [inputs([[1, 8, 8]]), {}]}
    load(write(tmp_path / "a.pkl", small_batch(), columns))
    assert max(reads) == 96  # `attention_mask`, 2 x 6 numbers of 8 bytes
    assert 24 in reads  # the grid


ONE = torch.tensor([[1, 2, 2]])
UNKNOWN = "its `pixel_values` and `image_grid_thw` are not those of a Qwen2-VL kind"
ODD = {"pixel_values": torch.zeros(3, 1176), "image_grid_thw": ONE}
VIDEO = {"pixel_values_videos": torch.zeros(8, 1176), "pixel_values": None}


class BatchFeature:
    """Pickles as that of transformers does."""

    def __init__(self, data: dict[str, torch.Tensor]) -> None:
        self.data = data

    def __getstate__(self) -> dict[str, object]:
        return {"data": self.data}


@pytest.mark.parametrize(
    ("values", "grid"),
    [
        (torch.zeros(3, 1176), ONE),
        (torch.zeros(4, 999), ONE),
        (torch.zeros(4), ONE),
        (torch.zeros(4, 1176), None),
        ("none", ONE),
        (torch.zeros(4, 1176), torch.tensor([1, 2])),
        (torch.zeros(4, 1176), torch.tensor([[1.0, 2.0, float("nan")]])),
        (torch.zeros(3, 1176), torch.tensor([[1, 3, 1]])),
        (torch.zeros(4, 1176), torch.tensor([[1, -2, -2]])),
        (torch.zeros(0, 1176), torch.tensor([[1, 0, 2]])),
    ],
)
def test_pixels_of_another_processor_are_no_screenshots(
    values: object, grid: object, tmp_path: Path
) -> None:
    odd = {"pixel_values": values, "image_grid_thw": grid}
    columns = {"multi_modal_inputs": [odd, {}]}
    batch = load(write(tmp_path / "a.pkl", small_batch(), columns))
    has(batch, {"images": None, "meta.screenshots": [f"sample 0: {UNKNOWN}"]})


WIDE, SMALL = (56, 28), (28, 28)
PLACED = [(0, 0, WIDE)]
AMBIGUOUS = "no token, or more than one, has such runs"
# Responses, the inputs of the processor, pictures by position and round, and what is
# said of them; the third token of the first response was generated.
SHOWN: dict[str, tuple[list[list[int]], list[Any], list[Any], list[str]]] = {
    "more grids than image tokens": (
        [[7, 7, 5, 7], [7, 0, 0, 0]],
        [inputs([[1, 2, 4], [1, 2, 2]]), inputs([[1, 2, 4]])],
        [[(0, 0, WIDE), (3, None, SMALL)], [(0, None, WIDE)]],
        ["sample 1: image tokens by its grids: 2; runs of token 7: 1"],
    ),
    "another processor in one sample": (
        [[7, 7, 5, 8], [9, 0, 0, 0]],
        [inputs([[1, 2, 4]]), ODD],
        [PLACED, []],
        [f"sample 1: {UNKNOWN}"],
    ),
    "one token by its grids": (
        [[7, 5, 6, 8], [9, 0, 0, 0]],
        [inputs([[1, 2, 2]]), {}],
        [[(None, None, SMALL)], []],
        [f"sample 0: image tokens by its grids: 1; {AMBIGUOUS}"],
    ),
    "six grids and no such runs": (
        [[7, 5, 6, 8], [9, 0, 0, 0]],
        [inputs([[1, 2, 6]] * 6), {}],
        [[(None, None, (84, 28))] * 6, []],
        [f"sample 0: image tokens by its grids: 3, 3, 3, 3 and 2 more; {AMBIGUOUS}"],
    ),
    "image tokens without a screenshot": (
        [[7, 7, 5, 8], [7, 0, 0, 0]],
        [inputs([[1, 2, 4]]), {}],
        [PLACED, []],
        ["sample 1: image tokens by its grids: none; runs of token 7: 1"],
    ),
    "videos": (
        [[7, 7, 5, 8], [9, 0, 0, 0]],
        [inputs([[1, 2, 4]]), VIDEO],
        [PLACED, []],
        ["sample 1: its videos are left out"],
    ),
    "what a processor of transformers gave": (
        [[7, 7, 5, 8], [9, 0, 0, 0]],
        [BatchFeature(inputs([[1, 2, 4]])), None],
        [PLACED, []],
        [],
    ),
    "no rows": (
        [[7, 7, 5, 8], [9, 0, 0, 0]],
        [],
        [],
        ["`multi_modal_inputs` has 0 rows, not one per sample"],
    ),
    "three rows": (
        [[7, 7, 5, 8], [9, 0, 0, 0]],
        [inputs([[1, 2, 2]])] * 3,
        [],
        ["`multi_modal_inputs` has 3 rows, not one per sample"],
    ),
}


@pytest.mark.parametrize(("ids", "rows", "shots", "facts"), SHOWN.values(), ids=SHOWN)
def test_what_does_not_match_is_reported(
    ids: list[list[int]],
    rows: list[Any],
    shots: list[Any],
    facts: list[str],
    tmp_path: Path,
) -> None:
    tensors = small_batch()
    tensors["responses"] = torch.tensor(ids)
    tensors["response_mask"] = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]])
    path = write(tmp_path / "a.pkl", tensors, {"multi_modal_inputs": rows})
    has(load(path), {"pictures": shots, "meta.screenshots": facts or None})


def test_what_is_odd_in_all_samples_is_reported_for_a_few(tmp_path: Path) -> None:
    tensors = {name: rows[:1].repeat(10, 1) for name, rows in small_batch().items()}
    batch = load(write(tmp_path / "a.pkl", tensors, {"multi_modal_inputs": [ODD] * 10}))
    facts = [f"sample {sample}: {UNKNOWN}" for sample in range(8)]
    assert batch.meta["screenshots"] == [*facts, "and 2 more"]


def test_a_small_file_of_endless_screenshots_is_refused(tmp_path: Path) -> None:
    grids = torch.tensor([[1, 2, 2]]).expand(2_000, -1)
    pixels = torch.zeros(1, 1).expand(8_000, 1176)
    endless = {"pixel_values": pixels, "image_grid_thw": grids}
    path = write(
        tmp_path / "a.pkl", small_batch(), {"multi_modal_inputs": [endless] * 2}
    )

    with pytest.raises(LoadError, match="found more screenshots than its bytes can"):
        load(path)
