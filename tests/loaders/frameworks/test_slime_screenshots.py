"""The pictures of slime's rollout file, and those rebuilt from pixel values."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from rounddiag.loaders import load
from tests.loaders.frameworks.test_slime_rollouts import loaded
from tests.loaders.slime_writer import (
    pixels,
    rollouts,
    trained_samples,
    write_rollouts,
    write_train_file,
)


def test_pictures_are_as_the_agent_saw_them(tmp_path: Path) -> None:
    batch = loaded(tmp_path)

    assert [len(row) for row in batch.images] == [1, 0]
    picture = batch.images[0][0].image()
    assert [picture.getpixel((x, 0)) for x in (0, 1)] == [(255,) * 3, (255, 0, 0)]


def with_palette() -> Image.Image:
    picture = Image.effect_mandelbrot((300, 200), (-2, -1, 1, 1), 50).convert("P")
    picture.putpalette([value for index in range(256) for value in (index, 0, 255)])
    return picture


def opened() -> Image.Image:
    """Return a picture as Pillow opens it: an object of another class."""
    file = io.BytesIO()
    with_palette().convert("RGB").save(file, "PNG")
    return Image.open(file)


@pytest.mark.parametrize("make", [with_palette, opened])
def test_a_large_picture_is_read_when_it_is_asked_for(
    make: Callable[[], Image.Image], tmp_path: Path
) -> None:
    picture = make()
    first, *others = rollouts()
    batch = loaded(
        tmp_path, [first | {"multimodal_inputs": {"images": [picture]}}, *others]
    )

    found = batch.images[0][0].image()
    assert found.convert("RGB").tobytes() == picture.convert("RGB").tobytes()


@pytest.mark.parametrize("place", ["train", "rollouts"])
def test_pictures_stand_where_their_image_tokens_do(place: str, tmp_path: Path) -> None:
    inputs = {"multimodal_train_inputs": pixels((1, 2, 4))}
    first, *others = rollouts()
    write_rollouts(
        tmp_path, [first | inputs if place == "rollouts" else first, *others]
    )
    mine, other = trained_samples()
    samples = [mine | inputs if place == "train" else mine, other]
    batch = load(write_train_file(tmp_path, samples))

    shot = batch.images[0][0]
    assert (shot.size, shot.position, shot.round) == ((2, 1), -3, 0)


def test_pictures_without_pixel_values_are_placed_by_their_number(
    tmp_path: Path,
) -> None:
    batch = loaded(tmp_path)  # one picture, one run of image tokens: 9, 9

    shot = batch.images[0][0]
    assert (shot.size, shot.position, shot.round) == ((2, 1), -3, 0)


@pytest.mark.parametrize(
    "inputs",
    [
        {"images": "a.png"},
        {"images": ["a.png"]},
        {"images": [Image.new("RGB", (0, 1))]},
        {"videos": ["a.mp4"]},
        "a.png",
    ],
)
def test_pictures_of_another_kind_are_counted(inputs: object, tmp_path: Path) -> None:
    first, *others = rollouts()
    batch = loaded(tmp_path, [first | {"multimodal_inputs": inputs}, *others])

    assert batch.images is None
    assert batch.meta["screenshots"] == [
        "1 of `multimodal_inputs` are not pictures in the file: paths are not opened"
    ]
