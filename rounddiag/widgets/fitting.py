"""Whether what was chosen can be chosen in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.errors import FrameError
from rounddiag.figures.layers import layers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.widgets.state import State


def check_fit(state: State, options: Mapping[str, Any], num_samples: int) -> None:
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
    for key in ("batch", "heatmap", "order", "axis", "by"):
        known = [None, *options[key]] if key == "by" else options[key]
        found = getattr(state, key)
        _check(key, found, f"one of {known}", is_right=found in known)
    layers_of(state.layers, *options["layers"])
    if state.cells is not None:
        samples = state.cells.samples
        is_there = all(0 <= sample < num_samples for sample in samples)
        expected = f"samples from 0 to {num_samples - 1}"
        _check("cells", samples, expected, is_right=bool(samples) and is_there)


def _check(key: str, value: object, expected: str, *, is_right: bool) -> None:
    if not is_right:
        raise FrameError.build(
            key=key,
            expected=expected,
            found=f"{value!r:.80}",
            advice="Leave it out, or choose what the batch has.",
        )
