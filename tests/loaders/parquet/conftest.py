"""A batch with every optional field, and what its file must give back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.vision import EncodedScreenshot
from tests.loaders.values import objects, png

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def full() -> Batch:
    """Three samples of 3, 0 and 2 real positions, padded to 4."""
    red, blue = (
        EncodedScreenshot(
            data=png(colour),
            round=round_,
            position=position,
            seen_size=(40, 30) if position else None,
        )
        for colour, round_, position in PICTURES
    )
    return Batch.from_padded(
        response_ids=torch.tensor([[5, 6, 7, 0], [0] * 4, [8, 151655, 0, 0]]),
        response_mask=torch.tensor([[1, 0, 1, 0], [0] * 4, [1, 1, 0, 0]]),
        rollout_log_probs=torch.tensor(
            [[-0.5, 0.0, NAN, 0.0], [0.0] * 4, [-INF, -2.0, 0.0, 0.0]]
        ),
        old_log_probs=torch.tensor(
            [[-0.1, -1.0, INF, 0.0], [0.0] * 4, [NAN, -2.5, 0.0, 0.0]],
            dtype=torch.float64,
        ),
        lengths=torch.tensor([3, 0, 2]),
        prompt_ids=torch.tensor([[0, 1, 2], [0, 0, 0], [3, 4, 5]]),
        prompt_mask=torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 1]]),
        entropy=torch.tensor([[0.5, 0.25, NAN, 9.0], [9.0] * 4, [1.0, 2.0, 9.0, 9.0]]),
        advantages=torch.full((3, 4), -1.5, dtype=torch.bfloat16),
        loss_mask=torch.tensor([[1, 0, 0, 0], [0] * 4, [0, 1, 0, 0]]),
        round_ids=torch.tensor([[0, 0, 1, 1], [0] * 4, [0, 1, 1, 1]]),
        rewards=torch.tensor([1.0, 0.0, NAN]),
        group_ids=("a", "a", "ü"),
        sample_ids=("a-0", "a-1", ""),
        step=40,
        images=((red, blue), (), (red,)),
        position_ids=(
            torch.arange(20).reshape(4, 5),
            torch.empty(4, 0, dtype=torch.int64),
            torch.arange(5),
        ),
        rollout_ids=(
            torch.tensor([5, 60, 7, 70]),
            torch.tensor([], dtype=torch.int64),
            torch.tensor([8]),
        ),
        scores={
            "ref": torch.full((3, 4), -0.75, dtype=torch.bfloat16),
            "a b.c": torch.zeros(3, 4),
        },
        sample_columns={
            "rank": np.array([0, 1, 1], dtype=np.int16),
            "half": np.array([0.5, NAN, INF], dtype=np.float16),
            "grid": np.arange(6).reshape(3, 2),
            "started": np.array(["2026-01-02", "NaT", "2026-01-03"], "datetime64[ms]"),
            "ended": np.array(["2026-01-02", "NaT", "1969-01-01"], "datetime64[s]"),
            "year": np.array(["2026", "NaT", "1"], "datetime64[Y]"),
            "delay": np.array([5, 0, "NaT"], "timedelta64[h]"),
            "swapped": np.array([1, 2, 3], dtype=">i4"),
            "status": np.array(["done", "", "cut off"]),
            "broken": np.array(["\ud800", "", "b"]),
            "pair": np.array([["a", "b"], ["c", ""], ["", ""]]),
            "raw": np.array([b"\xff", b"", b"ab"]),
            "blob": objects(b"\xff", None, b""),
            "ratio": objects(1.0, None, NAN),
            "note": objects("x", None, "\ud800"),
            "turns": objects(1, None, 3),
            "big": objects(1, 2, 1 << 70),
            "won": objects(True, None, False),  # noqa: FBT003 values of a column
            "mixed": objects({"a": [1, None]}, 2.5, "text"),
            "nothing": objects(None, None, None),
        },
        round_columns={
            "sample": np.array([2, 0, 0], dtype=np.int16),
            "round": np.array([0, 0, 1]),
            "version": np.array([7, 5, 6], dtype=np.int32),
            "request": np.array(["c", "a", "b"]),
            "hashes": objects(["h"], None, []),
        },
        meta={"mask_source": "response_mask", "sampling": {"top_p": 0.9, "seed": None}},
    )


PICTURES = (("red", 0, -3), ("blue", None, None))
