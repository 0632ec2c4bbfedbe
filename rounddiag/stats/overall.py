"""A whole batch in two numbers: does its mismatch lean, and how much is far off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# A |diff| beyond 1 nat is no rounding of either engine.
_FAR = 1.0


@dataclass(frozen=True, kw_only=True)
class Overall:
    """The mismatch of all tokens together, as text one line.

    Attributes
    ----------
    mean_diff : float
        In nats; far from 0 beside the mean |diff| where one engine likes tokens more.
    share_far : float
        Of tokens whose |diff| is above 1 nat.
    """

    mean_diff: float
    share_far: float

    def __str__(self) -> str:
        share = f"{100 * self.share_far:.3g} %"
        return f"mean diff {self.mean_diff:+.3g} nat, |diff| > 1 in {share}"


def overall(diff: Array) -> Overall | None:
    """Sum up the diffs of tokens; what is not finite is left out.

    Parameters
    ----------
    diff : ndarray of float
        As in a token frame, in nats.

    Returns
    -------
    Overall or None
        None where nothing is finite.

    Examples
    --------
    >>> print(overall(np.array([0.5, -2.0, 0.0, np.nan])))
    mean diff -0.5 nat, |diff| > 1 in 33.3 %
    """
    finite = diff[np.isfinite(diff)].astype(np.float64)
    if not len(finite):
        return None
    return Overall(
        mean_diff=float(finite.mean()),
        share_far=float(np.mean(np.abs(finite) > _FAR)),
    )
