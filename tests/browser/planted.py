"""A batch as large as a real step, with one fault: which one is known."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

import rounddiag as rd
from rounddiag.text import pieces, roles
from rounddiag.vision import EncodedScreenshot

NUM_SAMPLES, NUM_ROUNDS, NUM_RANKS = 128, 25, 16
RANK, FIRST_ROUND = 3, 5
_OBSERVED = 12  # tokens between two rounds
_SIZE = (1280, 720)
_THOUGHTS = (
    "The list is long, so I look for the entry with the right name before I act. ",
    "The button that I need is at the lower edge of the window. ",
    "A dialog covers the page; I close it first. ",
    "The field has the wrong value, so I select all of it and type again. ",
)


def planted(tokenizer: Path, num_tokens: int = 250) -> rd.Batch:
    """Rank 3 scores coordinates wrongly from round 5 on; all else is noise of bf16."""
    random = np.random.default_rng(0)
    texts = [_round_ids(tokenizer, random, num_tokens) for _ in range(40)]
    which = random.integers(0, len(texts), (NUM_SAMPLES, NUM_ROUNDS))
    ids = np.stack([ids for ids, _ in texts])[which]
    is_coordinate = np.stack([marks for _, marks in texts])[which]
    rank = np.arange(NUM_SAMPLES) % NUM_RANKS
    rollout = -random.exponential(0.4, ids.shape)
    diff = 0.01 * random.standard_normal(ids.shape) * np.sqrt(0.05 - rollout)
    is_faulty = is_coordinate & (rank == RANK)[:, None, None]
    is_faulty[:, :FIRST_ROUND] = False
    diff[is_faulty] -= random.uniform(0.8, 2.5, int(is_faulty.sum()))
    gap = [(0, 0), (0, 0), (_OBSERVED, 0)]
    flat = {
        name: torch.from_numpy(np.pad(values, gap).reshape(NUM_SAMPLES, -1))
        for name, values in (
            ("response_ids", ids),
            ("response_mask", np.ones_like(ids)),
            ("rollout_log_probs", rollout.astype(np.float32)),
            ("old_log_probs", (rollout + diff).astype(np.float32)),
        )
    }
    shots = [_screenshot(random) for _ in range(8)]
    return rd.Batch.from_padded(
        **flat,
        tokenizer=str(tokenizer),
        group_ids=[f"task-{sample // 8:02}" for sample in range(NUM_SAMPLES)],
        rewards=torch.from_numpy(random.integers(0, 2, NUM_SAMPLES)).float(),
        sample_columns={
            "rank": rank,
            "status": np.array(["finished", "truncated"])[random.integers(0, 2, 128)],
        },
        images=tuple(
            tuple(
                EncodedScreenshot(
                    data=shots[(sample + index) % len(shots)],
                    round=index,
                    position=index * (num_tokens + _OBSERVED),
                )
                for index in range(NUM_ROUNDS)
            )
            for sample in range(NUM_SAMPLES)
        ),
        step=40,
        meta={"source": "step_40.parquet"},
    )


def _round_ids(
    tokenizer: Path, random: np.random.Generator, num_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of one round, and which of them are coordinates."""
    from tokenizers import Tokenizer

    x, y = random.integers(40, 1240), random.integers(40, 680)
    thoughts = "".join(random.choice(_THOUGHTS, num_tokens))
    encode = Tokenizer.from_file(str(tokenizer)).encode
    end = encode(f"</think>click({x}, {y})<|im_end|>").ids
    begin = encode(f"<think>{thoughts}").ids[: num_tokens - len(end)]
    ids = np.array(begin + end)
    found = roles(pieces(ids, str(tokenizer), starts=[0]), starts=[0])
    return ids, np.array(found) == "coordinates"


def _screenshot(random: np.random.Generator) -> bytes:
    """Draw a window with a few boxes."""
    picture = Image.new("RGB", _SIZE, (238, 240, 243))
    draw = ImageDraw.Draw(picture)
    for left, top in random.integers(20, 600, (9, 2)).tolist():
        draw.rectangle([left, top, left + 260, top + 70], fill="white", outline="grey")
        draw.rectangle([left + 12, top + 12, left + 130, top + 30], fill=(90, 120, 190))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=70)
    return buffer.getvalue()
