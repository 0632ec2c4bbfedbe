"""Legs of the importance ratio: engine gap, staleness, update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core.divergence import clamp_log_ratio, k3
from rounddiag.core.measured import Measured, number_values
from rounddiag.errors import BatchError

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch

ENGINE_GAP, STALENESS, UPDATE = "engine gap", "staleness", "update"
# Where no score has the sampler's weights in the training engine.
GAP_AND_STALENESS = "engine gap and staleness"
WHOLE = "whole"


def legs(
    batch: Batch, *, by: str = "round", behaviour: str | None = None
) -> pd.DataFrame:
    r"""Return the factors of the ratio that a trainer uses, per round.

    .. math:: \frac{\pi_{current}}{\pi_{rollout}}
        = \underbrace{\frac{\pi_{behaviour}}{\pi_{rollout}}}_{engine gap}
        \cdot \underbrace{\frac{\pi_{old}}{\pi_{behaviour}}}_{staleness}
        \cdot \underbrace{\frac{\pi_{current}}{\pi_{old}}}_{update}

    Parameters
    ----------
    batch : Batch
    by : str
        A column of tokens, rounds or samples, such as `weight_version` or a rank, or
        `lag`: steps between the newest weights of the batch and those that sampled.
    behaviour : str, optional
        The score that the training engine gives with the sampler's weights, such as one
        of `rescore` with their checkpoint. Without it, engine gap and staleness are one
        leg, unless all weights are the newest of the batch.

    Returns
    -------
    DataFrame
        A row per value of `by` and leg, and the leg `whole`: `num_tokens`;
        `mean_log_ratio`, which adds up over legs, `mean_abs_log_ratio` and `k3`, in
        nats; `effective_sample_size`, :math:`(\sum \rho)^2 / (n \sum \rho^2)`, 0 to 1.
        Tokens of which a log-prob is not finite are left out, and counted in
        `attrs["num_nonfinite"]`.

    Notes
    -----
    Names as verl's decoupled mode and "Missing Old Logits" (arXiv 2605.12070) have
    them. A log ratio is clamped to 20 nats before its exponential.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rows = rd.legs(rd.load("sample_data/stale.parquet"))
    >>> rows["leg"].unique().tolist()
    ['engine gap and staleness', 'whole']
    """
    import pandas as pd

    parts = _log_ratios(batch, behaviour)
    whole: Array = np.add.reduce([*parts.values()])
    finite = np.isfinite(whole)
    column = _column(batch, by)[finite]
    code, values = number_values(by, column)
    whole_and_parts = {**parts, WHOLE: whole}
    rows = [
        _measure(log_ratio[finite], code, len(values)).assign(leg=name)
        for name, log_ratio in whole_and_parts.items()
    ]
    # The legs of a value stand together, values in order.
    place = np.tile(np.arange(len(values)), len(rows)).argsort(kind="stable")
    frame = pd.concat(rows, ignore_index=True)
    frame.insert(0, by, np.tile(np.asarray(values), len(rows)))
    frame.insert(1, "leg", frame.pop("leg"))
    frame = frame.iloc[place].reset_index(drop=True)
    frame.attrs["num_nonfinite"] = int((~finite).sum())
    return frame


def _log_ratios(batch: Batch, behaviour: str | None) -> dict[str, Array]:
    """Return the log ratio of each leg that the batch has, one per generated token."""

    def between(a: str, b: str) -> Array:
        return Measured.of(batch, a, b).diff.astype(np.float64)

    if behaviour is not None:
        found = {
            ENGINE_GAP: between(behaviour, "rollout"),
            STALENESS: between("old", behaviour),
        }
    else:
        lag = _lag(batch)
        is_new = lag is not None and not (lag != 0).any()
        found = {ENGINE_GAP if is_new else GAP_AND_STALENESS: between("old", "rollout")}
    if "current" in batch.scores:
        found[UPDATE] = between("current", "old")
    return found


def _column(batch: Batch, by: str) -> Array:
    """Return a column with one value per generated token."""
    if by == "lag":
        lag = _lag(batch)
        if lag is None:
            raise BatchError.build(
                key="by",
                expected="`weight_version` in `round_columns` or `sample_columns`",
                found="a batch without it, or with versions that are no numbers",
                advice="Save it with the Recorder, or choose another column.",
            )
        return lag
    column: Array = Measured.of(batch).tokens(by)[by].to_numpy()
    return column


def _lag(batch: Batch) -> Array | None:
    """Return how many steps older than the newest each token's weights are."""
    known = {*batch.round_columns, *batch.sample_columns}
    names = ("weight_version", "min_weight_version", "min_global_steps")
    name = next((one for one in names if one in known), None)
    if name is None:
        return None
    import pandas as pd

    column = Measured.of(batch).tokens(name)[name]
    version = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(version).all():
        return None
    newest = np.nanmax(version)
    lag: Array = newest - version
    return lag


def _measure(log_ratio: Array, code: Array, num_values: int) -> pd.DataFrame:
    """Return a row of means for each value of a column."""
    import pandas as pd
    import torch

    def add(values: Array) -> Array:
        return np.bincount(code, weights=values, minlength=num_values)

    num = np.bincount(code, minlength=num_values)
    exact = torch.from_numpy(log_ratio)
    ratio = clamp_log_ratio(exact).exp().numpy()
    return pd.DataFrame(
        {
            "num_tokens": num,
            "mean_log_ratio": add(log_ratio) / num,
            "mean_abs_log_ratio": add(np.abs(log_ratio)) / num,
            "k3": add(k3(exact).numpy()) / num,
            "effective_sample_size": add(ratio) ** 2 / (num * add(ratio**2)),
        }
    )
