"""Numbers that a trainer logged, against the same numbers of its saved batch."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rounddiag.batch.given import need_batch
from rounddiag.core.scalars import metrics
from rounddiag.core.variants import variants

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.batch import Batch

# verl computes in float32; where terms cancel, fewer of its digits are left.
_TOLERANCE, _LOOSE = 2e-5, 5e-4
_CANCELLING = ("k3", "chi2", "kl", "diff")
# Differences of means of float32 log-probs are not known below this.
_FLOOR = 1e-7


def reconcile(batch: Batch, logged: Mapping[str, float]) -> pd.DataFrame:
    """Say of each number that a trainer logged whether the batch gives the same.

    Parameters
    ----------
    batch : Batch
    logged : mapping of str to float
        Names, as in `rounddiag.metrics`, and values, as W&B or the console shows them.

    Returns
    -------
    DataFrame
        One row per number: `name`, `logged`, `here` (computed from the batch), `equal`,
        and `reason`: where they differ, the first known variant that gives the logged
        number: another mask, the engines exchanged, log-probabilities against
        probabilities, weight per sample against per token, rows missing. Equal means
        within 2e-5, relative; 5e-4 where verl's float32 cancels.

    Raises
    ------
    BatchError
        If it is no Batch.

    Examples
    --------
    >>> import torch, rounddiag as rd
    >>> batch = rd.Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 6, 7]]),
    ...     response_mask=torch.tensor([[1, 0, 1]]),
    ...     rollout_log_probs=torch.tensor([[-1.0, 0.0, -2.0]]),
    ...     old_log_probs=torch.tensor([[-1.5, -3.0, -2.0]]),
    ... )
    >>> found = rd.reconcile(batch, {"rollout_corr/kl": 0.25, "rollout_corr/ppl": 9})
    >>> found["equal"].tolist()
    [True, False]
    >>> found["reason"].tolist()[1]
    "not a number of this batch; did you mean 'rollout_corr/kl'?"
    """
    import pandas as pd

    need_batch(batch)
    here = metrics(batch)
    others = variants(batch)
    rows = []
    for name, value in logged.items():
        found = here.get(name, math.nan)
        equal = name in here and _equal(name, value, found)
        reason = "" if equal else _reason(name, value, here, others)
        rows.append((name, value, found, equal, reason))
    return pd.DataFrame(rows, columns=["name", "logged", "here", "equal", "reason"])


def _equal(name: str, logged: float, found: float) -> bool:
    if math.isnan(logged) or math.isnan(found):
        return math.isnan(logged) and math.isnan(found)
    tail = name.rsplit("/", 1)[-1]
    loose = any(word in tail for word in _CANCELLING)
    tolerance = _LOOSE if loose else _TOLERANCE
    return math.isclose(logged, found, rel_tol=tolerance, abs_tol=_FLOOR)


def _reason(
    name: str,
    value: float,
    here: Mapping[str, float],
    others: Mapping[str, Mapping[str, float]],
) -> str:
    if name not in here:
        close = get_close_matches(name, here, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"not a number of this batch{hint}"
    for reason, numbers in others.items():
        if name in numbers and _equal(name, value, numbers[name]):
            return reason
    if name.endswith(("token_count", "_max", "total_rounds")) and value > here[name]:
        return "rows missing: the trainer saw more than the file holds"
    return "not explained: check that it is of this step, these rows and this mask"
