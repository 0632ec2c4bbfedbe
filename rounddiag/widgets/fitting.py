"""Whether what was chosen can be chosen in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.widgets.state import State


def check_fit(state: State, options: Mapping[str, list[Any]], num_samples: int) -> None:
    """Raise for what a batch does not offer; it could not be drawn.

    Parameters
    ----------
    state : State
    options : mapping
        As `head.options_of`.
    num_samples : int

    Raises
    ------
    FrameError
    """
    for key in ("order", "axis", "by"):
        known = [None, *options[key]] if key == "by" else options[key]
        if getattr(state, key) not in known:
            raise _unfit(key, f"one of {known}", getattr(state, key))
    if state.cells is not None:
        samples = state.cells.samples
        if not samples or not all(0 <= sample < num_samples for sample in samples):
            raise _unfit("cells", f"samples from 0 to {num_samples - 1}", samples)


def _unfit(key: str, expected: str, found: object) -> FrameError:
    return FrameError.build(
        key=key,
        expected=expected,
        found=f"{found!r:.80}",
        advice="Leave it out, or choose what the batch has.",
    )
