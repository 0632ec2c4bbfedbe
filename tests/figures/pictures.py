"""Figures as they are seen: without colour, and without one kind of cone."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import plotly.graph_objects as go
from PIL import Image
from plotly.colors import hex_to_rgb, unlabel_rgb

Array = np.ndarray[Any, Any]

# From linear RGB to what deuteranopes see: Machado, Oliveira and Fernandes, "A
# Physiologically-based Model for Simulation of Color Vision Deficiency", 2009.
_DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
# From linear sRGB to CIE XYZ, in shares of the white of daylight (D65).
_XYZ = np.array(
    [
        [0.433953, 0.376219, 0.189828],
        [0.212671, 0.715160, 0.072169],
        [0.017758, 0.109477, 0.872765],
    ]
)


def pixels(png: bytes) -> Array:
    """Return linear RGB of each pixel of a picture, from 0 to 1."""
    with Image.open(io.BytesIO(png)) as image:
        values = np.asarray(image.convert("RGB")) / 255
    return linear(values)


def linear(values: Array) -> Array:
    """Undo the curve of sRGB."""
    curved: Array = np.where(
        values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4
    )
    return curved


def without(figure: go.Figure, trace: int) -> go.Figure:
    """Make a trace transparent; axes and all else stay."""
    changed = type(figure)(figure)
    changed.data[trace].opacity = 0
    return changed


def ink(with_mark: Array, without_mark: Array) -> Array:
    """Mark the pixels that something changes, but for its soft edges.

    Parameters
    ----------
    with_mark, without_mark : array
        Pictures with it and without it.
    """
    change = np.abs(lightness(with_mark) - lightness(without_mark))
    marked: Array = change > max(1.0, 0.8 * change.max())
    return marked


def lightness(color: Array) -> Array:
    """Return CIE L*, from 0 (black) to 100 (white): all that is left in grey."""
    light: Array = laboratory(color)[..., 0]
    return light


def laboratory(color: Array) -> Array:
    """Return CIE L*, a* and b* of linear RGB."""
    share = np.clip(color @ _XYZ.T, 0, 1)
    is_dark = share <= 216 / 24389
    root = np.where(is_dark, 841 / 108 * share + 4 / 29, np.cbrt(share))
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def seen_by_deuteranopes(color: Array) -> Array:
    """Return the linear RGB that looks to everybody as this one to deuteranopes."""
    seen: Array = np.clip(color @ _DEUTERANOPIA.T, 0, 1)
    return seen


def list_colors(names: Iterable[str]) -> Array:
    """Return the linear RGB of colours as plotly writes them."""
    rows = [
        hex_to_rgb(name) if name.startswith("#") else unlabel_rgb(name)
        for name in names
    ]
    return linear(np.array(rows) / 255)
