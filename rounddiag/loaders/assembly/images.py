"""Screenshots of a batch, from the pixel values that a processor made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from rounddiag.checks.tokens import known_sequence
from rounddiag.loaders.lazy.tensors import StoredTensor, stored
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.vision import patch_screenshots
from rounddiag.wording import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source
    from rounddiag.vision import PatchScreenshot

    Images = tuple[PatchScreenshot, ...]


class TokenRuns(NamedTuple):
    """Maximal runs of one token id, in their order; an array each.

    Attributes
    ----------
    token : array of int
        The id.
    start : array of int
        Index in the response; negative in the prompt, whose last token is -1.
    length : array of int
    is_last : array of bool
        Whether the run ends the response.
    """

    token: Array
    start: Array
    length: Array
    is_last: Array

    @classmethod
    def of_sample(cls, batch: Batch, sample: int) -> TokenRuns:
        """Find the runs of one sample."""
        num_before, ids = known_sequence(batch, sample)
        edges = np.flatnonzero(np.diff(ids)) + 1
        start = np.r_[0, edges][: len(ids)]  # none where there is no token at all
        length = np.diff(np.r_[start, len(ids)])
        is_last = start + length == len(ids)
        return cls(ids[start], start - num_before, length, is_last)

    def at(self, rows: Array | slice) -> TokenRuns:
        """Keep some of the runs."""
        return TokenRuns(*(column[rows] for column in self))

    def of(self, token: int) -> TokenRuns:
        """Keep the runs of one id."""
        return self.at(self.token == token)

    def tokens_that_fit(self, sizes: list[int]) -> list[int]:
        """Return the ids whose runs are of these sizes."""
        grouped = self.at(np.argsort(self.token, kind="stable"))
        tokens, first, num = np.unique(
            grouped.token, return_index=True, return_counts=True
        )
        likely = (num <= len(sizes)) & (grouped.length[first] == (sizes or [0])[0])
        groups = zip(tokens[likely], first[likely], num[likely], strict=True)
        return [
            int(token)
            for token, start, count in groups
            if grouped.at(slice(start, start + count)).fit(sizes)
        ]

    def fit(self, sizes: list[int]) -> bool:
        """Whether they are of these sizes; the response's end may cut some off."""
        lengths, expected = self.length.tolist(), sizes[: len(self.length)]
        if 0 < len(lengths) <= len(sizes) and self.is_last[-1]:
            lengths[-1] = max(lengths[-1], expected[-1])
        return bool(lengths) and lengths == expected


class Place(NamedTuple):
    """Where a picture stands; None where that is not known.

    Attributes
    ----------
    position : int or None
        Index in the response of its first image token; negative in the prompt, whose
        last token is -1.
    round : int or None
        The first round after it; None also where no round follows.
    """

    position: int | None = None
    round: int | None = None


def image_token(batch: Batch, num_tokens: Sequence[Sequence[int]]) -> int | None:
    """Return the token id that stands for pictures, which files do not say.

    It is the one whose runs are as long as the pictures are large, in their order, in
    the most samples; None where no token or more than one is like that.

    Parameters
    ----------
    batch : Batch
    num_tokens : sequence of sequence of int, one a sample
        How many image tokens each picture has.

    Examples
    --------
    >>> import torch
    >>> from rounddiag import Batch
    >>> zeros = torch.zeros(4)
    >>> batch = Batch.from_padded(
    ...     response_ids=torch.tensor([[1, 9, 9, 2]]),
    ...     response_mask=torch.tensor([[1, 0, 0, 1]]),
    ...     rollout_log_probs=zeros[None],
    ...     old_log_probs=zeros[None],
    ... )
    >>> image_token(batch, [[2]]), image_places(batch, 0, [2])
    (9, [Place(position=1, round=1)])
    """
    votes: Counter[int] = Counter()
    for sample, sizes in enumerate(num_tokens):
        if sizes:
            runs = TokenRuns.of_sample(batch, sample)
            votes.update(runs.tokens_that_fit(list(sizes)))
    ranked = votes.most_common(2)
    is_one = len(ranked) == 1 or (len(ranked) > 1 and ranked[0][1] > ranked[1][1])
    return ranked[0][0] if is_one else None


def image_places(
    batch: Batch, sample: int, num_tokens: Sequence[int], token: int | None = None
) -> list[Place]:
    """Return where each picture of a sample stands, and the first round after it.

    Parameters
    ----------
    batch : Batch
    sample : int
    num_tokens : sequence of int
        How many image tokens each picture of the sample has.
    token : int, optional
        The image token; found in this sample when left out.
    """
    runs, sizes = TokenRuns.of_sample(batch, sample), list(num_tokens)
    tokens = runs.tokens_that_fit(sizes) if token is None else [token]
    if len(tokens) == 1 and runs.of(tokens[0]).fit(sizes):
        known = _places(batch, sample, runs.of(tokens[0]), sizes)
        return known + [Place()] * (len(sizes) - len(known))
    return [Place()] * len(sizes)


def _places(
    batch: Batch, sample: int, runs: TokenRuns, sizes: list[int]
) -> list[Place]:
    mine = batch.rounds.sample == sample
    starts = (batch.rounds.start[mine] - batch.offsets[sample]).numpy()
    # A picture that is cut off ends where it would have ended: after every round.
    ends = runs.start + np.array(sizes[: len(runs.start)], dtype=np.int64)
    after = np.searchsorted(starts, ends).tolist()
    return [
        Place(at, round_ if round_ < len(starts) else None)
        for at, round_ in zip(runs.start.tolist(), after, strict=True)
    ]


