"""The tokens on which both engines differ most, as points that say who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.figures.clouds import NUM_WORST
from rounddiag.figures.labels import hover_text
from rounddiag.stats.agreement import farthest
from rounddiag.text import pieces

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.figures.theme import Theme

    Array = np.ndarray[Any, Any]

NUMBERS = ["sample", "round", "token", "old", "rollout", "difference"]
HOVER = (
    "sample %{customdata[0]}, round %{customdata[1]}, token %{customdata[2]}"
    "<br>old %{customdata[3]:.3g}, rollout %{customdata[4]:.3g}"
    "<br>difference %{customdata[5]:.3g}<extra></extra>"
)
# Tokens on either side with which one may share a character.
_NEIGHBOURS = 8


def token_marks(
    data: Batch | pd.DataFrame, tokens: pd.DataFrame, pairs: pd.DataFrame, look: Theme
) -> pd.DataFrame:
    """Choose the worst tokens of each panel.

    Parameters
    ----------
    data : Batch or DataFrame
        Where their text is, if there is any.
    tokens, pairs : DataFrame
        As `sources.pairs_of` and `stats.token_pairs` give them, and each one's
        `panel`.
    look : Theme

    Returns
    -------
    DataFrame
        With `panel`, `x`, `y`, `color`, the columns `NUMBERS`, and `text` if there
        is any.
    """
    difference = (pairs["old"] - pairs["rollout"]).to_numpy()
    rows = farthest(np.abs(difference), pairs["panel"].to_numpy(), NUM_WORST)
    keys = tokens[["sample", "round", "token"]].iloc[rows].reset_index(drop=True)
    marks = pairs.iloc[rows].reset_index(drop=True).join(keys)
    marks["difference"] = difference[rows]
    marks["color"] = np.where(difference[rows] > 0, look.more, look.less)
    if isinstance(data, Batch) and data.is_redacted:
        return marks
    if isinstance(data, Batch):
        texts = _decoded(data.tokenizer, tokens, rows)
    elif "text" in data:
        texts = data["text"].iloc[rows].tolist()
    else:
        return marks
    return marks.assign(text=[hover_text(text) for text in texts])


def _decoded(tokenizer: object, tokens: pd.DataFrame, rows: Array) -> list[str]:
    """Decode a few tokens, each among its neighbours in the round."""
    token, ids = tokens["token"].to_numpy(), tokens["token_id"].to_numpy()
    texts = []
    for row in rows.tolist():
        first = row - min(int(token[row]), _NEIGHBOURS)
        around = slice(first, row + _NEIGHBOURS)
        starts = np.flatnonzero(token[around] == 0)
        texts.append(pieces(ids[around], tokenizer, starts=starts)[row - first])
    return texts
