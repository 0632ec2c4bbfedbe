"""The position ids that M-RoPE gives a text with pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    Array = np.ndarray[Any, Any]

Picture: TypeAlias = "tuple[int, tuple[int, int, int]]"

_MERGE = 2  # patches a side that share one image token


def rope_positions(length: int, pictures: Sequence[Picture]) -> Tensor:
    """Return the position ids of a text with pictures, by the rule of Qwen2.5-VL.

    Text counts on alike in all three rows. An image block has its frame, row and column
    in the grid of merged patches, after the largest position before it; text goes on
    after the largest of the block.

    Parameters
    ----------
    length : int
        How many tokens the text has, image tokens included.
    pictures : sequence of (int, (int, int, int))
        Where each block starts, in order, and the picture's `image_grid_thw`.

    Returns
    -------
    Tensor of int64, shape (3, length)

    References
    ----------
    `Qwen2_5_VLModel.get_rope_index` of transformers 5.23.0, without videos.

    Examples
    --------
    >>> rope_positions(7, [(1, (1, 2, 6))]).tolist()
    [[0, 1, 1, 1, 4, 5, 6], [0, 1, 1, 1, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]]
    """
    # numpy: a torch operation costs more than so few numbers.
    parts, at, following = [np.empty((3, 0), dtype=np.int64)], 0, 0
    for start, (t, height, width) in pictures:
        parts.append(_text(start - at, following))
        following += start - at
        sides = (t, height // _MERGE, width // _MERGE)
        grid = np.indices(sides).reshape(3, -1)
        parts.append(grid + following)
        at = start + grid.shape[1]
        following += max(sides)
    parts.append(_text(length - at, following))
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _text(length: int, first: int) -> Array:
    return np.broadcast_to(np.arange(first, first + length), (3, length))
