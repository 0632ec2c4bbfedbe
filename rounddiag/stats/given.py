"""What a statistic is given: a batch, of which a fair part counts, or a frame."""

from __future__ import annotations

import pandas as pd

from rounddiag.batch import Batch
from rounddiag.errors import FrameError
from rounddiag.stats.captured import fair_part


def fair(data: Batch | pd.DataFrame, kind: str = "token") -> Batch | pd.DataFrame:
    """Return the fair part of a batch, and a frame as it is.

    Raises
    ------
    FrameError
        If it is neither; `kind` is what the frame should be of.

    Examples
    --------
    >>> fair(pd.DataFrame({"diff": [0.5]}))
       diff
    0   0.5
    """
    if isinstance(data, Batch):
        return fair_part(data)
    need_frame(data, kind)
    return data


def need_frame(data: object, kind: str = "token") -> None:
    """Raise a FrameError for what is no frame, where it is no batch either."""
    if not isinstance(data, pd.DataFrame):
        raise FrameError.build(
            expected=f"a Batch or a {kind} frame",
            found=f"a {type(data).__name__}",
            advice="Open a file with `rounddiag.load(path)` first.",
        )
