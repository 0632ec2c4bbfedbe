"""The frame that the numbers of actions are in, against the pictures they are about."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rounddiag.checks.contracts import Contract, Fault, UntestableError, require_tokens
from rounddiag.checks.images import screenshots
from rounddiag.checks.tokens import decode_ids
from rounddiag.core.columns import span_texts
from rounddiag.errors import RounddiagError
from rounddiag.vision import PatchScreenshot, parse_action
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rounddiag._typing import Array
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
    size: Size | None  # of the pictures of the sample


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
    """Compare the points with the picture that they are about."""
    known = [click for click in clicks if click.size or click.frame in _SIZES]
    if not known:
        raise UntestableError(field="images", why="no size of the picture is known")
    frame = known[0].frame
    points = np.array([(click.x, click.y) for click in known])
    sizes = np.array([click.size or _SIZES[click.frame] for click in known])
    own = np.array([_SIZES.get(click.frame, click.size) for click in known])
    off = ((points < 0) | (points > own)).any(axis=1)
    if off.any():
        first = known[int(np.flatnonzero(off)[0])]
        width, height = own[int(np.flatnonzero(off)[0])]
        detail = (
            f"{int(off.sum()):,} of {pluralize(len(known), 'point')} outside of the"
            f" picture, read as {_NAMES[frame]}: sample {first.sample} round"
            f" {first.round} has ({first.x:g}, {first.y:g}) of {width:g} x {height:g}"
        )
        implied = _implied(points, sizes, frame)
        return Fault(
            detail + (f"; all fit {implied}" if implied else ""),
            tuple(sorted({known[at].sample for at in np.flatnonzero(off)})),
        )
    if frame in _SIZES or not (points <= 1000).all():  # noqa: PLR2004 thousandths
        return None
    share = np.minimum(1000 / sizes, 1).prod(axis=1)
    sample = np.array([click.sample for click in known])
    _, one_each = np.unique(sample, return_index=True)
    if share[one_each].prod() > _CHANCE:
        return None
    width, height = sizes[int(sizes[:, 0].argmax())]
    return Fault(
        f"no point of {pluralize(len(one_each), 'sample')} is beyond 1000 in pictures"
        f" of {width:g} x {height:g}: they may be thousandths, and not {_NAMES[frame]}"
    )


def _implied(points: Array, sizes: Array, frame: str) -> str:
    """Return the first other frame that all points are inside of."""
    if (points < 0).any():
        return ""
    tests = {
        "unit": (points <= 1).all(),
        "thousand": (points <= 1000).all(),  # noqa: PLR2004
        "resized": frame != "original" and (points <= sizes).all(),
    }
    return next((_NAMES[k] for k, ok in tests.items() if ok and k != frame), "")


def _clicks(batch: Batch, pictures: Sequence[Sequence[Screenshot]]) -> Iterator[_Click]:
    """Yield the points of actions, each with the size of the last picture before it."""
    rounds = batch.rounds
    every = -(-len(rounds) // _ROUNDS)
    stops = (rounds.start + rounds.num_tokens)[::every].tolist()
    starts = [
        max(start, stop - _TOKENS)
        for start, stop in zip(rounds.start[::every].tolist(), stops, strict=True)
    ]
    texts = _texts(batch, starts, stops)
    recorded = _recorded(batch)
    places = zip(
        rounds.sample[::every].tolist(), rounds.round[::every].tolist(), strict=True
    )
    sizes: dict[tuple[int, Coordinates], Size | None] = {}
    for text, (sample, index) in zip(texts, places, strict=True):
        action = parse_action(text)
        if action.point is None:
            action = parse_action(recorded.get((sample, index), ""))
        if action.point is not None and action.coordinates is not None:
            frame = action.coordinates
            if (sample, frame) not in sizes:
                sizes[sample, frame] = _size(pictures[sample], frame)
            size = sizes[sample, frame]
            yield _Click(sample, index, *action.point, frame, size)


def _texts(batch: Batch, starts: list[int], stops: list[int]) -> list[str]:
    """Return the texts of stretches of the flat fields, without special tokens."""
    limits = np.cumsum([0, *map(sub, stops, starts)])
    if batch.pieces is not None:
        spans = span_texts(batch, np.array(starts), np.diff(limits))
        return ["".join(pieces) for pieces in spans]
    ids = batch.require_ids().cpu().numpy()
    parts = [ids[a:b] for a, b in zip(starts, stops, strict=True)]
    flat = np.concatenate(parts).tolist()
    texts = decode_ids(flat, batch.tokenizer, starts=limits.tolist(), visible=False)
    return ["".join(texts[a:b]) for a, b in pairwise(limits.tolist())]


def _recorded(batch: Batch) -> dict[tuple[int, int], str]:
    """Return the actions that the file recorded, by sample and round."""
    names = ("sample", "round", "action")
    if not {*names} <= batch.round_columns.keys():
        return {}
    rows = zip(*(batch.round_columns[name].tolist() for name in names), strict=True)
    return {(sample, index): text for sample, index, text in rows if text}


def _size(shots: Sequence[Screenshot], frame: Coordinates) -> Size | None:
    """Return the size of a sample's pictures: to open each takes too long."""
    if not shots or (frame == "original" and isinstance(shots[0], PatchScreenshot)):
        return None
    try:
        return shots[0].seen_size or shots[0].size
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
