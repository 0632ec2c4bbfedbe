"""Pictures of the products: white shapes in a square of 100 x 100."""

from typing import Literal

Shape = tuple[Literal["oval", "box", "cut"], tuple[int, int, int, int]]

# Drawn in order; "cut" is a box in the colour of the background.
PICTURES: dict[str, tuple[Shape, ...]] = {
    "mug": (
        ("oval", (50, 30, 92, 74)),
        ("cut", (62, 42, 80, 62)),
        ("box", (18, 18, 70, 86)),
    ),
    "ball": (
        ("oval", (12, 12, 88, 88)),
        ("cut", (46, 12, 54, 88)),
        ("cut", (12, 46, 88, 54)),
    ),
    "lemon": (("oval", (8, 26, 92, 80)), ("box", (64, 10, 92, 26))),
    "plant": (
        ("oval", (10, 8, 52, 50)),
        ("oval", (48, 4, 90, 46)),
        ("box", (46, 30, 54, 66)),
        ("box", (28, 62, 72, 94)),
    ),
    "bottle": (
        ("box", (40, 4, 60, 40)),
        ("box", (28, 32, 72, 96)),
        ("cut", (28, 52, 72, 74)),
    ),
    "lamp": (
        ("oval", (16, 6, 84, 74)),
        ("cut", (12, 42, 88, 78)),
        ("box", (46, 42, 54, 90)),
        ("box", (26, 84, 74, 96)),
    ),
    "book": (
        ("box", (14, 8, 84, 92)),
        ("cut", (24, 8, 29, 92)),
        ("cut", (40, 26, 72, 34)),
        ("cut", (40, 44, 72, 52)),
    ),
    "bag": (
        ("oval", (30, 6, 70, 60)),
        ("box", (12, 36, 88, 94)),
        ("cut", (36, 20, 64, 36)),
    ),
}
