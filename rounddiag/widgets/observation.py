"""A stretch that the model read and did not write, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.figures.sources import check_sample
from rounddiag.widgets.context import Context
from rounddiag.widgets.facts import Facts

if TYPE_CHECKING:
    from rounddiag.batch import Batch


def observation(
    batch: Batch, sample: int, start: int, stop: int, facts: Facts | None = None
) -> dict[str, Any]:
    r"""Return a stretch of a sample, token by token.

    Parameters
    ----------
    batch : Batch
    sample : int
    start, stop : int
        Positions in the response; negative in the prompt, whose last token is -1.
    facts : Facts, optional
        Of the batch, kept from one call to the next.

    Returns
    -------
    dict
        `pieces`, a list of str, and `is_image`, an array of uint8.

    Raises
    ------
    FrameError
        If there is no such sample or stretch.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> found = observation(batch, sample=0, start=-2, stop=0)
    >>> found["pieces"], found["is_image"].tolist()
    (['t', '\n'], [0, 0])
    """
    check_sample(sample, batch.num_samples)
    context = Context.of(batch, sample, facts or Facts(batch))
    low, high = -context.num_before, len(context.ids) - context.num_before
    if not low <= start <= stop <= high:
        raise FrameError.build(
            key="start, stop",
            expected=f"positions from {low} to {high}, the lower one first",
            found=f"{start}, {stop}",
            advice="Count from the response's start; the prompt is negative.",
        )
    (found,) = context.pieces([(start, stop)])
    is_image = context.is_image[start - low : stop - low]
    return {"pieces": found, "is_image": is_image.astype(np.uint8)}
