"""One action of an agent, and its point on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "click",
    "double_click",
    "drag",
    "move",
    "type",
    "scroll",
    "key",
    "open",
    "wait",
    "finished",
    "unknown",
]
Coordinates: TypeAlias = Literal["original", "resized", "unit", "thousand"]
Direction: TypeAlias = Literal["up", "down", "left", "right"]
Point: TypeAlias = tuple[float, float]
Size: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Action:
    """One action, as the model wrote it.

    Attributes
    ----------
    kind : str
        `click`, `double_click`, `drag`, `move`, `type`, `scroll`, `key`, `open` (an
        app), `wait`, `finished`, or `unknown`: text in which no action was found.
    point, end_point : tuple of float, optional
        x from the left and y from the top, in the unit `coordinates`. A drag has both,
        unless it starts at the mouse pointer.
    coordinates : str, optional
        The unit of the points: `original` (pixels of the screen), `resized` (pixels of
        the picture that the model saw), `unit` (0 to 1) or `thousand` (0 to 1000).
    text : str, optional
        What was typed, answered, or which app was opened.
    direction : str, optional
        Of a scroll: `up`, `down`, `left` or `right`.
    amount : float, optional
        Distance of a scroll in the unit of the grammar, or seconds to wait.
    keys : tuple of str
        Keys that were pressed together.
    variant : str, optional
        A variant of the kind: `right`, `middle`, `triple`, `long`, or the status with
        which a task ended.
    source_text : str
        The text of the action; the whole text if no action was found.

    Examples
    --------
    >>> action = Action(kind="click", point=(500.0, 250.0), coordinates="thousand")
    >>> action.on((1920, 1080))
    (960.0, 270.0)
    """

    kind: Kind
    point: Point | None = None
    end_point: Point | None = None
    coordinates: Coordinates | None = None
    text: str | None = None
    direction: Direction | None = None
    amount: float | None = None
    keys: tuple[str, ...] = ()
    variant: str | None = None
    source_text: str = ""

    def on(
        self, size: Size, *, original: Size | None = None, resized: Size | None = None
    ) -> Point | None:
        """Return `point` in pixels of a picture.

        Parameters
        ----------
        size : tuple of int
            Width and height of the picture that it is drawn on.
        original, resized : tuple of int, optional
            Size of the screen and of the picture that the model saw, for pixel
            coordinates; `size` by default.

        Returns
        -------
        tuple of float, or None
            None where the action has no point.
        """
        return self._on(self.point, size, original or size, resized or size)

    def end_on(
        self, size: Size, *, original: Size | None = None, resized: Size | None = None
    ) -> Point | None:
        """Return `end_point` in pixels of a picture, as `on` does for `point`."""
        return self._on(self.end_point, size, original or size, resized or size)

    def _on(
        self, point: Point | None, size: Size, original: Size, resized: Size
    ) -> Point | None:
        if point is None:
            return None
        full = {
            "original": original,
            "resized": resized,
            "unit": (1, 1),
            "thousand": (1000, 1000),
            None: size,
        }[self.coordinates]
        return point[0] * size[0] / full[0], point[1] * size[1] / full[1]
