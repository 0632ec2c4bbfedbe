"""Image tokens: as many as the screenshots ask for, and none that the model wrote."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, UntestableError
from rounddiag.checks.places import fault_at, generated_where, need_ids
from rounddiag.checks.sequences import prompt_lengths, runs_of, sequence
from rounddiag.checks.tokenizer import special_ids
from rounddiag.checks.words import count
from rounddiag.vision import PatchScreenshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot

    Block = tuple[int, int]

IMAGE_PAD = "<|image_pad|>"
_VISION = (IMAGE_PAD, "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")


def image_token(batch: Batch) -> int:
    """Return the token id that stands for pictures.

    The tokenizer names it; without one, it is the token at the position that most
    screenshots have.

    Raises
    ------
    UntestableError
        If nothing tells.
    """
    try:
        return special_ids(batch.tokenizer, [IMAGE_PAD])[IMAGE_PAD]
    except UntestableError:
        votes = Counter(_tokens_at_screenshots(batch))
        if not votes:
            raise
        return votes.most_common(1)[0][0]


def _tokens_at_screenshots(batch: Batch) -> Iterator[int]:
    if batch.images is None or batch.prompt_ids is None:
        return
    for sample, (shots, before) in enumerate(
        zip(batch.images, prompt_lengths(batch), strict=True)
    ):
        ids = sequence(batch, sample)
        places = [shot.position + before for shot in shots if shot.position is not None]
        yield from (int(ids[at]) for at in places if 0 <= at < len(ids))


def image_blocks(batch: Batch) -> list[list[Block]]:
    """Return start, in prompt and response, and length of each sample's image blocks.

    Raises
    ------
    UntestableError
        If there are no prompts, or nothing tells which token stands for pictures.
    """
    token = image_token(batch)
    return [runs_of(sequence(batch, i), token) for i in range(batch.num_samples)]


def screenshots(batch: Batch) -> tuple[tuple[Screenshot, ...], ...]:
    """Return the screenshots of each sample.

    Raises
    ------
    UntestableError
        If the batch has none.
    """
    if batch.images is None or not any(batch.images):
        raise UntestableError(field="images")
    return batch.images


def _other_sizes(batch: Batch) -> Fault | None:
    pairs = list(zip(screenshots(batch), image_blocks(batch), strict=True))
    if not any(
        isinstance(shot, PatchScreenshot) for shots, _ in pairs for shot in shots
    ):
        raise UntestableError(
            field="images", why="needs `images` with their `image_grid_thw`"
        )
    found = [
        (sample, number, length, shot)
        for sample, (shots, blocks) in enumerate(pairs)
        for number, (shot, (_, length)) in enumerate(zip(shots, blocks, strict=False))
        if isinstance(shot, PatchScreenshot) and shot.num_image_tokens != length
    ]
    if not found:
        return None
    sample, number, length, shot = found[0]
    return Fault(
        f"{count(len(found), 'screenshot')} with more or fewer: sample {sample}"
        f" screenshot {number} has {count(length, 'image token')}, its grid"
        f" {shot.grid_thw} asks for {shot.num_image_tokens:,}",
        tuple(sorted({sample for sample, *_ in found})),
    )


def _other_numbers(batch: Batch) -> Fault | None:
    pairs = zip(screenshots(batch), image_blocks(batch), strict=True)
    sizes = [(len(shots), len(blocks)) for shots, blocks in pairs]
    found = [row for row, (shots, blocks) in enumerate(sizes) if shots != blocks]
    if not found:
        return None
    shots, blocks = sizes[found[0]]
    return Fault(
        f"{count(len(found), 'sample')} with more or fewer: sample {found[0]} has"
        f" {count(blocks, 'image block')} and {count(shots, 'screenshot')}",
        tuple(found),
    )


def _written(batch: Batch) -> Fault | None:
    need_ids(batch)
    try:
        ids = list(special_ids(batch.tokenizer, _VISION).values())
    except UntestableError:
        ids = [image_token(batch)]
    wanted = torch.tensor(ids, device=batch.response_ids.device)
    found = generated_where(
        batch, lambda part: torch.isin(part, wanted), batch.response_ids
    )
    return fault_at(batch, found, "of the vision template")


SIZES = Contract(
    "image tokens are as many as the grids ask for", "images", _other_sizes
)
NUMBERS = Contract("every screenshot has one image block", "images", _other_numbers)
NOT_WRITTEN = Contract("the model wrote no vision token", "response_ids", _written)
