"""Mismatch by token role: thought, action, coordinates, syntax."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.core import token_roles
from rounddiag.core.divergence import get_measure
from rounddiag.stats.cells import cell_means
from rounddiag.stats.grouping import split_by
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.text.role_tagging import Tagger

_FIRST, LAST = "first of a round", "last of a round"


def role_means(
    data: Data,
    *,
    tagger: Tagger | None = None,
    metric: str = "abs_diff",
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    """Return mean |diff|, or another metric, by token role, with intervals.

    Parameters
    ----------
    data : Batch or path-like
        With a tokenizer.
    tagger : callable, optional
        Returns (start, stop, role) spans of a round's text;
        `rounddiag.text.tag_actions` by default.
    by : str, optional
        A column of samples or rounds: a row for each of its values.
    metric, a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per role that a token has, and two more for the first and the last token
        of all rounds: `role`, `overlaps` (True for these two, whose tokens are also
        counted in their roles), `num_samples`, `num_tokens`, `num_nonfinite`, `mean`,
        `ci_low`, `ci_high`, in the unit of the metric, `is_few`; `by` comes after the
        role.

    Examples
    --------
    >>> import rounddiag as rd
    >>> means = role_means(rd.load("sample_data/healthy.parquet"))
    >>> means[["role", "num_tokens"]].iloc[[0, -1]]
                  role  num_tokens
    0          thought        1984
    8  last of a round         256
    """
    data, how = open_measured(data, a, b), get_measure(metric)
    num, values = data.rounds["num_tokens"].to_numpy(), data.values(how)
    roles = token_roles(data.require_batch(), tagger)
    sample = np.repeat(data.rounds["sample"].to_numpy(), num)
    split = None if by is None else split_by(data, by)

    def means(role: Array, names: list[str], at: Array | slice) -> pd.DataFrame:
        cell = role if split is None else split.codes[at] * len(names) + role
        rows = cell_means(values[at], cell, sample[at], data.clusters, measure=how)
        parts, index = np.divmod(rows.pop("cell").to_numpy(), len(names))
        rows.insert(0, "role", np.array(names, dtype=object)[index])
        if split is not None:
            split.insert_into(rows, parts, place=1)
        return rows

    begins = np.cumsum(num) - num
    of_roles = means(roles.codes.astype(np.int64), [*roles.categories], slice(None))
    ends = [
        means(np.zeros_like(at), [name], at)
        for name, at in ((_FIRST, begins), (LAST, begins + num - 1))
    ]
    frame = pd.concat([of_roles, *ends], ignore_index=True)
    frame.insert(
        1 if split is None else 2, "overlaps", np.arange(len(frame)) >= len(of_roles)
    )
    return data.tag(frame)
