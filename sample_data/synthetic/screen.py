"""Screens and their widgets, drawn with Pillow."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

from .pictures import PICTURES

WIDTH, HEIGHT = 448, 336
SCALE = 2  # drawn twice as large and reduced: smooth edges
COLOURS = {
    "red": "#e5484d",
    "orange": "#f2841a",
    "yellow": "#f5c518",
    "green": "#2f9e5b",
    "teal": "#12b5b0",
    "blue": "#2f6fed",
    "purple": "#7c4ddb",
    "pink": "#ec6cb9",
    "ink": "#1f2733",
    "grey": "#8b95a5",
    "line": "#d5dae2",
    "page": "#737985",
    "focus": "#cfe0ff",
    "white": "#ffffff",
}

Kind = Literal["switch", "card", "field", "button", "banner", "note"]
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Widget:
    """One thing on a screen: where it is, what it says, whether it is on."""

    name: str
    kind: Kind
    box: Box
    colour: str
    label: str
    value: str = ""
    is_on: bool = False

    def holds(self, point: tuple[int, int]) -> bool:
        """Tell whether a click at this point hits the widget."""
        left, top, right, bottom = self.box
        return left <= point[0] < right and top <= point[1] < bottom


@dataclass(frozen=True)
class Screen:
    """A title bar with widgets under it."""

    title: str
    colour: str
    widgets: tuple[Widget, ...]

    def at(self, point: tuple[int, int]) -> Widget | None:
        """Return the widget under a point."""
        return next((item for item in self.widgets if item.holds(point)), None)

    def find(self, name: str) -> Widget | None:
        """Return the widget of this name."""
        return next((item for item in self.widgets if item.name == name), None)


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Return Pillow's own font: no font of the system is needed."""
    return ImageFont.load_default(size * SCALE)  # type: ignore[return-value]


class Pen:
    """Draws in the coordinates of the screen on the larger canvas."""

    def __init__(self) -> None:
        size = (WIDTH * SCALE, HEIGHT * SCALE)
        self.canvas = Image.new("RGB", size, COLOURS["page"])
        self.draw = ImageDraw.Draw(self.canvas)

    def box(self, box: Box, fill: str, radius: int = 8, edge: str = "") -> None:
        """Draw a rounded rectangle."""
        left, top, right, bottom = (SCALE * value for value in box)
        self.draw.rounded_rectangle(
            (left, top, right - 1, bottom - 1),
            radius * SCALE,
            COLOURS.get(fill, fill),
            COLOURS[edge] if edge else None,
            2 * SCALE if edge else 1,
        )

    def text(
        self, place: tuple[int, int], text: str, size: int, fill: str, anchor: str
    ) -> None:
        """Write a line of text; the anchor is Pillow's."""
        spot = (place[0] * SCALE, place[1] * SCALE)
        self.draw.text(spot, text, COLOURS[fill], font(size), anchor)

    def picture(self, place: tuple[int, int], name: str, background: str) -> None:
        """Draw the picture of a product, 56 x 56."""
        for shape, corners in PICTURES[name]:
            left, top, right, bottom = (round(0.56 * value) for value in corners)
            x, y = place
            box = (x + left, y + top, x + right, y + bottom)
            radius = {"oval": 28, "box": 5, "cut": 0}[shape]
            self.box(box, background if shape == "cut" else "white", radius)


def shade(x: int, y: int) -> str:
    """Return a pastel that tells where on the screen it is.

    Qwen's positions are relative, so that a small model has nothing but the pixels to
    learn from where a widget is.
    """
    return f"#{255 - 100 * (y // 112):02x}e8{255 - 70 * (x // 112):02x}"


def draw_tile(pen: Pen, item: Widget) -> None:
    """Draw a tile in the shade of its place, with a coloured top and a label."""
    left, top, right, bottom = item.box
    x, y = (left + right) // 2, (top + bottom) // 2
    pen.box(item.box, shade(x, y), edge="ink" if item.is_on else "line")
    pen.box((left + 8, top + 8, right - 8, y + 2), item.colour)
    pen.text((x, top + 30), item.label[0], 28, "white", "mm")


