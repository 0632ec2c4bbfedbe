"""Screenshots rebuilt from the patches that Qwen's processors make of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from math import isqrt
from typing import TYPE_CHECKING

from rounddiag.vision.screenshots import Screenshot, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from PIL.Image import Image
    from torch import Tensor

    Grid = tuple[int, int, int]


# Mean and standard deviation of the normalisation: `transformers` names them
# OPENAI_CLIP_MEAN and OPENAI_CLIP_STD (Qwen2-VL and Qwen2.5-VL, patches of 14 pixels)
# and IMAGENET_STANDARD_MEAN and IMAGENET_STANDARD_STD (Qwen3-VL, patches of 16). A
# batch does not say which one was used; the size of the patches does.
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_PATCH_OF_CLIP = 14
_CHANNELS, _FRAMES, _MERGE = 3, 2, 2


@dataclass(frozen=True, kw_only=True)
class PatchScreenshot(Screenshot):
    """A screenshot rebuilt from the `pixel_values` of Qwen2-VL and its successors.

    The patches of a picture are (frames, height, width) blocks of two by two merged
    cells. Reversing the order and the normalisation gives the picture as the model saw
    it, resized. Patches of 14 pixels use the normalisation of Qwen2-VL and Qwen2.5-VL,
    others that of Qwen3-VL.

    Attributes
    ----------
    patches : callable
        Gives the picture's rows of `pixel_values`, shape (t * h * w, channels * 2 * p *
        p). Called each time the picture is requested, so that pixels stay on disk.
    grid_thw : tuple of int
        The picture's row of `image_grid_thw`: frames, height and width in patches.
    patch_size : int
        Side of a patch in pixels: 14 for Qwen2.5-VL, 16 for Qwen3-VL.

    Examples
    --------
    >>> import torch
    >>> white = torch.ones(4, 3 * 2 * 16 * 16)
    >>> shot = PatchScreenshot(
    ...     patches=lambda: white, grid_thw=(1, 2, 2), patch_size=16
    ... )
    >>> shot.size, shot.num_image_tokens, shot.image().getpixel((0, 0))
    ((32, 32), 1, (255, 255, 255))
    """

    patches: Callable[[], Tensor] = field(repr=False)
    grid_thw: Grid
    patch_size: int = _PATCH_OF_CLIP

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        _, height, width = self.grid_thw
        return width * self.patch_size, height * self.patch_size

    @property
    def num_image_tokens(self) -> int:
        """Number of image tokens of the picture: one for four patches."""
        t, height, width = self.grid_thw
        return t * height * width // _MERGE**2

    def image(self, frame: int = 0) -> Image:
        """Rebuild the picture.

        Parameters
        ----------
        frame : int, optional
            Which frame of a video: a grid of `t` has 2 * t of them.

        Raises
        ------
        LoadError
            If the number or the size of the patches does not fit the grid.
        IndexError
            If there is no such frame.
        """
        from PIL import Image as Pillow

        return Pillow.fromarray(self._pixels(frame).numpy())

    def _pixels(self, frame: int) -> Tensor:
        t, h, w = self.grid_thw
        p, m = self.patch_size, _MERGE
        time, half = divmod(range(t * _FRAMES)[frame], _FRAMES)
        rows = self._all_rows()[time * h * w : (time + 1) * h * w].float()
        blocks = rows.reshape(h // m, w // m, m, m, _CHANNELS, _FRAMES, p, p)
        # To: row of blocks, row in it, pixel; the same for columns; channel.
        cells = blocks[..., half, :, :].permute(0, 2, 5, 1, 3, 6, 4)
        pixels = cells.reshape(h * p, w * p, _CHANNELS)
        mean, std = CLIP if p == _PATCH_OF_CLIP else HALF
        values = pixels * pixels.new_tensor(std) + pixels.new_tensor(mean)
        return (values * 255).nan_to_num(0).round().clamp(0, 255).byte()

    def _all_rows(self) -> Tensor:
        t, h, w = self.grid_thw
        rows = self.patches()
        shape = (t * h * w, _width(self.patch_size))
        if tuple(rows.shape) == shape and _is_grid(self.grid_thw):
            return rows
        raise unreadable(
            key="pixel_values",
            expected=f"{shape} values for the grid {self.grid_thw}, of even sides",
            found=str(tuple(rows.shape)),
        )


def patch_screenshots(
    rows: Callable[[int, int], Tensor], shape: Sequence[int], grids: Sequence[Grid]
) -> tuple[PatchScreenshot, ...] | None:
    """Split the `pixel_values` of one sample into its screenshots.

    Parameters
    ----------
    rows : callable
        Returns rows of `pixel_values` from a start to a stop, when a picture is
        requested.
    shape : sequence of int
        Shape of `pixel_values`.
    grids : sequence of tuple of int
        `image_grid_thw`: frames, height and width of each picture in patches.

    Returns
    -------
    tuple of PatchScreenshot, or None
        None if grids and pixels do not fit together as in Qwen2-VL and its successors.
    """
    edges = [0, *accumulate(t * h * w for t, h, w in grids)]
    patch_size = isqrt(shape[-1] // (_CHANNELS * _FRAMES)) if shape else 0
    fits = tuple(shape) == (edges[-1], _width(patch_size))
    if not fits or not all(map(_is_grid, grids)):
        return None
    return tuple(
        PatchScreenshot(
            patches=partial(rows, start, stop), grid_thw=grid, patch_size=patch_size
        )
        for (start, stop), grid in zip(pairwise(edges), grids, strict=True)
    )


def _is_grid(grid: Grid) -> bool:
    """Return whether a grid has frames and complete blocks of merged patches."""
    _, h, w = grid
    return min(grid) > 0 and h % _MERGE == w % _MERGE == 0


def _width(patch_size: int) -> int:
    """Return the number of values of a patch."""
    return _CHANNELS * _FRAMES * patch_size**2
