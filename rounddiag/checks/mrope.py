"""Position ids: whether they are integers, and those of M-RoPE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, UntestableError
from rounddiag.checks.pictures import image_blocks
from rounddiag.checks.rope import rope_positions
from rounddiag.checks.sequences import prompt_lengths
from rounddiag.checks.words import count
from rounddiag.vision import PatchScreenshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.checks.pictures import Block
    from rounddiag.checks.rope import Picture
    from rounddiag.vision import Screenshot


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
