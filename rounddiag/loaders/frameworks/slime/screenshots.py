"""Screenshots of slime's samples: pictures as the agent saw them, or their pixels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rounddiag.loaders.pickles.inert import Node, TextBytes
from rounddiag.loaders.screens.placing import with_screenshots
from rounddiag.loaders.source import Span
from rounddiag.vision import RawScreenshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source
    from rounddiag.vision import Screenshot

    Sample = Mapping[str, Any]
    Pictures = list[list[RawScreenshot]]

MAX_PICTURES = 1 << 18  # a file can name one picture in many places
MAX_KINDS = 16  # images, videos, audio
USED = {"multimodal_inputs", "multimodal_train_inputs"}


def with_rebuilt(batch: Batch, samples: Sequence[Sample], source: Source) -> Batch:
    """Return a batch with screenshots rebuilt from what the processor made of them."""
    inputs = [sample.get("multimodal_train_inputs") for sample in samples]
    if all(row is None for row in inputs):
        return batch
    return with_screenshots(batch, inputs, source)


def with_pictures(batch: Batch, pictures: Pictures) -> Batch:
    """Return a batch with pictures of the rollout file, one list a sample.

    The place of a picture is that of the rebuilt one, where there are as many.
    """
    if not any(pictures):
        return batch
    rebuilt = batch.images or ((),) * len(pictures)
    return replace(batch, images=tuple(map(_placed, pictures, rebuilt)))


def _placed(
    pictures: Sequence[RawScreenshot], rebuilt: Sequence[Screenshot]
) -> tuple[Screenshot, ...]:
    if not pictures:
        return tuple(rebuilt)
    if len(pictures) != len(rebuilt):
        return tuple(pictures)
    return tuple(
        replace(picture, position=place.position, round=place.round)
        for picture, place in zip(pictures, rebuilt, strict=True)
    )


def pictures_of(samples: Sequence[Sample]) -> tuple[Pictures, set[str]]:
    """Return the pictures of each sample, and the field if it holds anything else."""
    room, found = MAX_PICTURES, []
    for sample in samples:
        pictures = _pictures(sample.get("multimodal_inputs"), room)
        room -= len(pictures or [])
        found.append(pictures)
    left_out = {"multimodal_inputs"} if None in found else set[str]()
    return [pictures or [] for pictures in found], left_out


def _pictures(inputs: object, room: int) -> list[RawScreenshot] | None:
    """Return the pictures of one sample; None for what is something else as well."""
    match inputs:
        case None:
            return []
        case dict() if len(inputs) <= MAX_KINDS:
            images = inputs.get("images") or []
            others = [value for kind, value in inputs.items() if kind != "images"]
        case _:
            return None
    if any(others) or not isinstance(images, list) or len(images) > room:
        return None
    found = [_picture(image) for image in images]
    known = [picture for picture in found if picture is not None]
    return known if len(known) == len(found) else None


def _picture(value: object) -> RawScreenshot | None:
    """Return a picture as Pillow pickles it: info, mode, size, palette and pixels."""
    match value:
        case Node(
            name, state=[_, str(mode), (int(width), int(height)), palette, data, *_]
        ) if name.startswith("PIL.") and isinstance(data, bytes | Span | TextBytes):
            if min(width, height) < 1:
                return None
            return RawScreenshot(
                mode=mode,
                width=width,
                height=height,
                data=partial(_pixels, data),
                palette=palette if isinstance(palette, list) else None,
            )
    return None


def _pixels(data: bytes | Span | TextBytes) -> bytes:
    return data if isinstance(data, bytes) else data.read()
