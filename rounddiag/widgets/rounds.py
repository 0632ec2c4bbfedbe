"""The rounds of one sample for the page: numbers, action and screenshot of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.coloring import NOT_FINITE, levels
from rounddiag.widgets.doing import actions_of
from rounddiag.widgets.pictures import last_seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.batch import Batch

_MEANS = ("mean_abs_diff", "mean_diff", "max_abs_diff", "k3")


def described(
    one: Batch, rounds: pd.DataFrame, tokens: Mapping[str, Any]
) -> list[dict[Any, Any]]:
    """Describe each round of a batch of one sample, as `trajectory_of` has them.

    Parameters
    ----------
    one : Batch
    rounds : DataFrame
        Its round frame.
    tokens : mapping of str to sequence, each of num_tokens values
        `piece` and `is_special` of its tokens.

    Returns
    -------
    list of dict
    """
    stops = rounds["num_tokens"].cumsum().to_numpy()
    strength = np.copysign(*(rounds[name].to_numpy() for name in _MEANS[:2]))
    level = levels(strength)
    level[level == NOT_FINITE] = 0
    found = rounds[["round", "start", "num_tokens", "num_nonfinite", *_MEANS]].assign(
        first=stops - rounds["num_tokens"],
        level=level,
        text_end=tokens["is_special"][stops - 1].astype(bool),
    )
    shots = () if one.images is None else one.images[0]
    seen = last_seen(shots, len(rounds))
    texts = [
        "".join(tokens["piece"][first:stop])
        for first, stop in zip(found["first"], stops, strict=True)
    ]
    actions = actions_of(texts, [None if i is None else shots[i] for i in seen])
    rows = found.to_dict("records")
    return [
        {**row, "action": action, "screenshot": shot}
        for row, action, shot in zip(rows, actions, seen, strict=True)
    ]
