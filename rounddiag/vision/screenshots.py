"""Screenshots: stored as encoded images, or rebuilt from a model's patches."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image
    from torch import Tensor

# Mean and standard deviation of CLIP's normalisation, which Qwen2-VL and its
# successors use: transformers.image_utils.OPENAI_CLIP_MEAN and OPENAI_CLIP_STD.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_FORMATS = ("PNG", "JPEG", "WEBP")
_CHANNELS, _FRAMES, _MERGE = 3, 2, 2


@dataclass(frozen=True, kw_only=True)
class Screenshot(ABC):
    """One picture that the model was shown, read only when it is asked for.

    Attributes
    ----------
    round : int or None
        The first round that was written after the picture was shown.
    """

    round: int | None = None

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""

    @abstractmethod
    def image(self) -> Image:
        """Return the picture."""

    def png(self) -> bytes:
        """Return the picture as PNG."""
        buffer = io.BytesIO()
        self.image().save(buffer, format="PNG")
        return buffer.getvalue()


@dataclass(frozen=True, kw_only=True)
class EncodedScreenshot(Screenshot):
    """A screenshot as a file stores it: PNG, JPEG or WebP.

    Attributes
    ----------
    data : bytes
        The encoded picture.

    Examples
    --------
    >>> from PIL import Image
    >>> buffer = io.BytesIO()
    >>> Image.new("RGB", (4, 3)).save(buffer, format="PNG")
    >>> EncodedScreenshot(data=buffer.getvalue()).size
    (4, 3)
    """

    data: bytes = field(repr=False)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.image().size

    def image(self) -> Image:
        """Decode the picture; only formats that pictures of screens come in.

        Raises
        ------
        LoadError
            If the bytes are no such picture, or a damaged one.
        """
        from PIL import Image as Pillow

        try:
            picture = Pillow.open(io.BytesIO(self.data), formats=_FORMATS)
            picture.load()
        except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as bad:
            raise LoadError.build(
                key="images",
                expected=f"a picture in {', '.join(_FORMATS)}",
                found=f"{len(self.data)} bytes that start with {self.data[:8]!r}",
                advice="The numbers of the batch are not affected.",
            ) from bad
        return picture

    def png(self) -> bytes:
        """Return the stored bytes where they are PNG already."""
        is_png = self.data.startswith(b"\x89PNG")
        return self.data if is_png else super().png()


@dataclass(frozen=True, kw_only=True)
class PatchScreenshot(Screenshot):
    """A screenshot rebuilt from the `pixel_values` of Qwen2-VL and its successors.

    The patches of a picture are (frames, height, width) blocks of two by two merged
    cells; undoing the order and the normalisation gives the picture as the model saw
    it, resized.

    Attributes
    ----------
    patches : callable
        Gives the picture's rows of `pixel_values`, shape (t * h * w, channels * 2 * p *
        p). Called each time the picture is asked for, so that pixels stay on disk.
    grid_thw : tuple of int
        The picture's row of `image_grid_thw`: frames, height and width in patches.
    patch_size : int
        Side of a patch in pixels: 14 for Qwen2.5-VL, 16 for Qwen3-VL.
    """

    patches: Callable[[], Tensor] = field(repr=False)
    grid_thw: tuple[int, int, int]
    patch_size: int = 14

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        _, height, width = self.grid_thw
        return width * self.patch_size, height * self.patch_size

    def image(self) -> Image:
        """Rebuild the first frame."""
        from PIL import Image as Pillow

        return Pillow.fromarray(self._pixels().numpy())

    def _pixels(self) -> Tensor:
        t, h, w = self.grid_thw
        p, m = self.patch_size, _MERGE
        blocks = (
            self.patches()
            .float()
            .reshape(t, h // m, w // m, m, m, _CHANNELS, _FRAMES, p, p)
        )
        frames = blocks.permute(0, 6, 1, 3, 7, 2, 4, 8, 5)
        frame = frames.reshape(t * _FRAMES, h * p, w * p, _CHANNELS)[0]
        scale, shift = frame.new_tensor(CLIP_STD), frame.new_tensor(CLIP_MEAN)
        return ((frame * scale + shift) * 255).round().clamp(0, 255).byte()
