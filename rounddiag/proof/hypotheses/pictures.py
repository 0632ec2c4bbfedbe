"""Pictures that an engine did not see, saw otherwise, or took from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from rounddiag.proof.hypotheses.hypothesis import Edit, register
from rounddiag.proof.trajectory import Look, Picture, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from rounddiag.proof.trajectory import Samples, Trajectory

LARGEST_WINDOW = 8


def count_tokens(positions: Tensor, sample: Tensor) -> Tensor:
    """Return positions that count tokens: no picture is wider than one."""
    del sample
    return torch.arange(positions.shape[-1]).expand_as(positions)


def _look(look: Look) -> Edit:
    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        del samples
        base = Request.of_sample(one)
        shown = tuple(replace(picture, look=look) for picture in base.pictures)
        return [replace(base, pictures=shown)] if shown else None

    return edit


@register(
    "no_images_counted_positions",
    cause="dropped_image",
    says="no pixels: image tokens as text, with positions that count tokens",
    needs=("pictures", "features", "positions"),
)
def _see_nothing_and_count(
    one: Trajectory, samples: Samples
) -> Sequence[Request] | None:
    requests = _look("pad")(one, samples)
    return requests and [replace(requests[0], places=count_tokens)]


register(
    "no_images",
    cause="dropped_image",
    says="no pixels: image tokens as text, at their positions",
    needs=("pictures", "features"),
)(_look("pad"))
register(
    "zero_features",
    cause="dropped_image",
    says="pictures whose features are zeros",
    needs=("pictures", "features"),
)(_look("zeros"))


def _register_changed_pixels() -> None:
    """Pictures of as many image tokens that show less."""
    looks: tuple[tuple[str, str, Look], ...] = (
        ("half_resolution", "of half the size, enlarged", "coarse_2"),
        (
            "third_resolution",
            "of a third of the size, enlarged",
            "coarse_3",
        ),
        ("quarter_resolution", "of a quarter of the size, enlarged", "coarse_4"),
        ("blurred_by_1", "blurred by 1 pixel", "blurred_1"),
        ("blurred_by_2", "blurred by 2 pixels", "blurred_2"),
        ("blurred_by_4", "blurred by 4 pixels", "blurred_4"),
    )
    for name, says, look in looks:
        register(
            name,
            cause="wrong_image",
            says=f"pictures {says}, with as many image tokens",
            needs=("pictures",),
        )(_look(look))


_register_changed_pixels()


def without_pictures(first: int, stop: int | None, *, markers: bool = True) -> Edit:
    """Leave pictures out with their tokens."""

    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        del samples
        base = Request.of_sample(one)
        number = len(one.spans)
        begin, end, _ = slice(first, stop).indices(number)
        if begin >= end:
            return None
        gone = one.picture_tokens(begin, end)
        if not markers:
            gone &= ~torch.isin(one.ids, torch.tensor(sorted(one.markers)))
        kept = base.pictures[:begin] + base.pictures[end:]
        return [base.keep(~gone, kept)]

    return edit


def _collapse(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    """Keep one token of each picture, without features."""
    del samples
    base = Request.of_sample(one)
    gone = torch.zeros(len(one.ids), dtype=torch.bool)
    for start, stop in one.spans:
        gone[start + 1 : stop] = True
    pads = tuple(replace(picture, look="pad") for picture in base.pictures)
    return [base.keep(~gone, pads)] if pads else None


register(
    "images_removed",
    cause="dropped_image",
    says="the text only: images and their tokens removed",
    needs=("pictures",),
)(without_pictures(0, None))
register(
    "images_removed_markers_kept",
    cause="dropped_image",
    says="the text only: image tokens removed, the tokens around them kept",
    needs=("pictures",),
)(without_pictures(0, None, markers=False))
register(
    "images_collapsed",
    cause="dropped_image",
    says="one token for each image, without pixels",
    needs=("pictures", "features"),
)(_collapse)
register(
    "first_image_removed",
    cause="dropped_image",
    says="no first image",
    needs=("pictures",),
)(without_pictures(0, 1))
register(
    "last_image_removed",
    cause="dropped_image",
    says="no last image",
    needs=("pictures",),
)(without_pictures(-1, None))
register(
    "later_images_removed",
    cause="dropped_image",
    says="the first image only",
    needs=("pictures",),
)(without_pictures(1, None))


def blank_pictures(first: int, stop: int | None, look: Look = "pad") -> Edit:
    """Show some pictures otherwise, by default without pixels."""

    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        del samples
        base = Request.of_sample(one)
        shown = list(base.pictures)
        begin, end, _ = slice(first, stop).indices(len(shown))
        if begin >= end:
            return None
        shown[begin:end] = [replace(each, look=look) for each in shown[begin:end]]
        return [replace(base, pictures=tuple(shown))]

    return edit


register(
    "first_image_blank",
    cause="dropped_image",
    says="no pixels of the first image",
    needs=("pictures", "features"),
)(blank_pictures(0, 1))
register(
    "later_images_blank",
    cause="dropped_image",
    says="pixels of the first image only",
    needs=("pictures", "features"),
)(blank_pictures(1, None))


def _register_colours() -> None:
    """Pictures that were lost on the way, and replaced by one colour."""
    colours: tuple[Look, ...] = ("grey", "white", "black")
    for look in colours:
        for name, says, first, stop in (
            (f"{look}_images", f"{look} pictures", 0, None),
            (f"first_image_{look}", f"a {look} picture in place of the first", 0, 1),
            (f"later_images_{look}", f"{look} pictures after the first", 1, None),
        ):
            register(name, cause="dropped_image", says=says, needs=("pictures",))(
                blank_pictures(first, stop, look)
            )


_register_colours()


def _window(size: int, *, removed: bool) -> Edit:
    """Each round sees the last `size` pictures: a pass for each number of pictures."""

    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        del samples
        base = Request.of_sample(one)
        if len(one.spans) <= size:
            return [base]  # an engine with this window sees them all
        borders = [0, *(start for start, _ in one.spans[size:]), len(one.ids)]
        requests = []
        for gone, (begin, stop) in enumerate(pairwise(borders)):
            seen = sum(start < stop for start, _ in one.spans)
            kept = torch.arange(len(one.ids)) < stop
            shown = base.pictures[:seen]
            if removed:
                kept &= ~one.picture_tokens(0, gone)
                shown = shown[gone:]
            else:
                blank = (replace(each, look="pad") for each in shown[:gone])
                shown = (*blank, *shown[gone:])
            requests.append(base.keep(kept, shown).score_only(begin, stop))
        return [request for request in requests if not request.is_empty]

    return edit


def _register_windows() -> None:
    for size in range(1, LARGEST_WINDOW + 1):
        images = "image" if size == 1 else f"{size} images"
        register(
            f"last_{size}_images",
            cause="image_window",
            says=f"the last {images} only",
            needs=("pictures",),
        )(_window(size, removed=True))
        register(
            f"last_{size}_images_others_blank",
            cause="image_window",
            says=f"pixels of the last {images} only, the tokens of all",
            needs=("pictures", "features"),
        )(_window(size, removed=False))


_register_windows()


def exchange_pictures(
    choose: Callable[[Trajectory, Samples, int], Picture | None],
) -> Edit:
    """Show other pictures, where they have as many tokens."""

    def edit(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
        base = Request.of_sample(one)
        shown = [choose(one, samples, index) for index in range(len(one.spans))]
        if not shown or None in shown or tuple(shown) == base.pictures:
            return None
        found = tuple(picture for picture in shown if picture is not None)
        sizes = [stop - start for start, stop in one.spans]
        others = [samples[each.sample].spans[each.index] for each in found]
        if [stop - start for start, stop in others] != sizes:
            return None
        return [replace(base, pictures=found)]

    return edit


def _of_row(step: int) -> Callable[[Trajectory, Samples, int], Picture | None]:
    """Take the pictures of another row of the batch, its last one where it has few."""

    def choose(one: Trajectory, samples: Samples, index: int) -> Picture | None:
        other = samples[(one.sample + step) % len(samples)]
        if not other.spans:
            return None
        return Picture(other.sample, min(index, len(other.spans) - 1))

    return choose


def _of_stream(step: int) -> Callable[[Trajectory, Samples, int], Picture | None]:
    """Take the picture that is `step` further in the list of the whole batch."""

    def choose(one: Trajectory, samples: Samples, index: int) -> Picture | None:
        sample, index = one.sample, index + step
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


register(
    "next_rows_images",
    cause="wrong_image",
    says="the images of the next row",
    needs=("pictures",),
)(exchange_pictures(_of_row(1)))
register(
    "previous_rows_images",
    cause="wrong_image",
    says="the images of the previous row",
    needs=("pictures",),
)(exchange_pictures(_of_row(-1)))
register(
    "images_shifted_forward",
    cause="wrong_image",
    says="each image replaced by the next one of the batch",
    needs=("pictures",),
)(exchange_pictures(_of_stream(1)))
register(
    "images_shifted_back",
    cause="wrong_image",
    says="each image replaced by the one before it in the batch",
    needs=("pictures",),
)(exchange_pictures(_of_stream(-1)))
register(
    "images_reversed",
    cause="wrong_image",
    says="the images in reverse order",
    needs=("pictures",),
)(exchange_pictures(lambda one, _, i: Picture(one.sample, len(one.spans) - 1 - i)))
register(
    "first_image_everywhere",
    cause="wrong_image",
    says="the first image in place of all",
    needs=("pictures",),
)(exchange_pictures(lambda one, _, i: Picture(one.sample, 0 * i)))
register(
    "newest_image_everywhere",
    cause="wrong_image",
    says="the last image in place of all",
    needs=("pictures",),
)(exchange_pictures(lambda one, _, i: Picture(one.sample, len(one.spans) - 1 + 0 * i)))
register(
    "image_before",
    cause="wrong_image",
    says="in each round the image of the round before",
    needs=("pictures",),
)(exchange_pictures(lambda one, _, i: Picture(one.sample, max(i - 1, 0))))


def _reverse_each_request(
    one: Trajectory, samples: Samples
) -> Sequence[Request] | None:
    """Show the pictures so far in reverse order: a pass for each number of them."""
    del samples
    base = Request.of_sample(one)
    if len({stop - start for start, stop in one.spans}) != 1 or len(one.spans) < 2:  # noqa: PLR2004 an order
        return None
    borders = [0, *(start for start, _ in one.spans[1:]), len(one.ids)]
    index = torch.arange(len(one.ids))
    requests = [
        base.keep(index < stop, base.pictures[number::-1]).score_only(begin, stop)
        for number, (begin, stop) in enumerate(pairwise(borders))
    ]
    return [request for request in requests if not request.is_empty]


register(
    "images_reversed_in_each_request",
    cause="wrong_image",
    says="in each round the images so far in reverse order",
    needs=("pictures",),
)(_reverse_each_request)
