"""Naming: from the shape of a mismatch to the probabilities of its causes.

A detector recognises a shape, such as |diff| that fades from the prompt on. Several
causes have it. `causes.csv` says how often each had: one row for a shape, with or
without images, and a cause. It is a weighted mean of two benches: the confusions
counted on 204 faults of models that no detector was tuned on (weight 0.65, two cases
added to the cause that names the shape), and the share that was right on `tests/faults`
(0.88, and 0.7 for shapes of the level alone). Where they disagree, a probability drops.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.findings.finding import Evidence
    from rounddiag.findings.view import View

# For a shape that the table lacks: the probability of the cause it is named for.
_UNSEEN = 0.5


def rank_causes(view: View, evidence: Evidence) -> pd.Series[float]:
    """Return the probability of each cause of some evidence, largest first.

    They sum to 1, with `unknown` among them.
    """
    import pandas as pd

    table = read_table()
    images = "yes" if view.has_images else "no"
    known = table.get((evidence.cause, images))
    if known is None:
        known = table.get((evidence.cause, "no" if view.has_images else "yes"))
    values = dict(known or {evidence.cause: _UNSEEN})
    if not view.has_images:
        values = {k: v for k, v in values.items() if k not in _OF_IMAGES}
    rest = max(1.0 - sum(values.values()), 0.0)
    values["unknown"] = values.get("unknown", 0.0) + rest
    found = pd.Series(values, name="probability")
    return found.sort_values(ascending=False, kind="stable")


_OF_IMAGES = frozenset(
    {"dropped_image", "wrong_image", "image_window", "image_expansion"}
)


@cache
def read_table() -> dict[tuple[str, str], dict[str, float]]:
    """Return the probabilities of causes for each shape, with and without images."""
    text = files("rounddiag.findings").joinpath("causes.csv").read_text("utf-8")
    table: dict[tuple[str, str], dict[str, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        causes = table.setdefault((row["shape"], row["images"]), {})
        causes[row["cause"]] = float(row["probability"])
    return table
