"""Screenshots: encoded, as raw pixels, or rebuilt from the patches that a model saw."""

from __future__ import annotations

import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import isqrt, prod
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    Grid = tuple[int, int, int]


_JPEG = b"\xff\xd8"
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF")  # what datasets stores
_NO_PNG = {"CMYK", "F", "HSV", "I", "LAB", "RGBX", "RGBa", "YCbCr"}  # modes of Pillow
_SMALL = 768  # pixels: layout and headlines are legible, 8 pictures take half a MB
_QUALITY = 85  # of a small JPEG
_DIGEST_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Screenshot(ABC):
    """One picture that the model saw, read only when it is requested.

    Attributes
    ----------
    round: The first round after the picture.
    position: Index in the response of its first image token; negative in the prompt,
        whose last token is -1.
    seen_size: Width and height in pixels of the picture that the model saw, if this one
        is smaller: coordinates in its pixels need it.
    """

    round: int | None = None
    position: int | None = None
    seen_size: tuple[int, int] | None = None

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""

    @property
    def is_lossy(self) -> bool:
        """Whether it was compressed so that its pixels changed, as JPEG does."""
        return False

    @abstractmethod
    def image(self) -> Image:
        """Return the picture."""

    @abstractmethod
    def digest(self, most_rows: int | None = None) -> bytes:
        """Return a hash of what is stored: the same for the same picture.

        Of patches that stay in a file, `most_rows` are read, evenly spread; by default
        all.
        """

    def png(self) -> bytes:
        """Return the picture as PNG."""
        picture = self.image()
        if picture.mode in _NO_PNG:
            picture = picture.convert("RGB")
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG")
        return buffer.getvalue()

    def small_jpeg(self) -> bytes:
        """Return the picture as JPEG, at most 768 pixels wide and high."""
        return as_jpeg(self.image(), (_SMALL, _SMALL))


