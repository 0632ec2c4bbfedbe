"""Files without a mask: rounds from the chat template, or rounds that are unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag import check, plot_rounds, round_frame
from rounddiag.loaders import load, save
from rounddiag.text.chat_template import decode_qwen, written_tokens
from tests.figures.plots import words
from tests.loaders.facts import has

START, END, ASSISTANT, LINE = 151644, 151645, 77091, 198  # of Qwen2
HEADER = [START, ASSISTANT, LINE]
USER = [START, 872, LINE]
TOOL = [LINE, *USER, 500, 501, END, LINE, *HEADER]
# Two rounds of 3 and 2 tokens with a tool's output between, and one round of 2.
ROWS = [[40, 41, END, *TOOL, 42, END], [43, END]]
WIDTH = len(ROWS[0])


def fields(**others: Any) -> dict[str, Any]:
    """What somebody saved who forgot `response_mask`."""
    ids = torch.tensor([row + [0] * (WIDTH - len(row)) for row in ROWS])
    real = torch.tensor([[1] * len(row) + [0] * (WIDTH - len(row)) for row in ROWS])
    old = torch.zeros(2, WIDTH)
    old[0, :3], old[0, -2:], old[1, :2] = -0.25, -1.0, -0.5
    return {
        "responses": ids,
        "attention_mask": real,
        "rollout_log_probs": torch.zeros(2, WIDTH),
        "old_log_probs": old,
        **others,
    }


def test_rounds_come_from_the_template_where_the_file_has_no_mask(
    tmp_path: Path,
) -> None:
    batch = load(fields())
    frame = round_frame(batch)
    assert frame["num_tokens"].tolist() == [3, 2, 2]
    assert frame["mean_abs_diff"].tolist() == [0.25, 1.0, 0.5]
    assert check(batch)[0].status == "passed"
    origin = {
        "meta.mask_source": "the chat template",
        "meta.rounds": "from the chat template",
    }
    written = [*[1] * 3, *[0] * len(TOOL), 1, 1, 1, 1, *[0] * (WIDTH - 2)]
    has(batch, {"response_mask": written, **origin})
    save(batch, tmp_path / "a.parquet", redact=True)
    has(load(tmp_path / "a.parquet"), origin)


def test_a_tokenizer_knows_other_templates() -> None:
    texts = {1: "<|eot_id|>", 2: "<|start_header_id|>", 3: "assistant"}
    texts |= {4: "<|end_header_id|>", 5: "\n\n"}
    ids = torch.tensor([[9, 1, 8, 8, 2, 3, 4, 5, 7, 7, 1]])
    batch = load(
        {
            "responses": ids,
            "attention_mask": torch.ones(1, 11),
            "rollout_log_probs": torch.full((1, 11), -1.0),
            "old_log_probs": torch.full((1, 11), -1.5),
        },
        tokenizer=lambda found: "".join(texts.get(one, "x") for one in found),
    )
    assert batch.response_mask.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1]


def test_a_file_whose_template_is_not_known_says_so_first_in_every_view() -> None:
    ids = torch.arange(2 * WIDTH).reshape(2, WIDTH)
    batch = load(fields(responses=ids))

    assert batch.num_tokens == WIDTH + 2
    assert batch.meta["rounds"] == "unknown"
    first = check(batch)[0]
    assert (first.name, first.status) == ("the rounds are known", "failed")
    assert first.detail == (
        "the file has no `response_mask`: observations count as generated tokens, and"
        " all rounds of a sample as one"
    )
    assert "the rounds are unknown" in words(plot_rounds(batch))


def test_a_tokenizer_that_fails_leaves_the_rounds_unknown() -> None:
    def broken(_: list[int]) -> str:
        msg = "no vocabulary"
        raise RuntimeError(msg)

    batch = load(fields(), tokenizer=broken)

    assert batch.meta["rounds"] == "unknown"


def pixels(num_images: int) -> dict[str, Any]:
    """The input of the processor: pictures of 4 x 4 patches, 4 image tokens each."""
    return {
        "pixel_values": torch.zeros(16 * num_images, 3 * 2 * 14 * 14),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * num_images),
    }


IMAGE = [6] * 4


@pytest.mark.parametrize(
    ("row", "num_images", "expected"),
    [
        (
            [40, 41, *IMAGE, 42, 43, *IMAGE, 44],
            2,
            {
                "rounds.num_tokens": [2, 2, 1],
                "meta.mask_source": "attention_mask without image tokens",
                "meta.rounds": "unknown",
                "pictures": [[(2, 1, (56, 56)), (8, 2, (56, 56))]],
            },
        ),
        (
            [40, END, LINE, *USER, *IMAGE, END, LINE, *HEADER, 42, END],
            1,
            {"rounds.num_tokens": [2, 2], "pictures": [[(6, 1, (56, 56))]]},
        ),
    ],
)
def test_image_tokens_at_least_are_no_generated_tokens(
    row: list[int], num_images: int, expected: dict[str, Any]
) -> None:
    ids = torch.tensor([row])
    columns = {
        "responses": ids,
        "attention_mask": torch.ones_like(ids),
        "rollout_log_probs": torch.full(ids.shape, -1.0),
        "old_log_probs": torch.full(ids.shape, -1.5),
        "multi_modal_inputs": [pixels(num_images)],
    }
    has(load(columns), expected)


def test_no_rounds_are_made_of_a_template_that_does_not_fit() -> None:
    def written(*row: int) -> Any:
        found = written_tokens([np.array(row)], decode_qwen)
        return None if found is None else found[0].tolist()

    assert written(5, 6, 7) is None  # no end of a turn
    assert written(5, END, 8, 9) is None  # tokens go on, and no header comes
    assert written(5, END) == [True, True]
    assert written(5, END, *HEADER, 6) == [True, True, False, False, False, True]


def test_a_file_with_a_mask_keeps_it() -> None:
    mask = torch.zeros(2, WIDTH)
    mask[:, :2] = 1
    expected = {"meta.mask_source": "response_mask", "meta.rounds": None}
    has(load(fields(response_mask=mask)), {"rounds.num_tokens": [2, 2], **expected})
