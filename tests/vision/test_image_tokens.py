"""Several runs of image tokens for one picture, as processors write them.

The oracles are the functions with which processors of transformers 5.24.0 write a
picture of 1920 x 1080 pixels: Llama 4 has 16 tiles, SmolVLM 13, Pixtral 36 rows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.models.llama4.processing_llama4 import Llama4Processor
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from rounddiag.proof.engines.pictures import collapse, with_spans
from rounddiag.proof.trajectory import Request
from rounddiag.vision.image_tokens import TokenRuns
from tests.proof.test_edits import ONE

IMAGE = "<IMG>"


def llama4(rows: int, columns: int) -> str:
    names = {
        "start_of_img_token": "<|image_start|>",
        "end_of_img_token": "<|image_end|>",
        "fake_image_token": "<|image|>",
        "img_patch_token": IMAGE,
        "tile_token": "<|tile_x_separator|>",
        "tile_global_token": "<|tile_y_separator|>",
    }
    write = Llama4Processor._prompt_split_image
    text: str = write(SimpleNamespace(**names), (rows, columns), 9)
    return text.replace("<|patch|>", IMAGE)


def smolvlm(rows: int, columns: int) -> str:
    text: str = get_image_prompt_string(
        rows, columns, 8, "<fake_token_around_image>", IMAGE, "<global-img>"
    )
    return text


def pixtral(rows: int, columns: int) -> str:
    """Write [IMG] of a row, then [IMG_BREAK], and [IMG_END] after the last row."""
    return "<IMG_BREAK>".join([IMAGE * columns] * rows) + "<IMG_END>"


def qwen(rows: int, columns: int) -> str:
    return f"<vision_start>{IMAGE * rows * columns}<vision_end>"


CASES = [
    (llama4, [(5, 3)], 16),
    (llama4, [(5, 3), (1, 1), (2, 2)], 22),
    (smolvlm, [(3, 4)], 13),
    (smolvlm, [(3, 4), (3, 4)], 26),
    (smolvlm, [(3, 4), (0, 0)], 14),
    (pixtral, [(36, 64)], 36),
    (pixtral, [(36, 64), (2, 5), (3, 64)], 41),
    (qwen, [(4, 5), (2, 3)], 2),
]


def ids_of(text: str) -> np.ndarray:
    """Number the special tokens and single characters of a text."""
    pieces = re.findall(r"<[^<>]+>|\s|\w+", text)
    names = {name: at for at, name in enumerate(dict.fromkeys([IMAGE, *pieces]))}
    return np.array([names[piece] for piece in pieces])


@pytest.mark.parametrize("between", ["", " then a click and what came of it "])
@pytest.mark.parametrize(("write", "sizes", "num_runs"), CASES)
def test_runs_are_counted_per_picture(
    write: object, sizes: list[tuple[int, int]], num_runs: int, between: str
) -> None:
    texts = [write(*size) for size in sizes]  # type: ignore[operator]
    ids = ids_of(f"look {between.join(texts)} now")
    runs = TokenRuns.of_ids(ids, 0)
    assert len(runs.start) == num_runs
    joined = runs.of_pictures(ids, len(sizes))
    assert len(joined.start) == len(sizes)
    counts = [text.count(IMAGE) for text in texts]
    stops = joined.start + joined.length
    pairs = zip(joined.start, stops, strict=True)
    assert [int((ids[a:b] == 0).sum()) for a, b in pairs] == counts
    # A picture fewer or more than there are stays an error, where text is between.
    for number in {len(sizes) - 1, len(sizes) + 1} - {num_runs} if between else ():
        assert len(runs.of_pictures(ids, number).start) == num_runs


def test_pictures_that_are_missing_are_not_joined() -> None:
    """Of three pictures one was saved, and pictures are close to each other."""
    ids = ids_of(qwen(2, 3) * 3)
    assert len(TokenRuns.of_ids(ids, 0).of_pictures(ids, 1).start) == 3


@pytest.mark.parametrize("write", [llama4, pixtral])
def test_a_server_gets_one_token_for_each_picture(write: object) -> None:
    text = write(3, 5) * 2  # type: ignore[operator]
    ids = torch.from_numpy(ids_of(f"look {text} now"))
    shots = (SimpleNamespace(),) * 2
    plain = replace(ONE, ids=ids, start=1, rounds=(), shots=shots)  # type: ignore[arg-type]
    for token in (0, None):
        trajectory = with_spans(replace(plain, image_token=token))
        assert len(trajectory.spans) == 2
        request = Request.of_sample(trajectory)
        sent = collapse(request, [trajectory])  # type: ignore[arg-type]
        assert sent.count(0) == 2
        num_inside = sum(stop - start for start, stop in trajectory.spans)
        assert len(sent) == len(ids) - num_inside + 2