_MAX_FACTS = 8  # what is odd in all samples is not told a thousand times
_MAX_SIZES = 4
# A screenshot has 10 kB and more, though rows of one group may share it.
_FREE, _BYTES = 1_000, 100
_LEAST = 4 * 6 * 8 * 8  # values of a screenshot: four patches, six of each pixel
_VIDEOS = "its videos are left out"
_UNKNOWN = "its `pixel_values` and `image_grid_thw` are not those of a Qwen2-VL kind"


def with_screenshots(batch: Batch, inputs: Sequence[object], source: Source) -> Batch:
    """Return a batch that knows what each sample was shown; pixels stay in the file.

    What is odd is told in `meta["screenshots"]`, one sentence a sample: pixels of
    another processor, and image tokens that are not as many as the pixels ask for.

    Parameters
    ----------
    batch : Batch
    inputs : sequence of mapping, one a sample
        verl's `multi_modal_inputs`: `pixel_values` and `image_grid_thw`.
    source : Source
    """
    if len(inputs) != batch.num_samples:
        odd = f"`multi_modal_inputs` has {len(inputs)} rows, not one a sample"
        return replace(batch, meta={**batch.meta, "screenshots": [odd]})
    rows = [_plain(row) for row in inputs]
    found = list(_within_budget((_pictures(row, source) for row in rows), source))
    pictures = [images or () for images in found]
    sizes = [[shot.num_image_tokens for shot in images] for images in pictures]
    token = image_token(batch, sizes)
    facts = [
        f"sample {sample}: {fact}"
        for sample, images in enumerate(found)
        if (fact := _fact(batch, sample, images, token))
    ]
    facts += [f"sample {i}: {_VIDEOS}" for i, row in enumerate(rows) if _has_video(row)]
    images = tuple(
        _placed(batch, sample, images, token) for sample, images in enumerate(pictures)
    )
    told = {"screenshots": _shortened(facts)} if facts else {}
    none = None in found and not any(images)
    return replace(batch, images=None if none else images, meta={**batch.meta, **told})


def _within_budget(
    found: Iterable[Images | None], source: Source
) -> Iterator[Images | None]:
    """Stop a small file that shows the same pixels again and again."""
    left = _FREE + source.size // _BYTES
    for images in found:
        left -= len(images or ())
        if left < 0:
            raise source.damaged(found="more screenshots than its bytes can hold")
        yield images


def _plain(row: object) -> Mapping[object, object]:
    """Return what a processor gave for a sample, empty where it gave nothing."""
    if isinstance(row, Node) and isinstance(row.state, dict):
        row = row.state.get("data")  # transformers' BatchFeature
    return row if isinstance(row, Mapping) else {}


def _has_video(row: Mapping[object, object]) -> bool:
    return row.get("pixel_values_videos") is not None


def _pictures(row: Mapping[object, object], source: Source) -> Images | None:
    """Return the pictures of a sample; None for those of an unknown processor."""
    match row:
        case {
            "pixel_values": torch.Tensor() as held,
            "image_grid_thw": torch.Tensor() as held_grids,
        } if held_grids.numel() % 3 == 0:
            sizes = [(t, h, w) for t, h, w in held_grids.reshape(-1, 3).tolist()]
            return patch_screenshots(partial(held_rows, held), held.shape, sizes)
        case {"pixel_values": values, "image_grid_thw": grid}:
            pixels, grids = stored(values, source), stored(grid, source)
            if isinstance(pixels, StoredTensor) and isinstance(grids, StoredTensor):
                known = _grids(grids, pixels.num_elements // _LEAST)
                rows = partial(_rows, pixels)
                return patch_screenshots(rows, pixels.shape, known) if known else None
    return () if row.get("pixel_values") is None else None


def _rows(pixels: StoredTensor, start: int, stop: int) -> torch.Tensor:
    return pixels.rows(start, stop).read()


def held_rows(pixels: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Return rows of pixels that are in memory, on any device."""
    return pixels[start:stop].detach().cpu()


def _grids(grids: StoredTensor, most: int) -> list[tuple[int, int, int]] | None:
    """Return frames, height and width of each picture, in patches."""
    match grids.shape:
        case (num, 3) if num <= most and not grids.dtype.is_floating_point:
            return [(t, h, w) for t, h, w in grids.read().tolist()]
    return None


def _placed(batch: Batch, sample: int, images: Images, token: int | None) -> Images:
    sizes = [shot.num_image_tokens for shot in images]
    places = image_places(batch, sample, sizes, token)
    return tuple(
        replace(shot, position=place.position, round=place.round)
        for shot, place in zip(images, places, strict=True)
    )


def _fact(
    batch: Batch, sample: int, images: Images | None, token: int | None
) -> str | None:
    """Say what is odd about a sample's pictures, if anything."""
    if images is None:
        return _UNKNOWN
    sizes = [shot.num_image_tokens for shot in images]
    expected = f"image tokens by its grids: {_listed(sizes)}"
    if sizes and token is None:
        return f"{expected}; no token, or more than one, has such runs"
    runs = TokenRuns.of_sample(batch, sample)
    found = [] if token is None else runs.of(token).length.tolist()
    is_odd = found != sizes
    return f"{expected}; runs of token {token}: {_listed(found)}" if is_odd else None


def _listed(sizes: list[int]) -> str:
    return join_names(sizes, len(sizes), most=_MAX_SIZES) or "none"


def _shortened(facts: list[str]) -> list[str]:
    more = len(facts) - _MAX_FACTS
    return [*facts[:_MAX_FACTS], *[f"and {more} more"] * (more > 0)]
