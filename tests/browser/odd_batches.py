"""Batches that are hostile in every text, broken, or next to empty."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import rounddiag as rd
from rounddiag import Batch
from rounddiag.vision import EncodedScreenshot
from tests.batches import padded, random_log_probs
from tests.browser.hard_batches import with_rounds, without_numbers, words

HOSTILE = (
    "<script>document.title='taken'</script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "<|im_start|>",
    "\u202eright to left\u2066",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u200b\u200d\ufeff",
    "\x00\x1b[31m",
    "{{constructor.constructor('return 1')()}}",
)


def hostile() -> Batch:
    """All that a file says is hostile: tokens, ids, groups, columns, its name."""
    mask = torch.tensor([[1, 1, 1, 0, 1, 1, 1, 1]]).expand(8, 8)
    rollout = random_log_probs((8, 8), seed=0)
    batch = padded(
        mask,
        rollout + random_log_probs((8, 8), seed=1) / 10,
        rollout,
        tokenizer=lambda ids: "".join(HOSTILE[i % 8] for i in ids),
        sample_ids=[f"{text} {i}" for i, text in enumerate(HOSTILE)],
        group_ids=[HOSTILE[i % 2] for i in range(8)],
        rewards=torch.arange(8.0),
        sample_columns={HOSTILE[0]: np.array([HOSTILE[i % 3] for i in range(8)])},
    )
    name = "<script>document.title='taken'<|im_start|>\u202e.parquet"
    return replace(
        batch, meta={**batch.meta, "source": name, "mask_source": HOSTILE[1]}
    )


def with_broken_pictures() -> Batch:
    """Pictures that are none, that are cut short, or that nothing is known of."""
    shots = [
        EncodedScreenshot(data=data, round=0, position=0)
        for data in (b"", b"\x89PNG\r\n\x1a\n cut", b"<svg onload='alert(1)'/>")
    ]
    return replace(with_rounds(3, 2, 4), images=tuple((shot,) for shot in shots))


def without_tokens() -> Batch:
    return padded([[0, 0], [0, 0]], [[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2, tokenizer=words)


def redacted(batch: Batch) -> Batch:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "redacted.parquet"
        rd.save(batch, file, redact=True)
        return rd.load(file)


def odd_batches() -> dict[str, Batch]:
    rounds = with_rounds(4, 3, 5)
    return {
        "hostile": hostile(),
        "broken pictures": with_broken_pictures(),
        "no tokenizer": replace(rounds, tokenizer=None),
        "one sample": with_rounds(1, 3, 5),
        "one round": with_rounds(5, 1, 5),
        "one token": padded([[1]], [[-1.0]], [[-1.25]], tokenizer=words),
        "no samples": rounds[:0],
        "no tokens": without_tokens(),
        "all NaN": without_numbers(),
        "redacted": redacted(rounds),
        "5000 samples": with_rounds(5000, 6, 3),
    }
