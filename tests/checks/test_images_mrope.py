"""Position ids: integers, and as Qwen2.5-VL computes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.batch.trajectories import join_rows
from rounddiag.checks.images import INTEGERS, MROPE, rope_positions
from tests.checks.chats import (
    CLICK,
    PAD,
    PASSED,
    VISION_END,
    VISION_START,
    Chat,
    came_to,
    chat,
    picture,
    prompts,
    untestable,
)

# `Qwen2_5_VLModel.get_rope_index` of transformers 5.23.0 gave these: two texts of two
# tokens around pictures of 2 x 3 and 2 x 2 merged patches (tests/interop/mrope.py).
OF_TRANSFORMERS = [
    [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 7, 7, 7, 9, 10],
    [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 7, 8, 8, 9, 10],
    [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10],
]
TEXT = list(range(16))


def test_recomputed_positions_are_those_of_transformers() -> None:
    positions = rope_positions(16, [(2, (1, 4, 6)), (10, (1, 4, 4))])
    assert positions.tolist() == OF_TRANSFORMERS


def test_text_counts_on() -> None:
    assert rope_positions(3, []).tolist() == [[0, 1, 2]] * 3


def batch(positions: Any, **others: Any) -> Any:
    """Return the text above: 9 tokens of prompt, and a response with the rest."""
    text = [
        *[CLICK] * 2,
        *[PAD] * 6,
        *[VISION_END, VISION_START],
        *[PAD] * 4,
        CLICK,
        CLICK,
    ]
    fields = {
        "images": ((picture(1, 4, 6), picture(1, 4, 4)),),
        "tokenizer": Chat(),
        **prompts(text[:9]),
        **others,
    }
    ids = None if positions is None else (torch.as_tensor(positions),)
    return chat([text[9:]], [[0, 0, 0, 0, 0, 1, 1]], position_ids=ids, **fields)


@pytest.mark.parametrize("rows", [OF_TRANSFORMERS, [TEXT, *OF_TRANSFORMERS], TEXT])
def test_three_rows_four_and_one_pass(rows: Any) -> None:
    assert came_to(MROPE, batch(rows)) == PASSED
    assert came_to(INTEGERS, batch(rows)) == PASSED


def test_positions_start_anew_only_in_each_chain() -> None:
    row = [CLICK] * 2 + [PAD] * 6
    places = rope_positions(9, [(2, (1, 4, 6))])
    shots = ((picture(1, 4, 6, position=-6),),) * 2
    rows = chat(
        [[CLICK]] * 2,
        [[1]] * 2,
        position_ids=(places, places),
        images=shots,
        sample_columns={"name": np.zeros(2, int)},
        **prompts(row, row),
    )
    joined = join_rows(rows, "name", "row")
    assert joined.position_ids is not None
    assert joined.position_ids[0].shape == (3, 18)
    assert came_to(MROPE, joined) == PASSED
    # The largest position of the first row is 5.
    wrong = replace(joined, position_ids=(joined.position_ids[0] + 1,))
    assert came_to(MROPE, wrong)[1] == (
        "1 sample with other positions: sample 0 has 1 in row 0 at position -8, not 0"
    )


def test_positions_of_text_alone_are_wrong_for_pictures() -> None:
    assert came_to(MROPE, batch([TEXT] * 4)) == (
        "failed",
        "1 sample with other positions: sample 0 has 3 in row 1 at position -6, not 2",
        (0,),
    )


def test_the_text_row_comes_first() -> None:
    result = came_to(MROPE, batch([*OF_TRANSFORMERS, TEXT]))
    assert result[1].endswith("sample 0 has 2 in row 0 at position -6, not 3")


@pytest.mark.parametrize("rows", [[TEXT] * 2, [TEXT[:15]] * 3, [[TEXT] * 3]])
def test_another_shape_is_reported(rows: Any) -> None:
    status, detail, _ = came_to(MROPE, batch(rows))
    assert status == "failed"
    shape = tuple(torch.tensor(rows).shape)
    assert detail.endswith(f"sample 0 has position ids of shape {shape} for 16 tokens")


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [("bfloat16", "256"), ("float16", "2,048"), ("float32", "16,777,216")],
)
def test_positions_in_floating_point_are_reported(dtype: str, limit: str) -> None:
    floats = torch.tensor(OF_TRANSFORMERS).to(getattr(torch, dtype))
    assert came_to(INTEGERS, batch(floats)) == (
        "failed",
        f"they are torch.{dtype}, which rounds positions above {limit}",
        (),
    )
    assert came_to(MROPE, batch(floats)) == PASSED


def test_the_coarsest_dtype_is_reported() -> None:
    ids = (torch.zeros(3, 1).bfloat16(), torch.zeros(3, 1))
    mixed = chat([[CLICK]] * 2, [[1]] * 2, position_ids=ids)
    assert came_to(INTEGERS, mixed)[1].startswith("they are torch.bfloat16, which")


def test_positions_that_went_through_bfloat16_are_reported() -> None:
    rounded = torch.arange(300).bfloat16().long().repeat(3, 1)
    text = chat(
        [[CLICK] * 300],
        [[1] * 300],
        position_ids=(rounded,),
        images=((),),
        **prompts([]),
    )
    assert came_to(INTEGERS, text) == PASSED
    assert came_to(MROPE, text)[1] == (
        "1 sample with other positions: sample 0 has 256 in row 0 at position 257, not"
        " 257, as bfloat16 rounds it"
    )


def test_what_is_missing_is_named() -> None:
    for contract in (INTEGERS, MROPE):
        assert came_to(contract, batch(None)) == untestable("needs `position_ids`")
    no_prompts = batch(OF_TRANSFORMERS, prompt_ids=None)
    assert came_to(MROPE, no_prompts) == untestable("needs `prompt_ids`")
    unknown = batch(OF_TRANSFORMERS, images=None)
    assert came_to(MROPE, unknown) == untestable("needs `images`")
    assert came_to(MROPE, batch([TEXT] * 3, images=None)) == PASSED


def test_a_sample_whose_image_tokens_do_not_fit_is_not_recomputed() -> None:
    odd = batch(OF_TRANSFORMERS, images=((picture(1, 4, 4), picture(1, 4, 4)),))
    why = "the image tokens are not those of the grids"
    assert came_to(MROPE, odd) == untestable(why)
