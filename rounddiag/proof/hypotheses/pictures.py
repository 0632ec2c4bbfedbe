"""Pictures not seen, seen otherwise or at another size, or taken from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rounddiag.proof.hypotheses.hypothesis import Edit, Need, register_hypothesis
from rounddiag.proof.trajectory import Picture, Request, Samples, Trajectory

LARGEST_WINDOW = 8
OPAQUE = 255  # of the alpha of a pixel, at most
SHOWN: tuple[Need, ...] = ("pictures",)
FEATURES: tuple[Need, ...] = ("pictures", "features")
_lost = partial(register_hypothesis, cause="dropped_image", needs=SHOWN)
_blank = partial(register_hypothesis, cause="dropped_image", needs=FEATURES)
_other = partial(register_hypothesis, cause="wrong_image", needs=SHOWN)
Choice = Callable[[Trajectory, Samples, int], "Picture | None"]
"""From the number of a picture to the one that is shown instead."""


def count_tokens(positions: Tensor, sample: Tensor) -> Tensor:
    """Return positions that count tokens: no picture is wider than one."""
    return torch.arange(positions.shape[-1]).expand_as(positions)


def _show(
    first: int = 0, stop: int | None = None, look: str = "pad"
) -> Callable[[Trajectory, Samples], Request | None]:
    def edit(trajectory: Trajectory, samples: Samples) -> Request | None:
        base = Request.of_sample(trajectory)
        shown = list(base.pictures)
        begin, end, _ = slice(first, stop).indices(len(shown))
        shown[begin:end] = [replace(each, look=look) for each in shown[begin:end]]
        return replace(base, pictures=tuple(shown)) if begin < end else None

    return edit


def _remove(first: int = 0, stop: int | None = None, *, markers: bool = True) -> Edit:
    def edit(trajectory: Trajectory, samples: Samples) -> Request | None:
        base = Request.of_sample(trajectory)
        begin, end, _ = slice(first, stop).indices(len(trajectory.spans))
        if begin >= end:
            return None
        gone = trajectory.picture_tokens(begin, end)
        if not markers:
            marks = torch.tensor(sorted(trajectory.markers))
            gone &= ~torch.isin(trajectory.ids, marks)
        return base.keep(~gone, base.pictures[:begin] + base.pictures[end:])

    return edit


@register_hypothesis(
    "no_images_counted_positions",
    "no pixels: image tokens as text, with positions that count tokens",
    cause="dropped_image",
    needs=(*FEATURES, "positions"),
)
def _see_nothing_and_count(trajectory: Trajectory, samples: Samples) -> Request | None:
    request = _show()(trajectory, samples)
    return request and replace(request, places=count_tokens)


def _collapse(trajectory: Trajectory, samples: Samples) -> Request | None:
    """Keep one token of each picture, without features."""
    base = Request.of_sample(trajectory)
    gone = torch.zeros(len(trajectory.ids), dtype=torch.bool)
    for start, stop in trajectory.spans:
        gone[start + 1 : stop] = True
    pads = tuple(replace(picture, look="pad") for picture in base.pictures)
    return base.keep(~gone, pads) if pads else None


_blank("no_images", "no pixels: image tokens as text, at their positions")(_show())
_blank("zero_features", "pictures whose features are zeros")(_show(look="zeros"))
_blank("images_collapsed", "one token for each image, without pixels")(_collapse)
_blank("first_image_blank", "no pixels of the first image")(_show(0, 1))
_blank("later_images_blank", "pixels of the first image only")(_show(1))
_lost("images_removed", "the text only: images and their tokens removed")(_remove())
_lost(
    "images_removed_markers_kept",
    "the text only: image tokens removed, the tokens around them kept",
)(_remove(markers=False))
_lost("first_image_removed", "no first image")(_remove(0, 1))
_lost("last_image_removed", "no last image")(_remove(-1))
_lost("later_images_removed", "the first image only")(_remove(1))
for _look in ("grey", "white", "black"):
    _lost(f"{_look}_images", f"{_look} pictures")(_show(0, None, _look))
    _lost(f"first_image_{_look}", f"a {_look} picture in place of the first")(
        _show(0, 1, _look)
    )
    _lost(f"later_images_{_look}", f"{_look} pictures after the first")(
        _show(1, None, _look)
    )


@_other(
    "transparent_pixels_stored_colour",
    "transparent pixels in their stored colour, not on white",
)
def _ignore_transparency(trajectory: Trajectory, samples: Samples) -> Request | None:
    """Show what is stored behind transparent pixels, if any picture has some."""
    images = [shot.image() for shot in trajectory.shots]
    if not any(
        image.mode == "RGBA" and np.asarray(image)[..., -1].min() < OPAQUE
        for image in images
    ):
        return None
    return _show(look="stored_colour")(trajectory, samples)


def _after_each(trajectory: Trajectory, first: int) -> Iterator[Request]:
    """Yield a pass for each number of pictures, from `first` on: up to the next one."""
    base = Request.of_sample(trajectory)
    starts = [start for start, _ in trajectory.spans[first:]]
    for begin, stop in pairwise([0, *starts, len(trajectory.ids)]):
        yield base.before(trajectory, stop).score_only(begin, stop)


def _window(size: int, *, removed: bool) -> Edit:
    """Each round sees the last `size` pictures."""

    def edit(trajectory: Trajectory, samples: Samples) -> Request | list[Request]:
        if len(trajectory.spans) <= size:  # an engine with this window sees them all
            return Request.of_sample(trajectory)
        requests = []
        for gone, request in enumerate(_after_each(trajectory, size)):
            shown = request.pictures[gone:]
            if removed:
                visible = ~trajectory.picture_tokens(0, gone)[: len(request.ids)]
                requests.append(request.keep(visible, shown))
            else:
                blank = (replace(each, look="pad") for each in request.pictures[:gone])
                requests.append(replace(request, pictures=(*blank, *shown)))
        return requests

    return edit


for _size in range(1, LARGEST_WINDOW + 1):
    _images = "image" if _size == 1 else f"{_size} images"
    register_hypothesis(
        f"last_{_size}_images",
        f"the last {_images} only",
        cause="image_window",
        needs=SHOWN,
    )(_window(_size, removed=True))
    register_hypothesis(
        f"last_{_size}_images_others_blank",
        f"pixels of the last {_images} only, the tokens of all",
        cause="image_window",
        needs=FEATURES,
    )(_window(_size, removed=False))


def _exchange(choose: Choice) -> Edit:
    def edit(trajectory: Trajectory, samples: Samples) -> Request | None:
        base = Request.of_sample(trajectory)
        indices = range(len(trajectory.spans))
        choices = [choose(trajectory, samples, index) for index in indices]
        shown = tuple(picture for picture in choices if picture is not None)
        if len(shown) < len(choices) or shown == base.pictures:
            return None
        others = [samples[each.sample].spans[each.index] for each in shown]
        pairs = (others, trajectory.spans)
        sizes, wanted = ([b - a for a, b in spans] for spans in pairs)
        return replace(base, pictures=shown) if sizes == wanted else None

    return edit


def _of_row(step: int) -> Choice:
    """Take the pictures of another row of the batch, its last one where it has few."""

    def choose(trajectory: Trajectory, samples: Samples, index: int) -> Picture | None:
        other = samples[(trajectory.sample + step) % len(samples)]
        last = len(other.spans) - 1
        return Picture(other.sample, min(index, last)) if other.spans else None

    return choose


def _of_stream(step: int) -> Choice:
    """Take the picture that is `step` further in the list of the whole batch."""

    def choose(trajectory: Trajectory, samples: Samples, index: int) -> Picture | None:
        sample, index = trajectory.sample, index + step
        for _ in range(len(samples)):
            count = len(samples[sample].spans)
            if 0 <= index < count:
                return Picture(sample, index)
            if index >= count:
                index -= count
                sample = (sample + 1) % len(samples)
            else:
                sample = (sample - 1) % len(samples)
                index += len(samples[sample].spans)
        return None

    return choose


def _own(number: Callable[[int, int], int]) -> Choice:
    return lambda trajectory, _, index: Picture(
        trajectory.sample, number(index, len(trajectory.spans) - 1)
    )


_other("next_rows_images", "the images of the next row")(_exchange(_of_row(1)))
_other("previous_rows_images", "the images of the previous row")(_exchange(_of_row(-1)))
_other("images_shifted_forward", "each image replaced by the next one of the batch")(
    _exchange(_of_stream(1))
)
_other("images_shifted_back", "each image replaced by the one before it in the batch")(
    _exchange(_of_stream(-1))
)
_other("images_reversed", "the images in reverse order")(
    _exchange(_own(lambda index, last: last - index))
)
_other("first_image_everywhere", "the first image in place of all")(
    _exchange(_own(lambda *_: 0))
)
_other("newest_image_everywhere", "the last image in place of all")(
    _exchange(_own(lambda _, last: last))
)
_other("image_before", "in each round the image of the round before")(
    _exchange(_own(lambda index, _: max(index - 1, 0)))
)


@_other(
    "images_reversed_in_each_request",
    "in each round the images so far in reverse order",
)
def _reverse_each_request(
    trajectory: Trajectory, samples: Samples
) -> list[Request] | None:
    spans = trajectory.spans
    if len({stop - start for start, stop in spans}) != 1 or len(spans) == 1:
        return None
    return [
        replace(request, pictures=request.pictures[::-1])
        for request in _after_each(trajectory, 1)
    ]


def _resize(change: Callable[[Picture, int], Picture]) -> Edit:
    """Change pictures, of so many pixels, and give them the tokens that they need."""

    def edit(trajectory: Trajectory, samples: Samples) -> Request | None:
        if samples.count is None or not trajectory.spans:
            return None
        base = Request.of_sample(trajectory)
        areas = [width * height for width, height in (s.size for s in trajectory.shots)]
        shown = tuple(change(each, areas[each.index]) for each in base.pictures)
        parts: list[slice | Tensor] = []
        end = 0
        for picture, (start, stop) in zip(shown, trajectory.spans, strict=True):
            number = samples.count(picture, samples)
            parts += [slice(end, start), trajectory.ids[start].repeat(number)]
            end = stop
        request = Request.of_parts(trajectory, [*parts, slice(end, None)], shown)
        return None if len(request.ids) == len(trajectory.ids) else request

    return edit


def _scale_to(percent: int) -> Edit:
    return _resize(lambda picture, _: replace(picture, scale=percent / 100))


def _limit_to(limit: int) -> Edit:
    """Limit a picture that is larger; a smaller one is as the model saw it."""
    return _resize(
        lambda picture, pixels: replace(
            picture, max_pixels=limit if limit < pixels else 0
        )
    )


_resized = partial(
    register_hypothesis, cause="image_expansion", needs=("pictures", "resolution")
)
_resized("stored_size", "pictures of the size at which they are stored")(
    _resize(lambda picture, pixels: replace(picture, max_pixels=pixels))
)
for _percent in (25, 33, 40, 50, 60, 67, 75, 80, 90, 125, 150, 200, 300, 400):
    _resized(
        f"percent_of_the_pixels_{_percent}",
        f"pictures of {_percent} % of the pixels, with other numbers of image tokens",
    )(_scale_to(_percent))
# Largest numbers of pixels that training scripts and servers set: multiples of 28 x 28.
for _limit in (262_144, 401_408, 602_112, 802_816, 1_003_520, 1_310_720, 2_007_040):
    _resized(f"at_most_pixels_{_limit}", f"pictures of at most {_limit} pixels")(
        _limit_to(_limit)
    )
