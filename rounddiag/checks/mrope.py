"""Position ids: integers, and those that M-RoPE gives text and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, UntestableError
from rounddiag.checks.pictures import image_blocks
from rounddiag.checks.sequences import prompt_lengths
from rounddiag.checks.words import count
from rounddiag.vision import PatchScreenshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.checks.pictures import Block
    from rounddiag.vision import Screenshot

    Picture = tuple[int, tuple[int, int, int]]

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
    parts, at, following = [torch.empty(3, 0, dtype=torch.int64)], 0, 0
    for start, (t, height, width) in pictures:
        parts.append(_text(start - at, following))
        following += start - at
        sides = (t, height // _MERGE, width // _MERGE)
        grid = torch.cartesian_prod(*(torch.arange(side) for side in sides))
        parts.append(grid.reshape(-1, 3).T + following)
        at = start + len(grid)
        following += max(sides)
    parts.append(_text(length - at, following))
    return torch.cat(parts, 1)


def _text(length: int, first: int) -> Tensor:
    return (torch.arange(length) + first).expand(3, -1)


def _position_ids(batch: Batch) -> tuple[Tensor, ...]:
    if not batch.position_ids:
        raise UntestableError(field="position_ids")
    return batch.position_ids


def _not_integers(batch: Batch) -> Fault | None:
    kinds = {ids.dtype for ids in _position_ids(batch) if ids.dtype.is_floating_point}
    if not kinds:
        return None
    kind = max(kinds, key=lambda kind: torch.finfo(kind).eps)
    largest = int(2 / torch.finfo(kind).eps)
    return Fault(f"they are {kind}, which rounds positions above {largest:,}")


def _others(batch: Batch) -> Fault | None:
    found = dict(_differences(batch))
    if not found:
        raise UntestableError(
            field="images", why="the image tokens are not those of the grids"
        )
    wrong = {sample: why for sample, why in found.items() if why}
    if not wrong:
        return None
    if batch.images is None:
        raise UntestableError(field="images")
    sample, why = next(iter(wrong.items()))
    return Fault(
        f"{count(len(wrong), 'sample')} with other positions: sample {sample} {why}",
        tuple(wrong),
    )


def _differences(batch: Batch) -> Iterator[tuple[int, str]]:
    """Give what is different in each sample of which the positions can be told."""
    rows = zip(
        _position_ids(batch),
        prompt_lengths(batch),
        batch.lengths.tolist(),
        _pictures(batch),
        strict=True,
    )
    for sample, (ids, before, length, pictures) in enumerate(rows):
        if pictures is not None:
            expected = rope_positions(before + length, pictures)
            yield sample, _difference(ids.cpu(), expected, before)


def _pictures(batch: Batch) -> list[list[Picture] | None]:
    """Return the pictures of each sample; None where tokens and grids do not fit."""
    if batch.images is None or not any(batch.images):
        return [[]] * batch.num_samples
    return [
        _fitted(shots, blocks)
        for shots, blocks in zip(batch.images, image_blocks(batch), strict=True)
    ]


def _fitted(
    shots: Sequence[Screenshot], blocks: Sequence[Block]
) -> list[Picture] | None:
    patches = [shot for shot in shots if isinstance(shot, PatchScreenshot)]
    sizes = [shot.num_image_tokens for shot in patches]
    if len(patches) < len(shots) or sizes != [length for _, length in blocks]:
        return None
    pairs = zip(blocks, patches, strict=True)
    return [(start, shot.grid_thw) for (start, _), shot in pairs]


def _difference(ids: Tensor, expected: Tensor, before: int) -> str:
    """Say what is the first position that differs; nothing where all are the same."""
    length = expected.shape[1]
    text = torch.arange(length)[None]
    by_rows = {1: text, 3: expected, 4: torch.cat([text, expected])}
    rows = torch.atleast_2d(ids)
    wanted = by_rows.get(len(rows))
    if wanted is None or rows.shape != wanted.shape:
        return f"has position ids of shape {tuple(ids.shape)} for {length:,} tokens"
    differ = (rows.double() != wanted.double()).nonzero()
    if len(differ) == 0:
        return ""
    row, column = differ[0].tolist()
    rounded = torch.equal(rows.double(), wanted.bfloat16().double())
    return (
        f"has {rows[row, column].item():g} in row {row} at position {column - before},"
        f" not {int(wanted[row, column])}"
        + (", as bfloat16 rounds it" if rounded else "")
    )


INTEGERS = Contract("position ids are integers", "position_ids", _not_integers)
MROPE = Contract("position ids are those of M-RoPE", "position_ids", _others)
