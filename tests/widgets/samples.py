"""Small batches with text, observations and screenshots."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from rounddiag import Batch
from rounddiag.vision import EncodedScreenshot

# Text that a page must show and not obey; some of it is no valid Unicode.
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<|im_start|>",
    "\u202e\u05e9\u05dc\u05d5\u05dd",
    "\u200b\u2066",
    "\ud83d",
    "\x00\x1b[2J",
]


@dataclass(frozen=True)
class Special:
    """What transformers keeps of a special token."""

    content: str
    special: bool = True


class Words:
    """A tokenizer that has a piece of text for each id."""

    def __init__(self, pieces: Sequence[str], special: Sequence[str] = ()) -> None:
        self.pieces = [*pieces]
        self.added_tokens_decoder = {
            self.pieces.index(text): Special(text) for text in special
        }

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        assert not skip_special_tokens
        return "".join(self.pieces[i] for i in ids)


def worded(
    rounds: Sequence[Sequence[str]],
    *,
    between: Sequence[str] = ("obs",),
    prompt: Sequence[str] | None = None,
    special: Sequence[str] = (),
    diffs: Sequence[float] | None = None,
    **others: Any,
) -> Batch:
    """A batch of one sample: these words, with an observation before each round."""
    words, mask = [], []
    for round_words in rounds:
        words += [*between, *round_words]
        mask += [0] * len(between) + [1] * len(round_words)
    known = [*dict.fromkeys([*words, *(prompt or ()), *special])]
    ids = [known.index(word) for word in words]
    old = torch.zeros(len(ids))
    old[torch.tensor(mask, dtype=torch.bool)] = torch.tensor(
        [0.0] * sum(mask) if diffs is None else [*diffs], dtype=torch.float32
    )
    if prompt is not None:
        others["prompt_ids"] = [torch.tensor([known.index(word) for word in prompt])]
    return Batch.from_rows(
        response_ids=[torch.tensor(ids, dtype=torch.int64)],
        response_mask=[torch.tensor(mask, dtype=torch.int64)],
        rollout_log_probs=[torch.zeros(len(ids))],
        old_log_probs=[old],
        tokenizer=Words(known, special),
        **others,
    )


def png(width: int, height: int, color: str = "#123456", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), color).save(
        buffer, **{"format": "PNG", **options}
    )
    return buffer.getvalue()


def shot(width: int = 8, height: int = 4, **fields: Any) -> EncodedScreenshot:
    return EncodedScreenshot(data=png(width, height), **fields)
