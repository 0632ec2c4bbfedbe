"""Image tokens against screenshots, and M-RoPE position ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    fault_at,
    generated_where,
)
from rounddiag.checks.tokens import prompt_lengths, sequence, special_ids
from rounddiag.core.columns import to_numpy
from rounddiag.core.groups import rows_per_sample
from rounddiag.core.images_seen import images_before
from rounddiag.errors import LoadError
from rounddiag.vision import PatchScreenshot, Screenshot
from rounddiag.vision.image_tokens import (
    IMAGE_PAD,
    VISION_TOKENS,
    TokenRuns,
    find_image_token,
)
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    Block = tuple[int, int]


def image_token(batch: Batch) -> int:
    """Return the id of the image token; see `find_image_token`."""
    special: dict[str, int] = {}
    reason = UntestableError(field="images")
    try:
        special = special_ids(batch.tokenizer, [IMAGE_PAD])
    except UntestableError as why:
        reason = why
    sequences = (sequence(batch, sample) for sample in range(batch.num_samples))
    sizes, positions = _pictures_in_ids(batch)
    token = find_image_token(
        sequences, sizes=sizes, positions=positions, special_tokens=special
    )
    if token is None:
        raise reason
    return token


def _pictures_in_ids(batch: Batch) -> tuple[list[list[int]], list[list[int]]]:
    if batch.images is None or batch.prompt_ids is None:
        return [], []
    sizes = [
        [shot.num_image_tokens for shot in shots if isinstance(shot, PatchScreenshot)]
        for shots in batch.images
    ]
    positions = [
        [shot.position + before for shot in shots if shot.position is not None]
        for shots, before in zip(batch.images, prompt_lengths(batch), strict=True)
    ]
    return sizes, positions


def image_blocks(batch: Batch) -> list[list[Block]]:
    """Return each sample's image blocks: start in prompt and response, and length.

    Several runs of one picture are one block.
    """
    token, blocks = image_token(batch), []
    for sample in range(len(batch)):
        ids = sequence(batch, sample)
        number = 0 if batch.images is None else len(batch.images[sample])
        runs = TokenRuns.of_ids(ids, token).of_pictures(ids, number)
        blocks.append([*zip(runs.start.tolist(), runs.length.tolist(), strict=True)])
    return blocks


def screenshots(batch: Batch) -> tuple[tuple[Screenshot, ...], ...]:
    """Return the screenshots of each sample."""
    if batch.images is None or not any(batch.images):
        raise UntestableError(field="images")
    return batch.images


def _pictures_and_blocks(
    batch: Batch,
) -> Sequence[tuple[int, Sequence[Screenshot], Sequence[Block]]]:
    """Return each sample with its screenshots and its image blocks.

    A file may keep the screenshots of some rows only. Samples without any are left
    out, and joined ones with fewer than they have blocks.
    """
    shown, blocks = screenshots(batch), image_blocks(batch)
    is_joined = rows_per_sample(batch) > 1
    pairs = [
        (sample, shots, own)
        for sample, (shots, own) in enumerate(zip(shown, blocks, strict=True))
        if shots and not (is_joined[sample] and len(shots) < len(own))
    ]
    if not pairs:
        why = "no sample has the screenshots of all its rows"
        raise UntestableError(field="images", why=why)
    return pairs


def _wrong_sizes(batch: Batch) -> Fault | None:
    pairs = _pictures_and_blocks(batch)
    if not any(
        isinstance(shot, PatchScreenshot) for _, shots, _ in pairs for shot in shots
    ):
        raise UntestableError(
            field="images", why="needs `images` with their `image_grid_thw`"
        )
    wrong = [
        (sample, number, length, shot)
        for sample, shots, blocks in pairs
        for number, (shot, (_, length)) in enumerate(zip(shots, blocks, strict=False))
        if isinstance(shot, PatchScreenshot) and shot.num_image_tokens != length
    ]
    if not wrong:
        return None
    sample, number, length, shot = wrong[0]
    return Fault(
        f"{pluralize(len(wrong), 'screenshot')} with more or fewer image tokens than"
        f" asked for: sample {sample}"
        f" screenshot {number} has {pluralize(length, 'image token')}, its grid"
        f" {shot.grid_thw} asks for {shot.num_image_tokens:,}",
        tuple(sorted({sample for sample, *_ in wrong})),
    )


def _wrong_numbers(batch: Batch) -> Fault | None:
    wrong = {
        sample: (len(shots), len(blocks))
        for sample, shots, blocks in _pictures_and_blocks(batch)
        if len(shots) != len(blocks)
    }
    if not wrong:
        return None
    sample, (num_shots, num_blocks) = next(iter(wrong.items()))
    return Fault(
        f"{pluralize(len(wrong), 'sample')} with more or fewer image blocks than"
        f" screenshots: sample {sample} has {pluralize(num_blocks, 'image block')} and"
        f" {pluralize(num_shots, 'screenshot')}",
        tuple(wrong),
    )


def _written_vision_tokens(batch: Batch) -> Fault | None:
    stored = batch.require_ids()
    try:
        ids = list(special_ids(batch.tokenizer, VISION_TOKENS).values())
    except UntestableError:
        ids = [image_token(batch)]
    wanted = torch.tensor(ids, device=stored.device)
    indices = generated_where(batch, lambda part: torch.isin(part, wanted), stored)
    return fault_at(batch, indices, "of the vision template")


def _lacks_exact(batch: Batch) -> Fault | None:
    shown = [shots for shots in screenshots(batch) if shots]
    if not any(_is_exact(shots[0]) for shots in shown):
        raise UntestableError(
            field="images",
            why="`rounddiag.prove` needs screenshots as the model saw them:"
            " `Recorder(prove_samples=4)` keeps them",
        )
    return None


def _is_exact(shot: Screenshot) -> bool:
    if isinstance(shot, PatchScreenshot):
        return True
    try:
        size, is_lossy = shot.size, shot.is_lossy
    except LoadError:
        return False
    return shot.seen_size in {None, size} and not is_lossy


SIZES = Contract(
    "image tokens are as many as the grids ask for",
    "images",
    _wrong_sizes,
    effect="the engines may read other image tokens and positions",
    kind="bug",
    cause="image_expansion",
    advice="Expand image placeholders once, in one place, and send the engine"
    " unexpanded ids.",
)
# A recording may end with a screenshot that no model saw.
NUMBERS = Contract(
    "every screenshot has one image block",
    "images",
    _wrong_numbers,
    effect="the screenshots may not be those that the model saw",
    advice="Compare the images that each engine was given, round by round.",
)
NOT_WRITTEN = Contract(
    "the model wrote no vision token",
    "response_ids",
    _written_vision_tokens,
    effect="the model is trained to write image tokens",
)


EXACT = Contract(
    "some screenshots are as the model saw them",
    "images",
    _lacks_exact,
    effect="a proof cannot score pictures",
)


_Picture: TypeAlias = "tuple[int, tuple[int, int, int]]"

_MERGE = 2  # patches a side that share one image token


def rope_positions(length: int, pictures: Sequence[_Picture]) -> Tensor:
    """Return the M-RoPE position ids of a text with pictures, as in Qwen2.5-VL.

    Text is numbered equally in all three rows. An image block has the frame, row and
    column in the grid of merged patches, offset by the largest position before it; text
    continues after the largest position of the block.

    References
    ----------
    `Qwen2_5_VLModel.get_rope_index` of transformers 5.23.0, without videos.
    """
    # numpy: a torch operation costs more than so few numbers.
    parts, at, following = [np.empty((3, 0), dtype=np.int64)], 0, 0
    for start, (t, height, width) in pictures:
        parts.append(_text_positions(start - at, following))
        following += start - at
        sides = (t, height // _MERGE, width // _MERGE)
        grid = np.indices(sides).reshape(3, -1)
        parts.append(grid + following)
        at = start + grid.shape[1]
        following += max(sides)
    parts.append(_text_positions(length - at, following))
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _text_positions(length: int, first: int) -> Array:
    return np.broadcast_to(np.arange(first, first + length), (3, length))


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


def _wrong_positions(batch: Batch) -> Fault | None:
    differences = dict(_differences(batch))
    if not differences:
        raise UntestableError(
            field="images", why="the image tokens are not those of the grids"
        )
    wrong = {sample: why for sample, why in differences.items() if why}
    if not wrong:
        return None
    if batch.images is None:
        raise UntestableError(field="images")
    sample, why = next(iter(wrong.items()))
    return Fault(
        f"{pluralize(len(wrong), 'sample')} with other positions: sample {sample}"
        f" {why}",
        tuple(wrong),
    )


def _differences(batch: Batch) -> Iterator[tuple[int, str]]:
    _position_ids(batch)
    prompt_lengths(batch)
    for sample, pictures in enumerate(_pictures(batch)):
        if pictures is not None:
            yield sample, _difference_in(batch, sample, pictures)


def _difference_in(batch: Batch, sample: int, pictures: Sequence[_Picture]) -> str:
    sequence = SampleSequence(batch, sample)
    parts = sequence.position_ids()
    if parts is None:
        (ids,) = _position_ids(batch)[sample : sample + 1]
        length = sum(chain.size for chain in sequence.chains)
        return f"has position ids of shape {tuple(ids.shape)} for {length:,} tokens"
    for chain, ids in zip(sequence.chains, parts, strict=True):
        place = dict(zip(chain.index.tolist(), range(len(chain.index)), strict=True))
        own = sorted((place[at], grid) for at, grid in pictures if at in place)
        if why := _difference(ids.cpu(), own, chain.index - sequence.num_prompt):
            return why
    return ""


def _pictures(batch: Batch) -> list[list[_Picture] | None]:
    """Return the pictures of each sample; None if tokens and grids do not fit."""
    if batch.images is None or not any(batch.images):
        return [[]] * batch.num_samples
    return [
        _pictures_with_grids(shots, blocks)
        for shots, blocks in zip(batch.images, image_blocks(batch), strict=True)
    ]


def _pictures_with_grids(
    shots: Sequence[Screenshot], blocks: Sequence[Block]
) -> list[_Picture] | None:
    patches = [shot for shot in shots if isinstance(shot, PatchScreenshot)]
    sizes = [shot.num_image_tokens for shot in patches]
    if len(patches) < len(shots) or sizes != [length for _, length in blocks]:
        return None
    pairs = zip(blocks, patches, strict=True)
    return [(start, shot.grid_thw) for (start, _), shot in pairs]


def _difference(ids: Tensor, pictures: list[_Picture], positions: Array) -> str:
    """Describe the first position id that differs; empty if none does.

    `positions` are those of the tokens in the response.
    """
    length = len(positions)
    expected, text = rope_positions(length, pictures), torch.arange(length)[None]
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
        f"has {rows[row, column].item():g} in row {row} at position"
        f" {positions[column]}, not {int(wanted[row, column])}"
        + (", as bfloat16 rounds it" if rounded else "")
    )


INTEGERS = Contract(
    "position ids are integers",
    "position_ids",
    _not_integers,
    effect="the trainer reads tokens at wrong positions",
    kind="bug",
    cause="position_ids",
    advice="Keep position ids in int64 from the processor to the model.",
)
MROPE = Contract(
    "position ids are those of M-RoPE",
    "position_ids",
    _wrong_positions,
    effect="the trainer reads tokens at wrong positions",
    kind="bug",
    cause="position_ids",
    advice="Compute them with the model's own get_rope_index on the unpacked sequence.",
)


# Tokens that must have one, so that a single odd id is none.
_MIN_ODD = 3
_AXES = 3  # of M-RoPE: time, height, width; the text position may stand before them
_ODD = {
    "repeated": "have the position id of the token before, as a cast to bfloat16 above"
    " 256 gives",
    "text": "have another position id on each axis of M-RoPE, though they are text",
    "plain": "follow images whose position ids only count tokens",
}


def _impossible(batch: Batch) -> Fault | None:
    """Find generated tokens with ids that no processor gives, without grids."""
    position_ids = _position_ids(batch)
    mask = to_numpy(batch.response_mask) != 0
    offsets, lengths = to_numpy(batch.offsets), to_numpy(batch.lengths)
    owner = to_numpy(batch.rounds.sample)
    has_image = np.zeros(batch.num_samples, dtype=bool)
    images = images_before(batch, np.arange(len(owner)), to_numpy(batch.rounds.start))
    if images is not None:
        has_image[owner[images > 0]] = True
    odd = {kind: np.zeros(len(mask), dtype=bool) for kind in _ODD}
    for sample in range(len(position_ids)):
        values = _of_sequence(batch, sample)
        before = 0 if values is None else values.shape[-1] - int(lengths[sample])
        part = slice(int(offsets[sample]), int(offsets[sample] + lengths[sample]))
        if values is None or before < 0:
            continue
        repeated = (np.diff(values, axis=1, prepend=-1) == 0).all(axis=0)
        odd["repeated"][part] = repeated[before:] & mask[part]
        axes = values[-_AXES:]
        if len(axes) == _AXES:
            differs = (axes != axes[0]).any(axis=0)
            odd["text"][part] = differs[before:] & mask[part]
            odd["plain"][part] = mask[part] & (not differs.any() and has_image[sample])
    enough = {kind: at for kind, at in odd.items() if at.sum() >= _MIN_ODD}
    if not enough:
        return None
    kind, at = next(iter(enough.items()))
    # What follows in a sample is at the wrong place as well.
    row = np.repeat(np.arange(batch.num_samples), np.diff(offsets))
    first = np.full(batch.num_samples, len(mask))
    np.minimum.at(first, row[at], np.flatnonzero(at))
    later = mask & (np.arange(len(mask)) >= first[row])
    fault = fault_at(batch, torch.from_numpy(np.flatnonzero(at)), _ODD[kind])
    return fault and replace(fault, tokens=torch.from_numpy(np.flatnonzero(later)))


def _of_sequence(batch: Batch, sample: int) -> Array | None:
    """Return the position ids of the prompt and response of a sample.

    They are those in the chain for which a token was stored. None if they do not fit.
    """
    if batch.contexts is None:
        return np.atleast_2d(to_numpy(_position_ids(batch)[sample]))
    sequence = SampleSequence(batch, sample)
    parts = sequence.position_ids()
    if parts is None:
        return None
    stored = []
    for chain, ids in zip(sequence.chains, parts, strict=True):
        is_own = chain.index >= chain.entered_at
        order = np.argsort(chain.index[is_own], kind="stable")
        stored.append(np.atleast_2d(to_numpy(ids))[:, is_own][:, order])
    return np.concatenate(stored, axis=1)


POSSIBLE = Contract(
    "position ids are possible",
    "position_ids",
    _impossible,
    effect="the trainer reads tokens at wrong positions",
    kind="bug",
    cause="position_ids",
    advice="Compute position ids with the model's own get_rope_index, in int64, on the"
    " ids and grids of the whole sequence, in both engines.",
)
