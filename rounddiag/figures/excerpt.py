"""What is shown of a text that is too long for a page: its worst rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]


def excerpt(tokens: pd.DataFrame, max_tokens: int) -> pd.DataFrame:
    """Choose the rounds with the largest mean |diff| that hold up to so many tokens.

    Parameters
    ----------
    tokens : DataFrame
        Of one sample, with the columns round and diff, in order of position.
    max_tokens : int

    Returns
    -------
    DataFrame
        All of them where they are not more; else those of whole rounds, in order. Of a
        worst round that is longer by itself, its first tokens.

    Examples
    --------
    >>> import pandas as pd
    >>> tokens = pd.DataFrame({"round": [0, 0, 1, 2], "diff": [0.5, 0.0, -1.0, 0.3]})
    >>> excerpt(tokens, 3)["round"].tolist()
    [1, 2]
    """
    if len(tokens) <= max_tokens:
        return tokens
    rounds = tokens["round"].to_numpy()
    worst = _worst_first(tokens)
    sizes = np.bincount(rounds)[worst]
    num = max(1, int((np.cumsum(sizes) <= max_tokens).sum()))
    return tokens[np.isin(rounds, worst[:num])].iloc[:max_tokens]


def _worst_first(tokens: pd.DataFrame) -> Array:
    """Return the rounds; those without a finite diff, and the later of equals, last."""
    size = tokens["diff"].abs()
    means = size[np.isfinite(size)].groupby(tokens["round"]).mean()
    every = means.reindex(tokens["round"].unique())
    order = every.sort_values(ascending=False, kind="stable", na_position="last")
    rounds: Array = order.index.to_numpy()
    return rounds
