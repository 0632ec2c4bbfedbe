"""The screenshots of a sample, small and in full, and the actions taken on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from PIL.Image import Image

from rounddiag.action_grammar import find_calls
from rounddiag.batch import Batch
from rounddiag.core.picture_changes import changed_cells, pictures_of_rounds
from rounddiag.errors import FrameError, RounddiagError
from rounddiag.figures._parts.data import check_sample
from rounddiag.vision import (
    Action,
    PatchScreenshot,
    Screenshot,
    explain_no_action,
    parse_action,
)
from rounddiag.vision.actions import Point, Size
from rounddiag.vision.screenshots import as_jpeg
from rounddiag.wording import printable

_END_TOKENS = re.compile(r"(?:\s*<[|\uff5c][^<>]{1,40}[|\uff5c]>)+\s*$")
_SMALL = 160  # pixels wide
_WIDE = 2560  # pixels: wider pictures are made smaller, as JPEG
_NUM_BYTES = 4 << 20  # of a PNG at most; larger ones become JPEG


def thumbnails(
    batch: Batch, sample: int, indices: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Return the screenshots of a sample, scaled down."""
    shots = dict(enumerate(_shots(batch, sample)))
    wanted = shots if indices is None else [at for at in indices if at in shots]
    return [_thumbnail(index, shots[index]) for index in wanted]


def full_screenshot(batch: Batch, sample: int, index: int) -> dict[str, Any]:
    """Return one screenshot in full, at most 2560 pixels wide."""
    shots = _shots(batch, sample)
    if not 0 <= index < len(shots):
        raise FrameError.build(
            key="index",
            expected=f"a screenshot below {len(shots)} of sample {sample}",
            found=str(index),
            advice="Count the sample's screenshots from 0.",
        )
    return _encode(shots[index], _full) | changes_of(batch, sample, [index])[index]


