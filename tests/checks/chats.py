"""Small batches of chats for the checks, and a tokenizer for them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from rounddiag.batch import Batch
from rounddiag.checks import Check
from rounddiag.checks.contracts import Contract
from rounddiag.vision import PatchScreenshot

SPECIAL = (
    *("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
START, END, VISION_START, VISION_END, PAD, VIDEO = range(len(SPECIAL))
ASSISTANT, USER, LINE, THINK, CLICK, DONE = range(10, 16)
_SPOKEN = ("assistant", "user", "\n", "<think>", "click", "done")
_WORDS = dict(enumerate(SPECIAL)) | dict(enumerate(_SPOKEN, ASSISTANT))
HEADER = [START, ASSISTANT, LINE]
QUESTION = [START, USER, LINE]


class Chat:
    """A tokenizer of whole words, as those of `tokenizers` behave."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(_WORDS[token_id] for token_id in ids)

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {
            token_id: SimpleNamespace(content=text, special=True)
            for token_id, text in enumerate(SPECIAL)
        }


class Broken:
    """A tokenizer that fails, whatever it is asked."""

    def decode(self, *_: object, **__: object) -> str:
        msg = "no\nvocabulary"
        raise RuntimeError(msg)

    get_added_tokens_decoder = decode


def chat(
    responses: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], **others: Any
) -> Batch:
    """Return responses of different lengths; log-probs differ everywhere."""
    lengths = [len(row) for row in responses]
    scores = {
        "rollout_log_probs": [-1 - torch.arange(n) / 8 for n in lengths],
        "old_log_probs": [-2 - torch.arange(n) / 8 for n in lengths],
    }
    return Batch.from_rows(
        response_ids=[torch.tensor(row, dtype=torch.int64) for row in responses],
        response_mask=[torch.tensor(row) for row in masks],
        **{**scores, **others},
    )


def prompts(*rows: Sequence[int]) -> dict[str, Any]:
    return {"prompt_ids": [torch.tensor(row, dtype=torch.int64) for row in rows]}


def scored(
    rollout: Sequence[Sequence[float]], old: Sequence[Sequence[float]], **others: Any
) -> Batch:
    """Return samples of which every token was generated, unless a mask says else."""
    ids = [list(range(len(row))) for row in rollout]
    rows = {
        "rollout_log_probs": [torch.tensor(row) for row in rollout],
        "old_log_probs": [torch.tensor(row) for row in old],
    }
    masks = others.pop("masks", [[1] * len(row) for row in rollout])
    return chat(ids, masks, **rows, **others)


def picture(*grid: int, position: int | None = None) -> PatchScreenshot:
    t, height, width = grid
    return PatchScreenshot(
        patches=lambda: torch.zeros(t * height * width, 1176),
        grid_thw=(t, height, width),
        position=position,
    )


def came_to(contract: Contract, batch: Batch) -> tuple[str, str, tuple[int, ...]]:
    """Return status, detail and samples of one contract."""
    result: Check = contract.check(batch)
    return result.status, result.detail, result.samples


PASSED = ("passed", "", ())


def untestable(detail: str) -> tuple[str, str, tuple[int, ...]]:
    return "not testable", detail, ()


NO_TOKEN = untestable("the batch has no generated token")
EMPTY = scored([], [])
