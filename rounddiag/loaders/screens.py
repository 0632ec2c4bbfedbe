"""Screenshots of a batch, from the pixel values that a processor made of them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.loaders.tensor_nodes import stored
from rounddiag.loaders.tensors import StoredTensor
from rounddiag.vision import PatchScreenshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source

_MERGED = 4  # patches that share one image token, in Qwen2-VL and its successors
_VALUES = 6  # per pixel of a patch: three colours, two frames

Images = tuple[PatchScreenshot, ...]
Grid = tuple[int, int, int]


def screenshots(
    batch: Batch, inputs: Sequence[object], source: Source
) -> tuple[Images, ...] | None:
    """Return what each sample was shown; the pixels stay in the file.

    Parameters
    ----------
    batch : Batch
    inputs : sequence of mapping, one a sample
        verl's `multi_modal_inputs`: `pixel_values` and `image_grid_thw`.
    source : Source

    Returns
    -------
    tuple of tuple of PatchScreenshot, or None
        None where the processor is not one of Qwen2-VL's kind.
    """
    found = [_images(batch, i, row, source) for i, row in enumerate(inputs)]
    images = tuple(row for row in found if row is not None)
    return images if len(images) == batch.num_samples else None


def _images(batch: Batch, sample: int, row: object, source: Source) -> Images | None:
    match row:
        case {"pixel_values": values, "image_grid_thw": grid}:
            pixels, grids = stored(values, source), stored(grid, source)
            if isinstance(pixels, StoredTensor) and isinstance(grids, StoredTensor):
                return _pictures(batch, sample, pixels, grids)
    return () if isinstance(row, dict) and "pixel_values" not in row else None


def _grids(stored_grids: StoredTensor) -> list[Grid]:
    """Return frames, height and width of each picture, in patches."""
    if len(stored_grids.shape) != 2 or stored_grids.shape[1] != 3:  # noqa: PLR2004 see above
        return []
    return [(int(t), int(h), int(w)) for t, h, w in stored_grids.read().tolist()]


def _pictures(
    batch: Batch, sample: int, pixels: StoredTensor, stored_grids: StoredTensor
) -> Images | None:
    grids = _grids(stored_grids)
    counts = [t * h * w for t, h, w in grids]
    count, width = pixels.shape if len(pixels.shape) == 2 else (-1, 0)  # noqa: PLR2004 rows of patches
    side = isqrt(width // _VALUES)
    fits = sum(counts) == count and side * side * _VALUES == width
    if not fits or min(counts, default=0) < 1:
        return None
    starts = np.cumsum([0, *counts]).tolist()
    rounds = image_rounds(batch, sample, [n // _MERGED for n in counts])
    return tuple(
        PatchScreenshot(
            patches=partial(_read, pixels, start, stop),
            grid_thw=grid,
            patch_size=side,
            round=round_,
        )
        for (start, stop), grid, round_ in zip(
            pairwise(starts), grids, rounds, strict=True
        )
    )


def _read(pixels: StoredTensor, start: int, stop: int) -> torch.Tensor:
    return pixels.rows(start, stop).read()


def image_rounds(
    batch: Batch, sample: int, num_tokens: Sequence[int]
) -> list[int | None]:
    """Return the first round after each picture of a sample.

    The file does not say which token stands for a picture. It is the one whose runs are
    as long as the pictures are large, in their order; None where no token or more than
    one is like that, and where no round follows.

    Parameters
    ----------
    batch : Batch
    sample : int
    num_tokens : sequence of int
        How many image tokens each picture of the sample has.
    """
    before, ids = _sequence(batch, sample)
    ends = _ends_of_pictures(ids, list(num_tokens))
    mine = batch.rounds.sample == sample
    first = int(batch.offsets[sample]) - before
    starts = (batch.rounds.start[mine] - first).numpy()
    found = np.searchsorted(starts, ends).tolist()
    known: list[int | None] = [n if n < len(starts) else None for n in found]
    return known + [None] * (len(num_tokens) - len(known))


def _sequence(batch: Batch, sample: int) -> tuple[int, np.ndarray[Any, Any]]:
    """Return the length of the prompt, and the token ids of prompt and response."""
    start = int(batch.offsets[sample])
    response = batch.response_ids[start : start + int(batch.lengths[sample])]
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return 0, response.numpy()
    first, last = batch.prompt_offsets[sample : sample + 2].tolist()
    return last - first, torch.cat([batch.prompt_ids[first:last], response]).numpy()


def _ends_of_pictures(ids: np.ndarray[Any, Any], sizes: list[int]) -> list[int]:
    """Return where the runs of the image token end; fewer where the end is cut off."""
    edges = np.flatnonzero(np.diff(ids)) + 1
    starts, ends = np.r_[0, edges], np.r_[edges, len(ids)]
    tokens, lengths = ids[starts[: len(ids)]], ends - starts
    found = []
    for token in np.unique(tokens[lengths[: len(tokens)] == sizes[0]]):
        runs = np.flatnonzero(tokens == token)
        if _fits(lengths[runs].tolist(), sizes):
            found.append(ends[runs].tolist())
    return found[0] if len(found) == 1 else []


def _fits(runs: list[int], sizes: list[int]) -> bool:
    """Whether runs are the pictures' sizes, the last perhaps cut off at the end."""
    whole = len(runs) - 1
    cut = len(runs) <= len(sizes) and 0 < runs[-1] <= sizes[whole]
    return cut and runs[:-1] == sizes[:whole]
