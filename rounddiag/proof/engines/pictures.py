"""The pictures of a sample: their tokens in its ids, and their pixels for an engine."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import torch
from PIL.Image import Image

from rounddiag._typing import Array
from rounddiag.errors import BatchError
from rounddiag.proof.trajectory import Picture, Request, Samples, Trajectory
from rounddiag.vision import Screenshot
from rounddiag.vision.image_tokens import TokenRuns
from rounddiag.vision.screenshots import opaque

COLOURS = {"grey": 127, "white": 255, "black": 0}
_LEAST = 4  # image tokens of one picture


def draw(shot: Screenshot, look: str) -> Image:
    """Return a picture at the size at which the model saw it, or a changed one.

    Every engine is shown this one, so that none decides about transparent pixels.
    """
    from PIL import Image as Pillow

    image = opaque(shot.image(), on_white=look != "stored_colour")
    if shot.seen_size is not None and image.size != shot.seen_size:
        image = image.resize(shot.seen_size)
    kind, _, number = look.partition("_")
    if kind == "mean":
        edges = map(int, number.split("_")) if number else (0, 0, *image.size)
        left, top, right, lower = edges
        image.paste(_mean_color(image), (left, top, right, lower))
        return image
    if look in COLOURS:
        return Pillow.new("RGB", image.size, (COLOURS[look],) * 3)
    return image


def _mean_color(image: Image) -> tuple[int, int, int]:
    red, green, blue = np.asarray(image).mean((0, 1)).round().astype(int).tolist()
    return red, green, blue


def encode(picture: Picture, samples: Samples) -> str:
    """Return a picture as a `data:` address of PNG."""
    shot = samples[picture.sample].shots[picture.index]
    return data_address(shot, picture.look)


def data_address(shot: Screenshot, look: str = "seen") -> str:
    """Return a screenshot as a `data:` address of PNG: stored bytes if they are it."""
    is_seen = look == "seen" and shot.seen_size in {None, shot.size}
    if is_seen and shot.image().mode == "RGB":
        data = shot.png()
    else:
        buffer = io.BytesIO()
        draw(shot, look).save(buffer, format="PNG")
        data = buffer.getvalue()
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def refuse_written(trajectory: Trajectory, token: int) -> None:
    """Raise a BatchError if the model wrote an image token."""
    if (trajectory.ids[torch.from_numpy(trajectory.targets)] == token).any():
        raise BatchError.build(
            expected=f"no image token among what the model wrote in sample"
            f" {trajectory.sample}",
            found=f"id {token}",
            advice="Leave this sample out: later positions are undefined.",
        )


def without_last_run(trajectory: Trajectory, token: int) -> Trajectory:
    """Leave out image tokens that end a sample: nothing follows; they may be cut."""
    size = len(trajectory.ids)
    while size and int(trajectory.ids[size - 1]) == token:
        size -= 1
    if size == len(trajectory.ids):
        return trajectory
    return replace(trajectory, ids=trajectory.ids[:size])


def _token_of_runs(ids: Array, number: int) -> int | None:
    runs = TokenRuns.of_ids(ids)
    tokens = np.unique(runs.token[runs.length >= _LEAST])
    own = [TokenRuns.of_ids(ids, token).of_pictures(ids, number) for token in tokens]
    fit = [each for each in own if (each.length >= _LEAST).sum() == number]
    return int(fit[0].token[0]) if len(fit) == 1 else None


def with_spans(trajectory: Trajectory) -> Trajectory:
    """Find the image tokens of a sample from its ids alone."""
    if not trajectory.shots:
        return trajectory
    ids = trajectory.ids.numpy()
    token = trajectory.image_token
    token = _token_of_runs(ids, len(trajectory.shots)) if token is None else token
    if token is None:
        raise BatchError.build(
            expected="a token that stands for the pictures of sample"
            f" {trajectory.sample}",
            found="none that fits their positions or sizes",
            advice="Pass the folder of the model, or save where each picture begins.",
        )
    refuse_written(trajectory, token)
    trajectory = without_last_run(trajectory, token)
    ids = trajectory.ids.numpy()
    runs = TokenRuns.of_ids(ids, token).of_pictures(ids, len(trajectory.shots))
    if len(runs.start) > len(trajectory.shots):
        raise BatchError.build(
            expected=f"{len(runs.start)} pictures of sample {trajectory.sample}, one"
            " for each run of image tokens",
            found=f"{len(trajectory.shots)}",
            advice="Save the pictures of this sample, or choose samples that have"
            " them.",
        )
    starts, lengths = runs.start.tolist(), runs.length.tolist()
    spans = tuple((at, at + size) for at, size in zip(starts, lengths, strict=True))
    before = {int(ids[at - 1]) if at else -1 for at, _ in spans}
    after = {int(ids[end]) if end < len(ids) else -1 for _, end in spans}
    markers = frozenset(
        next(iter(each))
        for each in (before, after)
        if len(each) == 1 and -1 not in each
    )
    return replace(trajectory, spans=spans, markers=markers)


def collapse(request: Request, samples: Samples) -> list[int]:
    """Return the ids of a request with one image token for each picture."""
    if not request.pictures:
        return request.ids.tolist()
    first = samples[request.pictures[0].sample]
    token = int(first.ids[first.spans[request.pictures[0].index][0]])
    pictures = [
        samples[each.sample].ids[slice(*samples[each.sample].spans[each.index])]
        for each in request.pictures
    ]
    ids: list[int] = request.ids.tolist()
    collapsed: list[int] = []
    at = 0
    for picture in pictures:
        begin, size = at + ids[at:].index(token), len(picture)
        if ids[begin : begin + size] != picture.tolist():
            raise BatchError.build(
                expected=f"{size} image tokens for a picture of sample"
                f" {request.sample}",
                found="fewer",
                advice="A hypothesis has to change ids and pictures together.",
            )
        collapsed += [*ids[at:begin], token]
        at = begin + size
    return collapsed + ids[at:]
