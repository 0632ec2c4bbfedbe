"""What is kept of a step until its file is written: copies in host memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rounddiag.capture.holding import held
from rounddiag.capture.picking import Order, order_of
from rounddiag.capture.screenshots import held_pictures, num_held_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rounddiag.capture.fields import Parts
    from rounddiag.capture.options import Options
    from rounddiag.capture.screenshots import Pictures

    LookUp = Callable[[Sequence[int]], Sequence[Any]]

_ROOM = 1 << 30  # bytes of a step's pixels that are copied at most


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Copies of a step's columns.

    Attributes
    ----------
    step : int
    parts : Parts
        From `held`.
    seed : tuple of int
        What the random part is drawn from.
    order : Order or None
        The samples' order, where it was needed on the trainer's thread.
    pictures : mapping of int to tuple of PatchScreenshot
        Copies of the pictures of some samples.
    num_without_room : int
        Samples that were picked, and whose pictures were too many to copy.
    """

    step: int
    parts: Parts
    seed: tuple[int, int]
    order: Order | None = None
    pictures: Mapping[int, Pictures] = field(default_factory=dict)
    num_without_room: int = 0


def take(step: int, parts: Parts, options: Options, look_up: LookUp | None) -> Snapshot:
    """Copy what the file of a step needs.

    Parameters
    ----------
    step : int
    parts : Parts
        From `parts_of`.
    options : Options
    look_up : callable or None
        Gives the `multi_modal_inputs` of the samples that are shown; asked once.

    Raises
    ------
    LoadError
        If the fields are not those of a batch.
    """
    seed = (options.seed, abs(int(step)))
    taken = Snapshot(step=int(step), parts=held(parts), seed=seed)
    if look_up is None or options.images == 0:
        return taken
    return _with_pictures(taken, look_up, options.images)


def _with_pictures(taken: Snapshot, look_up: LookUp, images: int) -> Snapshot:
    order = order_of(taken.parts, taken.seed)
    shown = [*order.pick(images)]
    pictures, room = {}, _ROOM
    for sample, row in zip(shown, look_up(shown), strict=True):
        copies = held_pictures(row, room)
        if copies is not None:
            pictures[sample] = copies
            room -= sum(map(num_held_bytes, copies))
    left_out = len(shown) - len(pictures)
    return replace(taken, order=order, pictures=pictures, num_without_room=left_out)
