"""Screenshots, and those that a file stores as encoded images."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("PNG", "JPEG", "WEBP")


@dataclass(frozen=True, kw_only=True)
class Screenshot(ABC):
    """One picture that the model was shown, read only when it is asked for.

    Attributes
    ----------
    round : int or None
        The first round that was written after the picture was shown.
    position : int or None
        Index in the response of its first image token. Negative for those in the
        prompt, back from the response's start: -1 is the prompt's last token.
    """

    round: int | None = None
    position: int | None = None

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