@dataclass(frozen=True, kw_only=True)
class EncodedScreenshot(Screenshot):
    """A screenshot as a file stores it, in a usual format; of several, the first.

    Attributes
    ----------
    data: The encoded picture.

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
        """Width and height in pixels; only the head of the picture is read."""
        return self._open(decode=False).size

    @property
    def is_lossy(self) -> bool:
        """Whether it is a JPEG."""
        return self.data.startswith(_JPEG)

    def digest(self, most_rows: int | None = None) -> bytes:  # noqa: ARG002 of patches
        """Return a hash of the encoded picture."""
        return _digest(self.data)

    def image(self) -> Image:
        """Decode the picture, in one of the formats of screenshots."""
        return self._open(decode=True)

    def png(self) -> bytes:
        """Return the stored bytes if they are PNG already and not too large."""
        is_png = self._open(decode=False).format == "PNG"
        return self.data if is_png else super().png()

    def _open(self, *, decode: bool) -> Image:
        from PIL import Image as Pillow

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Pillow.DecompressionBombWarning)
                picture = Pillow.open(io.BytesIO(self.data), formats=_FORMATS)
            if decode:
                picture.load()
        except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as bomb:
            limit = Pillow.MAX_IMAGE_PIXELS
            raise unreadable(
                expected=f"at most {limit} pixels", found="a larger picture"
            ) from bomb
        except Exception as error:  # Pillow raises many types
            raise unreadable(
                expected=f"a picture in {', '.join(_FORMATS)}",
                found=f"{len(self.data)} bytes that start with {self.data[:8]!r}",
            ) from error
        return picture


@dataclass(frozen=True, kw_only=True)
class StoredScreenshot(Screenshot):
    """An encoded screenshot that stays in a file until it is requested.

    Attributes
    ----------
    data: Reads the encoded picture. Called each time the picture is requested.

    Examples
    --------
    >>> from PIL import Image
    >>> buffer = io.BytesIO()
    >>> Image.new("RGB", (4, 3)).save(buffer, format="PNG")
    >>> StoredScreenshot(data=buffer.getvalue).size
    (4, 3)
    """

    data: Callable[[], bytes] = field(repr=False)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.read().size

    @property
    def is_lossy(self) -> bool:
        """Whether it is a JPEG."""
        return self.read().is_lossy

    def digest(self, most_rows: int | None = None) -> bytes:  # noqa: ARG002 of patches
        """Return a hash of the encoded picture."""
        return _digest(self.data())

    def image(self) -> Image:
        """Decode the picture."""
        return self.read().image()

    def png(self) -> bytes:
        """Return the picture as PNG."""
        return self.read().png()

    def read(self) -> EncodedScreenshot:
        """Read the picture from the file."""
        return EncodedScreenshot(
            data=self.data(),
            round=self.round,
            position=self.position,
            seen_size=self.seen_size,
        )


def _digest(*parts: bytes | memoryview) -> bytes:
    whole = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        whole.update(part)
    return whole.digest()


def opaque(picture: Image, *, on_white: bool = True) -> Image:
    """Return a picture in red, green and blue, its transparent pixels on white.

    As vLLM 0.32 reads pictures of mode RGBA; else of the stored colour, as processors
    of transformers 5.24 do and both read other modes.

    Examples
    --------
    >>> from PIL import Image
    >>> clear = Image.new("RGBA", (1, 1), (10, 20, 30, 0))
    >>> opaque(clear).getpixel((0, 0)), opaque(clear, on_white=False).getpixel((0, 0))
    ((255, 255, 255), (10, 20, 30))
    """
    from PIL import Image as Pillow

    if picture.mode == "P":  # from here Pillow warns of a transparent palette
        return picture.convert("RGBA").convert("RGB")
    if picture.mode != "RGBA" or not on_white:
        return picture.convert("RGB")
    plain = Pillow.new("RGB", picture.size, "white")
    plain.paste(picture, mask=picture.getchannel("A"))
    return plain


def as_jpeg(picture: Image, max_size: tuple[int, int]) -> bytes:
    """Encode a picture as JPEG, scaled down to a maximum size.

    Examples
    --------
    >>> from PIL import Image
    >>> small = as_jpeg(Image.new("RGB", (400, 300)), (40, 40))
    >>> Image.open(io.BytesIO(small)).size
    (40, 30)
    """
    plain = opaque(picture)
    plain.thumbnail(max_size)
    buffer = io.BytesIO()
    plain.save(buffer, format="JPEG", quality=_QUALITY)
    return buffer.getvalue()


def unreadable(*, expected: str, found: str, key: str = "images") -> LoadError:
    """Build the error of a picture that cannot be decoded."""
    advice = "The numbers of the batch are not affected."
    return LoadError.build(key=key, expected=expected, found=found, advice=advice)


# Bits of a pixel, by Pillow's name of the mode. A row of one bit a pixel ends with a
# whole byte.
_BITS = {"1": 1, "L": 8, "P": 8, "RGB": 24, "RGBA": 32}


@dataclass(frozen=True, kw_only=True)
class RawScreenshot(Screenshot):
    r"""A screenshot as a pickled Pillow image holds it: mode, size and pixels.

    Attributes
    ----------
    mode: Pillow's name of what a pixel is: RGB, RGBA, L, P or 1.
    width, height: In pixels.
    data: Returns the pixels, row after row. Called each time the picture is requested,
        so that they stay on disk.
    palette: Red, green and blue of each colour of mode P, from 0 to 255.

    Examples
    --------
    >>> shot = RawScreenshot(mode="L", width=2, height=1, data=lambda: b"\x00\xff")
    >>> shot.size, shot.image().getpixel((1, 0))
    ((2, 1), 255)
    """

    mode: str
    width: int
    height: int
    data: Callable[[], bytes] = field(repr=False)
    palette: Sequence[int] | None = field(default=None, repr=False)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height

    def digest(self, most_rows: int | None = None) -> bytes:  # noqa: ARG002 of patches
        """Return a hash of mode, size and pixels."""
        return _digest(f"{self.mode} {self.size}".encode(), self.data())

    def image(self) -> Image:
        """Build the picture from its pixels."""
        from PIL import Image as Pillow

        limit = Pillow.MAX_IMAGE_PIXELS
        if limit is not None and self.width * self.height > limit:
            raise unreadable(
                expected=f"at most {limit} pixels", found="a larger picture"
            )
        is_known = self.mode in _BITS and min(self.size) > 0
        data = self.data() if is_known else b""
        if not is_known or len(data) != self._num_bytes:
            raise unreadable(
                expected=f"the pixels of a picture in {', '.join(_BITS)}",
                found=f"{len(data)} bytes for mode {self.mode} and size {self.size}",
            )
        picture = Pillow.frombytes(self.mode, self.size, data)
        if self.mode == "P" and self.palette is not None:
            _set_palette(picture, self.palette)
        return picture

    @property
    def _num_bytes(self) -> int:
        return (self.width * _BITS[self.mode] + 7) // 8 * self.height


def _set_palette(picture: Image, palette: Sequence[int]) -> None:
    try:
        picture.putpalette(list(bytes(palette)))
        picture.load()  # this validates the palette
    except (TypeError, ValueError) as error:
        raise unreadable(
            expected="up to 768 numbers from 0 to 255", found="a palette of others"
        ) from error


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
    patches: Gives the picture's rows of `pixel_values`, shape (t * h * w, channels * 2
        * p * p). Called each time the picture is requested, so that pixels stay on
        disk.
    grid_thw: The picture's row of `image_grid_thw`: frames, height and width in
        patches.
    patch_size: Side of a patch in pixels: 14 for Qwen2.5-VL, 16 for Qwen3-VL.
    rows: Gives some of these rows, from a start to a stop, where the others can stay on
        disk.

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
    rows: Callable[[int, int], Tensor] | None = field(default=None, repr=False)

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

    def digest(self, most_rows: int | None = None) -> bytes:
        """Return a hash of the grid and the patches, or of some rows of these."""
        import torch

        num = prod(self.grid_thw)
        if self.rows is None or most_rows is None or most_rows >= num:
            parts = [self.patches()]
        else:
            step = num / most_rows
            starts = [int((at + 0.5) * step) for at in range(most_rows)]
            parts = [self.rows(start, start + 1) for start in starts]
        data = [
            part.contiguous().cpu().view(torch.uint8).numpy().data for part in parts
        ]
        return _digest(f"{self.grid_thw}".encode(), *data)

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
        shape = (t * h * w, _num_values(self.patch_size))
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
    fits = tuple(shape) == (edges[-1], _num_values(patch_size))
    if not fits or not all(map(_is_grid, grids)):
        return None
    return tuple(
        PatchScreenshot(
            patches=partial(rows, start, stop),
            grid_thw=grid,
            patch_size=patch_size,
            rows=partial(_rows_from, rows, start),
        )
        for (start, stop), grid in zip(pairwise(edges), grids, strict=True)
    )


def _rows_from(
    rows: Callable[[int, int], Tensor], first: int, start: int, stop: int
) -> Tensor:
    return rows(first + start, first + stop)


def _is_grid(grid: Grid) -> bool:
    """Return whether a grid has frames and complete blocks of merged patches."""
    _, h, w = grid
    return min(grid) > 0 and h % _MERGE == w % _MERGE == 0


def _num_values(patch_size: int) -> int:
    return _CHANNELS * _FRAMES * patch_size**2
