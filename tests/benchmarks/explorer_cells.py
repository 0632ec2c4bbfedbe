"""What the kernel runs for the benchmark of the explorer."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from PIL import Image

import rounddiag as rd
from rounddiag.vision import EncodedScreenshot

_GAP = 20  # tokens of each observation
_SIZE = (1280, 720)


def batch_of(num_samples: int, num_rounds: int, num_tokens: int) -> rd.Batch:
    """Make samples of so many rounds and generated tokens, a screenshot a round."""
    random = np.random.default_rng(0)
    size = num_tokens // num_rounds
    one = ([0] * _GAP + [1] * size) * num_rounds
    mask = torch.tensor([one] * num_samples)
    rollout = -torch.from_numpy(random.exponential(0.5, mask.shape))
    noise = torch.from_numpy(random.standard_t(3, mask.shape))
    ids = torch.from_numpy(random.integers(0, 500, mask.shape))
    return rd.Batch.from_padded(
        response_ids=ids,
        response_mask=mask,
        rollout_log_probs=rollout.float(),
        old_log_probs=(rollout + 0.01 * noise).float(),
        tokenizer="sample_data/tokenizer.json",
        images=tuple(_shots(random, num_rounds, size) for _ in range(num_samples)),
    )


def _shots(
    random: np.random.Generator, num_rounds: int, size: int
) -> tuple[EncodedScreenshot, ...]:
    pixels = random.integers(0, 255, (9, 16, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    picture = Image.fromarray(pixels).resize(_SIZE)
    picture.save(buffer, format="JPEG")
    data = buffer.getvalue()
    return tuple(
        EncodedScreenshot(data=data, round=index, position=index * (size + _GAP))
        for index in range(num_rounds)
    )


def stock_widgets(batch: rd.Batch) -> tuple[Any, Any]:
    """Link a heatmap and the diffs of a sample with plotly's own FigureWidget."""
    frame = rd.round_frame(batch)
    table = frame.pivot_table(index="sample", columns="round", values="mean_abs_diff")
    cells = go.FigureWidget([go.Heatmap(z=table.to_numpy())])
    tokens = go.FigureWidget([go.Scatter(y=_diffs(batch, 0))])

    def on_click(_: object, points: Any, __: object) -> None:
        tokens.data[0].y = _diffs(batch, points.point_inds[0][0])

    cells.data[0].on_click(on_click)
    return cells, tokens


def _diffs(batch: rd.Batch, sample: int) -> np.ndarray[Any, Any]:
    diff: np.ndarray[Any, Any] = rd.token_frame(batch[sample])["diff"].to_numpy()
    return diff
