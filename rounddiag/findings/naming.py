"""Naming: from what a mismatch looks like to the probabilities of its causes.

`causes.csv` has a row for each value of each measure of `measures.describe` and a
column for each cause: the logarithm of how often the cause has that value, times the
weight of the measure. A cause's points are the sum over the measures and the prior, of
batches with or without images; the probabilities are in proportion to exp(points).
Measures are not independent, which is what the weights are for. `unknown` has what all
faults have on average.

`python -m tests.faults.fit` writes the table, from what each cause is expected to do
(`tests/faults/expected.csv`, with sources) and from counts on two benches. Its
docstring has the figures of a table fitted on one bench and measured on another.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag._typing import Array

# Causes below this probability count as `unknown`.
_LISTED = 0.03


def rank_causes(looks: Mapping[str, str], *, has_images: bool) -> pd.Series[float]:
    """Return the probability of each cause of what a mismatch looks like.

    Largest first; they sum to 1, with `unknown` among them.
    """
    import pandas as pd

    names, table = read_table()
    points = table["prior", "images" if has_images else "no images"].copy()
    for measure, value in looks.items():
        points += table.get((measure, value), 0.0)
    chance = np.exp(points - points.max())
    found = pd.Series(chance / chance.sum(), index=list(names), name="probability")
    found = found.where((found >= _LISTED) | (found.index == "unknown"), 0.0)
    found["unknown"] += 1 - found.sum()
    return found[found > 0].sort_values(ascending=False, kind="stable")


@cache
def read_table() -> tuple[tuple[str, ...], dict[tuple[str, str], Array]]:
    """Return the causes, and their points for each value of each measure."""
    text = files("rounddiag.findings").joinpath("causes.csv").read_text("utf-8")
    head, *rows = csv.reader(text.splitlines())
    points = {(row[0], row[1]): np.array(row[2:], dtype=float) for row in rows}
    return tuple(head[2:]), points
