"""The mismatch by what tokens are for: thought, action, coordinates, syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.core import round_and_token_frames, token_roles
from rounddiag.stats.captured import fair_part
from rounddiag.stats.cells import cell_means
from rounddiag.stats.clusters import clusters_of

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.text.tagging import Tagger

    Array = np.ndarray[Any, Any]

FIRST, LAST = "first of a round", "last of a round"


def role_means(batch: Batch, *, tagger: Tagger | None = None) -> pd.DataFrame:
    """Return mean |diff| by what tokens are for, with clustered intervals.

    Parameters
    ----------
    batch : Batch
        With a tokenizer. Of a file that holds the worst samples beside drawn ones,
        those drawn count.
    tagger : callable, optional
        From the text of a round to stretches (start, stop, role) of it;
        `rounddiag.text.tag_actions` where left out.

    Returns
    -------
    DataFrame
        One row a role that a token has, and the first and the last token of all rounds
        as two more: `role`, `overlaps` (True for these two, which are counted among
        the roles too), `num_samples`, `num_tokens`, `num_nonfinite`, `mean`,
        `ci_low`, `ci_high`; in nats.

    Raises
    ------
    FrameError
        If the batch has no tokenizer, or was redacted.

    Examples
    --------
    >>> import rounddiag as rd
    >>> found = role_means(rd.load("sample_data/healthy.parquet"))
    >>> found[["role", "num_tokens"]].iloc[[0, -1]]
                  role  num_tokens
    0          thought        2061
    8  last of a round         264
    """
    batch = fair_part(batch)
    roles = token_roles(batch, tagger)
    rounds, tokens = round_and_token_frames(batch)
    size, sample = tokens["diff"].abs().to_numpy(), tokens["sample"].to_numpy()
    cluster = clusters_of(batch)
    num = rounds["num_tokens"].to_numpy()
    begins = np.cumsum(num) - num

    def means(cell: Array, names: list[str], at: Array | slice) -> pd.DataFrame:
        found = cell_means(size[at], cell, sample[at], cluster)
        found.insert(0, "role", np.array(names, dtype=object)[found.pop("cell")])
        return found

    parts = [means(roles.codes, [*roles.categories], slice(None))]
    for name, at in ((FIRST, begins), (LAST, begins + num - 1)):
        parts.append(means(np.zeros_like(at), [name], at))
    found = pd.concat(parts, ignore_index=True)
    found.insert(1, "overlaps", np.arange(len(found)) >= len(parts[0]))
    return found
