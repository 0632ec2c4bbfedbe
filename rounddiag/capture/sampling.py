"""Which samples of a batch are shown: some at random, and the worst."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.core import sums_cpu as on_cpu
from rounddiag.core.sums import Totals
from rounddiag.loaders.assembly.images import rows_in_memory, image_places
from rounddiag.loaders.fields.reader import FieldReader
from rounddiag.segmentation import find_rounds
from rounddiag.vision import EncodedScreenshot, patch_screenshots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.capture.trainer_batch import Parts
    from rounddiag.loaders.assembly.images import Place
    from rounddiag.vision import PatchScreenshot

    Pictures = tuple[PatchScreenshot, ...]


RANDOM, WORST = "random", "worst"


@dataclass(frozen=True, kw_only=True)
class Order:
    """The samples in two orders, of which any number of first ones can be picked.

    Attributes
    ----------
    random : ndarray of int
        Drawn; it does not depend on the numbers.
    worst : ndarray of int
        By mean |diff|, the largest first; samples without a finite diff are last.
    """

    random: Array
    worst: Array

    def pick(self, num: int) -> dict[int, str]:
        """Pick `num` samples, half at random and half the worst of the others.

        Returns
        -------
        dict of int to str
            Sample -> why it was picked: `WORST` or `RANDOM`.

        Examples
        --------
        >>> order = Order(random=np.array([2, 0, 1]), worst=np.array([2, 1, 0]))
        >>> order.pick(2)
        {1: 'worst', 2: 'random'}
        """
        drawn = self.random[: (num + 1) // 2].tolist()
        others = [sample for sample in self.worst.tolist() if sample not in {*drawn}]
        worst = others[: num // 2]
        return {**dict.fromkeys(worst, WORST), **dict.fromkeys(drawn, RANDOM)}


def order_of(parts: Parts, seed: tuple[int, ...]) -> Order:
    """Order the samples of a step.

    Parameters
    ----------
    parts : Parts
        With fields on the host.
    seed : tuple of int, none negative
    """
    means = mean_abs_diffs(parts)
    return Order(
        random=np.random.default_rng(seed).permutation(len(means)),
        worst=np.argsort(-means, kind="stable"),
    )


def mean_abs_diffs(parts: Parts) -> Array:
    """Return each sample's mean |diff| over its finite tokens, or -1 without any."""
    reader = FieldReader(parts.fields, parts.source)
    rounds = find_rounds(reader.mask()[0], reader.responses.offsets)
    old, rollout = (
        reader.log_probs(f"{name}_log_probs") for name in ("old", "rollout")
    )
    sample = rounds.sample.numpy()
    totals = Totals(**on_cpu.totals(rounds, old, rollout))
    by_sample = totals.grouped(sample, reader.num_samples)
    num_tokens = np.bincount(sample, rounds.num_tokens.numpy(), reader.num_samples)
    num_finite = num_tokens - by_sample.num_nonfinite
    means = np.full(reader.num_samples, -1.0)
    np.divide(by_sample.abs_diff, num_finite, out=means, where=num_finite > 0)
    return means


_COLOURS, _FRAMES = 3, 2  # in a patch; a picture's two frames are equal


def pictures_of(row: Any) -> Pictures:  # noqa: ANN401 a dictionary, or a class of transformers
    """Return the pictures of a sample, which still read from the trainer's pixels.

    Parameters
    ----------
    row : mapping
        verl's `multi_modal_inputs` of the sample.

    Returns
    -------
    tuple of PatchScreenshot
        None of them where `pixel_values` are not as Qwen2-VL and its successors have
        them.
    """
    pixels, grid = (_tensor(row, name) for name in ("pixel_values", "image_grid_thw"))
    if pixels is None or grid is None:
        return ()
    grids = [(t, h, w) for t, h, w in grid.reshape(-1, 3).tolist()]
    return patch_screenshots(partial(rows_in_memory, pixels), pixels.shape, grids) or ()


def held_pictures(row: Any, room: int) -> Pictures | None:  # noqa: ANN401 as above
    """Return copies of the pictures of a sample: one frame of each, in bfloat16.

    Parameters
    ----------
    row : mapping
        verl's `multi_modal_inputs` of the sample.
    room : int
        How many bytes the copies may have.

    Returns
    -------
    tuple of PatchScreenshot, or None
        None where there is not enough room.
    """
    pictures = pictures_of(row)
    if sum(map(num_held_bytes, pictures)) > room:
        return None
    return tuple(
        replace(shot, patches=partial(_both_frames, _one_frame(shot.patches())))
        for shot in pictures
    )


def num_held_bytes(picture: PatchScreenshot) -> int:
    """Return how many bytes `held_pictures` needs for a picture."""
    width, height = picture.size
    frames = picture.grid_thw[0]
    return frames * width * height * _COLOURS * torch.bfloat16.itemsize


def small_screenshots(
    batch: Batch, pictures: Mapping[int, Sequence[PatchScreenshot]]
) -> tuple[tuple[EncodedScreenshot, ...], ...] | None:
    """Return what some samples were shown, as small JPEGs.

    Parameters
    ----------
    batch : Batch
    pictures : mapping of int to sequence of PatchScreenshot
        The pictures of the samples that are wanted, from the first on.

    Returns
    -------
    tuple of tuple of EncodedScreenshot, one per sample of the batch, or None
        None without pictures or without Pillow.
    """
    if not any(pictures.values()) or not _has_pillow():
        return None
    return tuple(
        _of_sample(batch, sample, pictures.get(sample, ()))
        for sample in range(batch.num_samples)
    )


def _has_pillow() -> bool:
    try:
        import PIL  # noqa: F401 only whether it is there
    except ImportError:
        return False
    return True


def _tensor(row: Any, name: str) -> Tensor | None:  # noqa: ANN401 as above
    value = row[name] if hasattr(row, "keys") and name in row.keys() else None  # noqa: SIM118 BatchFeature
    return value if isinstance(value, torch.Tensor) else None


def _one_frame(patches: Tensor) -> Tensor:
    frames = patches.reshape(len(patches), _COLOURS, _FRAMES, -1)
    return frames[:, :, 0].to(torch.bfloat16, copy=True)


def _both_frames(frame: Tensor) -> Tensor:
    return frame[:, :, None].expand(-1, -1, _FRAMES, -1).flatten(1)


def _of_sample(
    batch: Batch, sample: int, pictures: Sequence[PatchScreenshot]
) -> tuple[EncodedScreenshot, ...]:
    places = image_places(batch, sample, [shot.num_image_tokens for shot in pictures])
    return tuple(map(_small, pictures, places))


def _small(screenshot: PatchScreenshot, place: Place) -> EncodedScreenshot:
    return EncodedScreenshot(
        data=screenshot.small_jpeg(), seen_size=screenshot.size, **place._asdict()
    )
