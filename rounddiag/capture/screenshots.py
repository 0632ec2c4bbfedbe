"""Small screenshots of a few samples, from what the model's processor made of them."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rounddiag.loaders.image_tokens import image_places
from rounddiag.vision import EncodedScreenshot, patch_screenshots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch
    from rounddiag.loaders.image_tokens import Place
    from rounddiag.vision import PatchScreenshot

MAX_SIDE = 768  # pixels: layout and headlines can be read, 8 pictures are half a MB
_QUALITY = 85  # of the JPEG


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
    pixels, grid = (_get(row, name) for name in ("pixel_values", "image_grid_thw"))
    if pixels is None or grid is None:
        return ()
    grids = [(t, h, w) for t, h, w in grid.reshape(-1, 3).tolist()]
    shots = patch_screenshots(partial(_rows, pixels), pixels.shape, grids) or ()
    places = image_places(batch, sample, [shot.num_image_tokens for shot in shots])
    return tuple(map(_small, shots, places))


def _rows(pixels: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    return pixels[start:stop].detach().cpu()


def _get(row: Any, name: str) -> torch.Tensor | None:  # noqa: ANN401 as above
    value = row[name] if hasattr(row, "keys") and name in row.keys() else None  # noqa: SIM118 BatchFeature
    return value if isinstance(value, torch.Tensor) else None


def _small(screenshot: PatchScreenshot, place: Place) -> EncodedScreenshot:
    picture = screenshot.image()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=_QUALITY)
    return EncodedScreenshot(data=buffer.getvalue(), **place._asdict())
