"""Legs of the importance ratio: engine gap, staleness, update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.divergence import clamp_log_ratio, k3
from rounddiag.core.loss_ratio import is_bypassed
from rounddiag.core.measured import Measured, number_values
from rounddiag.core.versions import LAG_COLUMNS, Versions
from rounddiag.errors import BatchError

if TYPE_CHECKING:
    import pandas as pd

ENGINE_GAP, STALENESS, UPDATE = "engine gap", "staleness", "update"
# Where no score has the sampler's weights in the training engine; where no score has
# the weights before the update either, as in verl's bypass mode.
GAP_AND_STALENESS = "engine gap and staleness"
GAP_TO_UPDATE = "engine gap, staleness and update"
# Of a sampler whose weights are newer than the trainer's.
GAP_AND_LEAD = "engine gap and newer weights"
STALENESS_AND_UPDATE = "staleness and update"
WHOLE = "whole"


def legs(
    batch: Batch, *, by: str | None = "round", behaviour: str | None = None
) -> pd.DataFrame:
    r"""Return the factors of the ratio that a trainer uses, per round.

    .. math:: \frac{\pi_{current}}{\pi_{rollout}}
        = \underbrace{\frac{\pi_{behaviour}}{\pi_{rollout}}}_{engine gap}
        \cdot \underbrace{\frac{\pi_{old}}{\pi_{behaviour}}}_{staleness}
        \cdot \underbrace{\frac{\pi_{current}}{\pi_{old}}}_{update}

    Parameters
    ----------
    batch : Batch
    by : str, optional
        A column of tokens, rounds or samples, such as `weight_version` or a rank; None
        for the step as a whole. Or `lag`: how many versions the weights that sampled
        are behind the trainer's, per token or round where versions are, negative where
        they are ahead; `oldest_lag` and `newest_lag` are those of the sample, which can
        have several. The trainer's version is the newest of the batch, unless the file
        has `trainer_version` or the step lies among the versions.
    behaviour : str, optional
        The score that the training engine gives with the sampler's weights, such as one
        of `rescore` with their checkpoint. Without it, engine gap and staleness are one
        leg, but at lag 0, or if all weights are of the batch's own step. Where `old` is
        absent or the rollout itself (bypass), the update is in that leg too.

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
    >>> rows = rd.legs(rd.load("sample_data/stale.parquet"), by="lag")
    >>> rows[rows["lag"] == 0]["leg"].tolist()
    ['engine gap', 'whole']
    """
    import pandas as pd

    parts = _log_ratios(batch, behaviour)
    whole: Array = np.add.reduce([*parts.values()])
    finite = np.isfinite(whole)
    code, values = np.zeros(int(finite.sum()), dtype=np.int64), np.zeros(1)
    if by is not None:
        code, values = number_values(by, _column(batch, by)[finite])
    parts[WHOLE] = whole
    rows = {
        name: _measure(log_ratio[finite], code, len(values))
        for name, log_ratio in parts.items()
    }
    # The legs of a value stand together, values in order.
    place = np.tile(np.arange(len(values)), len(rows)).argsort(kind="stable")
    frame = pd.concat(rows, names=["leg"]).reset_index("leg")
    if by is not None:
        frame.insert(0, by, np.tile(np.asarray(values), len(rows)))
    frame = frame.iloc[place].reset_index(drop=True)
    if by in ("lag", "oldest_lag") and _known_lag(batch) is not None:
        is_joint = frame["leg"] == GAP_AND_STALENESS
        frame.loc[is_joint & (frame[by] == 0), "leg"] = ENGINE_GAP
        frame.loc[is_joint & (frame[by] < 0), "leg"] = GAP_AND_LEAD
    frame.attrs["num_nonfinite"] = int((~finite).sum())
    return frame


def _log_ratios(batch: Batch, behaviour: str | None) -> dict[str, Array]:
    def between(a: str, b: str) -> Array:
        return Measured.of(batch, a, b).diff.astype(np.float64)

    has_bypass = is_bypassed(batch)
    if has_bypass and behaviour is None:
        return {GAP_TO_UPDATE: between("current", "rollout")}
    if behaviour is not None:
        legs = {ENGINE_GAP: between(behaviour, "rollout")}
        if has_bypass:
            return {**legs, STALENESS_AND_UPDATE: between("current", behaviour)}
        legs[STALENESS] = between("old", behaviour)
    else:
        lag = _known_lag(batch)
        is_own = lag is not None and not lag.any()
        legs = {ENGINE_GAP if is_own else GAP_AND_STALENESS: between("old", "rollout")}
    if "current" in batch.scores:
        legs[UPDATE] = between("current", "old")
    return legs


def _column(batch: Batch, by: str) -> Array:
    if by in LAG_COLUMNS:
        versions = Versions.of(batch)
        if versions is None:
            raise BatchError.build(
                key="by",
                expected="`weight_version` as a column of tokens, rounds or samples",
                found="a batch without it, or with versions that are no numbers",
                advice="Save it with the Recorder, or choose another column.",
            )
        return versions.lag(by)
    return Measured.of(batch).tokens(by)[by].to_numpy()


def _known_lag(batch: Batch) -> Array | None:
    """Return the lag behind the trainer; None where its version is not known."""
    versions = Versions.of(batch)
    return versions.lag() if versions and versions.is_trainer_known else None


def _measure(log_ratio: Array, code: Array, num_values: int) -> pd.DataFrame:
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
