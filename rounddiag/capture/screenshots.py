"""Small screenshots of a few samples, from what the model's processor made of them."""

from __future__ import annotations

import io
from math import isqrt
from typing import TYPE_CHECKING, Any

import torch

from rounddiag.loaders.screens import image_rounds
from rounddiag.vision import EncodedScreenshot, PatchScreenshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch

MAX_SIDE = 768  # pixels: layout and headlines can be read, 8 pictures are half a MB
_QUALITY = 85  # of the JPEG
_MERGED = 4  # patches that share one image token
_VALUES = 6  # per pixel of a patch: three colours, two frames


def first_screenshots(
    batch: Batch, inputs: Sequence[Any]
) -> tuple[tuple[EncodedScreenshot, ...], ...] | None:
    """Return what the first samples were shown, as small JPEGs.

    Parameters
    ----------
    batch : Batch
    inputs : sequence of mapping
        verl's `multi_modal_inputs` of as many samples as are wanted.

    Returns
    -------
    tuple of tuple of EncodedScreenshot, one per sample of the batch, or None
        None without inputs or without Pillow. A sample whose `pixel_values` are not
        as Qwen2-VL and its successors have them gets no screenshot.
    """
    if len(inputs) == 0 or not _has_pillow():
        return None
    first = [_of_sample(batch, sample, row) for sample, row in enumerate(inputs)]
    return (*first, *[()] * (batch.num_samples - len(first)))


def _has_pillow() -> bool:
    try:
        import PIL  # noqa: F401 only whether it is there
    except ImportError:
        return False
    return True


def _of_sample(batch: Batch, sample: int, row: Any) -> tuple[EncodedScreenshot, ...]:  # noqa: ANN401 a dictionary, or a class of transformers
    pixels, grids = (_get(row, name) for name in ("pixel_values", "image_grid_thw"))
    if pixels is None or grids is None or pixels.dim() != 2:  # noqa: PLR2004 rows of patches
        return ()
    grids = grids.reshape(-1, 3)
    sizes = grids.prod(1).tolist()
    side = isqrt(pixels.shape[1] // _VALUES)
    if side * side * _VALUES != pixels.shape[1] or sum(sizes) != len(pixels):
        return ()
    rounds = image_rounds(batch, sample, [size // _MERGED for size in sizes])
    blocks = zip(pixels.split(sizes), grids.tolist(), rounds, strict=True)
    return tuple(
        _small(
            PatchScreenshot(
                patches=block.detach().cpu,
                grid_thw=tuple(grid),
                patch_size=side,
                round=round_,
            )
        )
        for block, grid, round_ in blocks
    )


def _get(row: Any, name: str) -> torch.Tensor | None:  # noqa: ANN401 as above
    value = row[name] if hasattr(row, "keys") and name in row.keys() else None  # noqa: SIM118 BatchFeature
    return value if isinstance(value, torch.Tensor) else None


def _small(screenshot: PatchScreenshot) -> EncodedScreenshot:
    picture = screenshot.image()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=_QUALITY)
    return EncodedScreenshot(data=buffer.getvalue(), round=screenshot.round)
