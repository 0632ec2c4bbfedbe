"""What the agent did in each round, and where on its screenshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.checks.words import printable
from rounddiag.errors import RounddiagError
from rounddiag.vision import PatchScreenshot, parse_action

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rounddiag.vision import Action, Screenshot
    from rounddiag.vision.actions.action import Point, Size

_MAX_LABEL = 40  # characters: what a thumbnail has room for
_MAX_TEXT = 400  # of what was typed, on the screenshot
# What points count in that have no need of a picture.
_SHARES = ("unit", "thousand")


def actions_of(
    texts: Sequence[str], shots: Sequence[Screenshot | None]
) -> list[dict[str, Any]]:
    """Read the action of each round.

    Parameters
    ----------
    texts : sequence of str, one a round
    shots : sequence of Screenshot or None, one a round
        The picture that the model saw last before it wrote.

    Returns
    -------
    list of dict
        `kind`; `label`, short and of one line; `point` and `end_point`, as shares of
        the picture's width and height, None where they are not known or fall outside of
        it; `direction`; `text`, what was typed, at most 400 characters of it.

    Examples
    --------
    >>> (found,) = actions_of(["click(start_box='<point>500 250</point>')"], [None])
    >>> found["label"], found["point"]
    ('click (500, 250)', (0.5, 0.25))
    """
    actions = [parse_action(text) for text in texts]
    return [
        {
            "kind": action.kind,
            "label": label_of(action),
            "point": _share(action, action.on, shot),
            "end_point": _share(action, action.end_on, shot),
            "direction": action.direction,
            "text": action.text and action.text[:_MAX_TEXT],
        }
        for action, shot in zip(actions, shots, strict=True)
    ]


def label_of(action: Action) -> str:
    """Name an action in a few words, on one line.

    Examples
    --------
    >>> label_of(parse_action("scroll(down)")), label_of(parse_action("type('a b')"))
    ('scroll down', 'type "a b"')
    """
    if action.kind == "unknown":
        return "no action found"
    words = [action.kind.replace("_", " "), action.variant]
    if action.kind == "click":  # "right click", but "finished success"
        words.reverse()
    words += [action.direction, "+".join(action.keys), _where(action)]
    if action.kind == "wait" and action.amount is not None:
        words.append(f"{action.amount:g} s")
    if action.text:
        words.append(f'"{action.text}"')
    label = printable(" ".join(filter(None, words))[: _MAX_LABEL + 1])
    return label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"


def _where(action: Action) -> str:
    points = [point for point in (action.point, action.end_point) if point is not None]
    return " to ".join(f"({x:.6g}, {y:.6g})" for x, y in points)


def _share(
    action: Action, on: Callable[[Size], Point | None], shot: Screenshot | None
) -> Point | None:
    """Return a point as shares of the picture."""
    size = (1, 1) if action.coordinates in _SHARES else _counted_in(action, shot)
    found = on(size) if size and min(size) > 0 else None
    if size is None or found is None:
        return None
    x, y = found[0] / size[0], found[1] / size[1]
    return (x, y) if 0 <= x <= 1 and 0 <= y <= 1 else None


def _counted_in(action: Action, shot: Screenshot | None) -> Size | None:
    """Return the size of the picture that an action's pixels are of, if known."""
    is_rebuilt = isinstance(shot, PatchScreenshot)  # the screen had another size
    if shot is None or (is_rebuilt and action.coordinates == "original"):
        return None
    try:
        return shot.seen_size or shot.size
    except RounddiagError:
        return None