def draw_switch(pen: Pen, item: Widget) -> None:
    """Draw a switch: on or off, and what it is for."""
    draw_tile(pen, item)
    left, _, right, bottom = item.box
    x = (left + right) // 2
    pen.text((x, bottom - 12), item.label, 14, "ink", "mm")
    colour, knob = ("green", x + 6) if item.is_on else ("grey", x - 26)
    pen.box((x - 30, bottom - 46, x + 30, bottom - 22), colour, 12)
    pen.box((knob, bottom - 44, knob + 20, bottom - 24), "white", 10)


def draw_card(pen: Pen, item: Widget) -> None:
    """Draw a product: a picture, its name, and a tick when it is in the cart."""
    left, top, right, bottom = item.box
    middle = ((left + right) // 2, (top + bottom) // 2)
    pen.box(item.box, shade(*middle), edge="ink" if item.is_on else "line")
    pen.box((left + 8, top + 8, right - 8, bottom - 26), item.colour)
    pen.picture((middle[0] - 28, top + 17), item.name, item.colour)
    pen.text((middle[0], bottom - 14), item.label, 15, "ink", "mm")
    if item.is_on:
        pen.box((right - 34, top + 2, right - 2, top + 34), "ink", 16)
        pen.text((right - 18, top + 18), "+1", 15, "white", "mm")


def draw_field(pen: Pen, item: Widget) -> None:
    """Draw a field of a form: what it is for, and the box with its text."""
    draw_tile(pen, item)
    left, top, right, bottom = item.box
    x = (left + right) // 2
    fill, edge = ("focus", "blue") if item.is_on else ("white", "line")
    pen.text((x, bottom - 39), item.label, 13, "ink", "mm")
    pen.box((left + 8, bottom - 31, right - 8, bottom - 6), fill, 6, edge)
    text = item.value + ("|" if item.is_on else "")
    pen.text((x, bottom - 18), text, 16, "ink", "mm")
    if item.value:
        pen.box((right - 34, top + 2, right - 2, top + 34), "ink", 16)
        pen.text((right - 18, top + 18), "ok", 15, "white", "mm")


def draw_button(pen: Pen, item: Widget) -> None:
    """Draw a filled button."""
    left, top, right, bottom = item.box
    middle = ((left + right) // 2, (top + bottom) // 2)
    pen.box(item.box, shade(*middle), 14)
    pen.box((left + 6, top + 6, right - 6, bottom - 6), item.colour, 10)
    pen.text(middle, item.label, 18, "white", "mm")


def draw_banner(pen: Pen, item: Widget) -> None:
    """Draw a wide strip: small words at the left, large ones at the right."""
    left, top, right, bottom = item.box
    middle = (top + bottom) // 2
    pen.box(item.box, item.colour)
    pen.text((left + 20, middle), item.label, 18, "white", "lm")
    pen.text((right - 20, middle), item.value, 34, "white", "rm")


def draw_note(pen: Pen, item: Widget) -> None:
    """Draw a line of plain text."""
    pen.text((item.box[0], item.box[1]), item.label, 18, item.colour, "la")


DRAW: dict[Kind, Callable[[Pen, Widget], None]] = {
    "switch": draw_switch,
    "card": draw_card,
    "field": draw_field,
    "button": draw_button,
    "banner": draw_banner,
    "note": draw_note,
}


def render(screen: Screen) -> Image.Image:
    """Draw a screen, 448 x 336."""
    pen = Pen()
    pen.box((0, 0, WIDTH, 44), screen.colour, 0)
    pen.text((16, 22), screen.title, 20, "white", "lm")
    for item in screen.widgets:
        DRAW[item.kind](pen, item)
    return pen.canvas.reduce(SCALE)
