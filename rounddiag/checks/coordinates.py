"""The frame that the numbers of actions are in, against the pictures they are about."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rounddiag.checks.contracts import Contract, Fault, UntestableError, require_tokens
from rounddiag.checks.images import screenshots
from rounddiag.checks.tokens import tokenizer_error
from rounddiag.core.columns import span_texts
from rounddiag.errors import RounddiagError
from rounddiag.vision import PatchScreenshot, parse_action
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot
    from rounddiag.vision.actions import Coordinates, Size


# What is decoded: evenly spaced rounds, and the end of each, where its action is.
_ROUNDS, _TOKENS = 256, 128
_NAMES = {
    "original": "pixels of the screen",
    "resized": "pixels of the picture that the model saw",
    "thousand": "thousandths",
    "unit": "fractions",
}
_SIZES: dict[str, Size] = {"unit": (1, 1), "thousand": (1000, 1000)}
# Probability that one click a sample, anywhere in the picture, never leaves a part.
_CHANCE = 1e-3


class _Click(NamedTuple):
    sample: int
    round: int
    x: float
    y: float
    frame: Coordinates
    shots: Sequence[Screenshot]  # that the model had seen, the newest last
    opened: dict[int, Size | None]  # sizes by the id of the picture, of all clicks

    def picture(self) -> Size | None:
        """Return the size of a picture that the point is in, else of the newest.

        A model may look at a part of its screenshot, and click on the whole.
        """
        for shot in (*self.shots[:1], *self.shots[::-1]):
            size = self.size_of(shot)
            if size and self.is_in(size):
                return size
        return self.newest()

    def newest(self) -> Size | None:
        """Return the size of the last picture."""
        return self.size_of(self.shots[-1]) if self.shots else None

    def size_of(self, shot: Screenshot) -> Size | None:
        """Return the size of a picture, which is opened once: that takes long."""
        if id(shot) not in self.opened:
            self.opened[id(shot)] = _size(shot, self.frame)
        return self.opened[id(shot)]

    def is_in(self, size: Size) -> bool:
        """Return whether the point is in a picture, or on its edge."""
        return 0 <= self.x <= size[0] and 0 <= self.y <= size[1]


def _wrong_frame(batch: Batch) -> Fault | None:
    require_tokens(batch)
    if batch.pieces is None:
        batch.require_ids()
        if batch.tokenizer is None:
            raise UntestableError(field="tokenizer")
    clicks = [*_clicks(batch, screenshots(batch))]
    if not clicks:
        raise UntestableError(
            field="response_ids", why="no round has an action with a point"
        )
    frames = Counter(click.frame for click in clicks)
    if len(frames) > 1:
        (first, num), (other, few) = frames.most_common(2)
        at = next(click for click in clicks if click.frame == other)
        return Fault(
            f"actions are in {_NAMES[first]} in {pluralize(num, 'round')} and in"
            f" {_NAMES[other]} in {few:,}: sample {at.sample} round {at.round}",
            tuple(sorted({click.sample for click in clicks if click.frame == other})),
        )
    return _outside(clicks)


def _outside(clicks: Sequence[_Click]) -> Fault | None:
    limits = [_SIZES.get(click.frame) or click.picture() for click in clicks]
    pairs = zip(clicks, limits, strict=True)
    known = [(click, limit) for click, limit in pairs if limit]
    if not known:
        raise UntestableError(field="images", why="no size of the picture is known")
    frame = known[0][0].frame
    off = [(click, limit) for click, limit in known if not click.is_in(limit)]
    if off:
        first, (width, height) = off[0]
        detail = (
            f"{len(off):,} of {pluralize(len(known), 'point')} outside of the"
            f" picture, read as {_NAMES[frame]}: sample {first.sample} round"
            f" {first.round} has ({first.x:g}, {first.y:g}) of {width:g} x {height:g}"
        )
        implied = _implied([click for click, _ in known], frame)
        return Fault(
            detail + (f"; all fit {implied}" if implied else ""),
            tuple(sorted({click.sample for click, _ in off})),
        )
    is_small = all(click.is_in(_SIZES["thousand"]) for click, _ in known)
    if frame in _SIZES or not is_small:
        return None
    one_each = {click.sample: click for click, _ in reversed(known)}
    sizes = np.array([click.newest() or (0, 0) for click in one_each.values()])
    share = np.minimum(1000 / np.maximum(sizes, 1), 1).prod(axis=1)
    if share.prod() > _CHANCE:
        return None
    width, height = sizes[int(sizes[:, 0].argmax())]
    return Fault(
        f"no point of {pluralize(len(one_each), 'sample')} is beyond 1000 in pictures"
        f" of {width:g} x {height:g}: they may be thousandths, and not {_NAMES[frame]}"
    )


def _implied(clicks: Sequence[_Click], frame: str) -> str:
    for name in ("unit", "thousand", "resized"):
        sizes = [_SIZES.get(name) or click.picture() for click in clicks]
        fits = (name, frame) != ("resized", "original") and all(
            size is not None and click.is_in(size)
            for click, size in zip(clicks, sizes, strict=True)
        )
        if fits and name != frame:
            return _NAMES[name]
    return ""


def _clicks(batch: Batch, pictures: Sequence[Sequence[Screenshot]]) -> Iterator[_Click]:
    rounds = batch.rounds
    every = -(-len(rounds) // _ROUNDS)
    sizes = rounds.num_tokens[::every].clamp(max=_TOKENS).cpu().numpy()
    stops = (rounds.start + rounds.num_tokens)[::every].cpu().numpy()
    try:
        spans = span_texts(batch, stops - sizes, sizes)
    except Exception as error:  # any callable can be a tokenizer
        raise tokenizer_error(error) from error
    recorded = _recorded(batch)
    places = zip(
        rounds.sample[::every].tolist(), rounds.round[::every].tolist(), strict=True
    )
    opened: dict[int, Size | None] = {}
    for pieces, (sample, index) in zip(spans, places, strict=True):
        action = parse_action("".join(pieces))
        if action.point is None:
            action = parse_action(recorded.get((sample, index), ""))
        if action.point is not None and action.coordinates is not None:
            seen = [
                shot
                for shot in pictures[sample]
                if shot.round is None or shot.round <= index
            ]
            yield _Click(sample, index, *action.point, action.coordinates, seen, opened)


def _recorded(batch: Batch) -> dict[tuple[int, int], str]:
    names = ("sample", "round", "action")
    if not {*names} <= batch.round_columns.keys():
        return {}
    rows = zip(*(batch.round_columns[name].tolist() for name in names), strict=True)
    return {(sample, index): text for sample, index, text in rows if text}


def _size(shot: Screenshot, frame: Coordinates) -> Size | None:
    if frame == "original" and isinstance(shot, PatchScreenshot):
        return None
    try:
        return shot.seen_size or shot.size
    except RounddiagError:
        return None


FRAME = Contract(
    "actions are in the frame of the picture",
    "images",
    _wrong_frame,
    effect="clicks may be drawn, and were perhaps sent, to other places",
    advice="Parse the actions with `coordinates=` of the model, and compare one with"
    " its picture.",
)
