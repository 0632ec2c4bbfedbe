"""Screenshots that a file stores as plain pixels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rounddiag.vision.screenshots import Screenshot, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from PIL.Image import Image

# Bits of a pixel, by Pillow's name of the mode. A row of one bit a pixel ends with a
# whole byte.
_BITS = {"1": 1, "L": 8, "P": 8, "RGB": 24, "RGBA": 32}


@dataclass(frozen=True, kw_only=True)
class RawScreenshot(Screenshot):
    r"""A screenshot as a pickled Pillow image holds it: mode, size and pixels.

    Attributes
    ----------
    mode : str
        Pillow's name of what a pixel is: RGB, RGBA, L, P or 1.
    width, height : int
        In pixels.
    data : callable
        Gives the pixels, row after row. Called each time the picture is asked for, so
        that they stay on disk.
    palette : sequence of int, optional
        Red, green and blue of each colour of mode P, from 0 to 255.

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

    def image(self) -> Image:
        """Put the picture together.

        Raises
        ------
        LoadError
            If the pixels are not as many as mode and size say, or more than Pillow's
            limit, or if the palette is none.
        """
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
            _colour(picture, self.palette)
        return picture

    @property
    def _num_bytes(self) -> int:
        return (self.width * _BITS[self.mode] + 7) // 8 * self.height


def _colour(picture: Image, palette: Sequence[int]) -> None:
    try:
        picture.putpalette(list(bytes(palette)))
        picture.load()  # only now is the palette looked at
    except (TypeError, ValueError) as bad:
        raise unreadable(
            expected="up to 768 numbers from 0 to 255", found="a palette of others"
        ) from bad
