"""Points are converted between the systems that models count in."""

from __future__ import annotations

import pytest

from rounddiag.vision import Action
from rounddiag.vision.actions import Coordinates

SCREEN, SEEN, DRAWN = (1920, 1080), (960, 540), (640, 360)


@pytest.mark.parametrize(
    ("coordinates", "point", "expected"),
    [
        ("original", (960, 270), (320.0, 90.0)),  # half and a quarter of the screen
        ("resized", (480, 135), (320.0, 90.0)),
        ("unit", (0.5, 0.25), (320.0, 90.0)),
        ("thousand", (500, 250), (320.0, 90.0)),
        ("thousand", (0, 1000), (0.0, 360.0)),
        ("unit", (1.5, -0.25), (960.0, -90.0)),  # beside the picture: as it is
    ],
)
def test_each_system_is_converted_to_the_pixels_of_a_picture(
    coordinates: Coordinates, point: tuple[float, float], expected: tuple[float, float]
) -> None:
    action = Action(kind="click", point=point, coordinates=coordinates)
    assert action.on(DRAWN, original=SCREEN, resized=SEEN) == expected


@pytest.mark.parametrize("coordinates", ["original", "resized"])
def test_pixels_stay_where_the_picture_is_what_they_count_in(
    coordinates: Coordinates,
) -> None:
    action = Action(kind="click", point=(12, 34), coordinates=coordinates)
    assert action.on(SCREEN) == (12.0, 34.0)


def test_the_end_of_a_drag_is_converted_too() -> None:
    action = Action(
        kind="drag", point=(0, 0), end_point=(500, 1000), coordinates="thousand"
    )
    assert action.on((200, 100)) == (0.0, 0.0)
    assert action.end_on((200, 100)) == (100.0, 100.0)


def test_an_action_without_a_point_is_nowhere() -> None:
    action = Action(kind="wait")
    assert (action.on(SCREEN), action.end_on(SCREEN)) == (None, None)