def changes_of(
    batch: Batch, sample: int, indices: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Return what changed in screenshots: those of an action that led there have cells.

    `changes` has the number of columns, and how much each cell changed, row by row.
    """
    shots = dict(enumerate(_shots(batch, sample)))
    pairs = {id(pair[1]): pair for pair in pictures_of_rounds(batch[sample])}
    at = [index for index in indices if id(shots[index]) in pairs]
    cells = changed_cells(pairs[id(shots[index])] for index in at)
    changes = {
        index: {"changes": {"columns": sizes.shape[1], "sizes": sizes.ravel()}}
        for index, sizes in zip(at, cells, strict=True)
        if sizes is not None
    }
    return {index: changes.get(index, {}) for index in indices}


def _shots(batch: Batch, sample: int) -> tuple[Screenshot, ...]:
    check_sample(sample, batch.num_samples)
    return () if batch.images is None else batch.images[sample]


def _thumbnail(index: int, shot: Screenshot) -> dict[str, Any]:
    place = {"index": index, "round": shot.round, "position": shot.position}
    return place | _encode(
        shot, lambda _, full: {"jpeg": as_jpeg(full, (_SMALL, full.height))}
    )


def _encode(
    shot: Screenshot, encoder: Callable[[Screenshot, Image], dict[str, Any]]
) -> dict[str, Any]:
    try:
        full = shot.image()
        return {"width": full.width, "height": full.height, **encoder(shot, full)}
    except Exception as error:  # noqa: BLE001 any kind of picture, broken in any way
        return {"error": printable(error)}


def _full(shot: Screenshot, full: Image) -> dict[str, Any]:
    is_lossless = full.format in (None, "PNG")
    data = shot.png() if is_lossless and full.width <= _WIDE else b""
    if 0 < len(data) <= _NUM_BYTES:
        return {"mime": "image/png", "bytes": data}
    return {"mime": "image/jpeg", "bytes": as_jpeg(full, (_WIDE, full.height))}


_MAX_LABEL = 40  # characters that fit under a thumbnail
_MAX_TEXT = 400  # characters of typed text that are sent, and of what is no action
# What numbers of an action count, as the page names it; both kinds of pixels are of the
# one picture whose size is known.
_FRAMES = {
    "original": "pixels",
    "resized": "pixels",
    "unit": "unit",
    "thousand": "thousand",
}


def describe_actions(
    texts: Sequence[str],
    shots: Sequence[Screenshot | None],
    recorded: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Parse the action of each round, and say why a text has none.

    Where a text has none, the action that the file recorded of the round is parsed.
    """
    recorded = recorded or [""] * len(texts)
    parsed = {text: parse_action(text) for text in dict.fromkeys([*texts, *recorded])}
    return [
        _describe(parsed[text], text, shot)
        if parsed[text].kind != "unknown" or not own
        else _describe(parsed[own], text, shot, own)
        for text, shot, own in zip(texts, shots, recorded, strict=True)
    ]


def _describe(
    action: Action, text: str, shot: Screenshot | None, recorded: str = ""
) -> dict[str, Any]:
    written, why = ("", "")
    if action.kind == "unknown" and not recorded:
        written, why = explain_no_action(_END_TOKENS.sub("", text))
    points = {"point": action.point, "end_point": action.end_point}
    return {
        "kind": action.kind,
        "label": action_label(action, recorded=recorded),
        "line": action_label(action, _MAX_TEXT, recorded),
        "point": action.point and _share(action, action.on, shot),
        "end_point": action.end_point and _share(action, action.end_on, shot),
        # As written, to be read in another frame.
        "written_points": points if any(points.values()) else None,
        "frame": action.coordinates and _FRAMES[action.coordinates],
        "size": _coordinate_size(action, shot) if any(points.values()) else None,
        "direction": action.direction,
        "text": action.text and action.text[:_MAX_TEXT],
        "written": written[:_MAX_TEXT],
        "why": why,
    }


def action_label(
    action: Action, max_length: int = _MAX_LABEL, recorded: str = ""
) -> str:
    """Return a label of an action, on one line; as `recorded` if no grammar has it."""
    if action.kind == "unknown" and not recorded:
        return "no action"
    # `DONE` is finished, and `WAIT` waits.
    variant = None if action.variant in ("done", action.kind) else action.variant
    words = [action.kind.replace("_", " "), variant]
    if action.kind == "unknown":
        words = [_words_of(recorded)]
    if action.kind == "click":  # "right click", but "finished success"
        words.reverse()
    words += [action.direction, "+".join(action.keys), _where(action)]
    if action.kind == "wait" and action.amount is not None:
        words.append(f"{action.amount:g} s")
    if action.text:
        words.append(f'"{action.text}"')
    label = printable(" ".join(filter(None, words))[: max_length + 1])
    return label if len(label) <= max_length else f"{label[: max_length - 1]}…"


def _words_of(recorded: str) -> str:
    """Return what a call with an `action` does, such as a screenshot, or the call."""
    calls = [*find_calls(recorded)]
    if len(calls) == 1 and isinstance(name := calls[0].kwargs.get("action"), str):
        rest = [value for key, value in calls[0].kwargs.items() if key != "action"]
        return " ".join([name.replace("_", " "), *map(str, rest)])
    return " ".join(recorded.split())


def _where(action: Action) -> str:
    points = [point for point in (action.point, action.end_point) if point is not None]
    return " to ".join(f"({x:.6g}, {y:.6g})" for x, y in points)


# Coordinates that are relative to the screenshot's size, whatever that is.
_RELATIVE = ("unit", "thousand")


def _share(
    action: Action, on: Callable[[Size], Point | None], shot: Screenshot | None
) -> Point | None:
    size = (1, 1) if action.coordinates in _RELATIVE else _coordinate_size(action, shot)
    point = on(size) if size and min(size) > 0 else None
    if size is None or point is None:
        return None
    x, y = point[0] / size[0], point[1] / size[1]
    return (x, y) if 0 <= x <= 1 and 0 <= y <= 1 else None


def _coordinate_size(action: Action, shot: Screenshot | None) -> Size | None:
    is_rebuilt = isinstance(shot, PatchScreenshot)  # the screen had another size
    if shot is None or (is_rebuilt and action.coordinates == "original"):
        return None
    try:
        return shot.seen_size or shot.size
    except RounddiagError:
        return None
