"""Which ratio the loss of a batch used, and with which correction, by what it says.

A decoupled trainer weights by old / rollout, of a pass before the update. In a bypass
there is no such pass: `old` is the rollout's, and the loss sees current / rollout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rounddiag.batch import Batch
from rounddiag.core.scores import pair_of
from rounddiag.core.sums import diffs
from rounddiag.schema import CORRECTIONS, Correction, Mask, Pair, Weight

_CURRENT, _OLD = Pair("current", "rollout"), Pair("old", "rollout")


@dataclass(frozen=True)
class LossRatio:
    """A ratio of two scores.

    Attributes
    ----------
    why: What says that the loss used it.
    other: The one that is as possible, where the file does not say which.
    """

    pair: Pair
    why: str
    other: Pair | None = None

    @property
    def name(self) -> str:
        """The ratio, or both that are possible.

        Examples
        --------
        >>> LossRatio(Pair(), "", Pair("current", "rollout")).name
        'old / rollout, or current / rollout'
        """
        pairs = [self.pair, *([self.other] if self.other else [])]
        return ", or ".join(f"{pair.a} / {pair.b}" for pair in pairs)


def find_loss_ratio(batch: Batch) -> LossRatio:
    """Return the ratio that the loss of a batch used.

    Examples
    --------
    >>> import rounddiag as rd
    >>> find_loss_ratio(rd.load("sample_data/healthy.parquet")).name
    'old / rollout'
    """
    setting = correction_settings(batch).get("bypass_mode")
    source = batch.meta.get("old_log_probs_source", "unknown")
    if not (known := pair_of(batch)).is_standard:
        return LossRatio(known, "as asked for")
    if "current" not in batch.scores:
        why = "before the update" if setting is True else f"`old` is {source}"
        return LossRatio(_OLD, why)
    if setting is True or is_bypassed(batch):
        return LossRatio(_CURRENT, "a bypass: no pass before the update")
    if setting is False or source != "unknown":
        return LossRatio(
            _OLD, "decoupled" if setting is False else f"`old` is {source}"
        )
    return LossRatio(_OLD, "the file does not say whether of a bypass", _CURRENT)


def is_bypassed(batch: Batch) -> bool:
    """Return whether `old` is absent or the rollout's, and `current` is not.

    A log-prob that is unknown says nothing.
    """
    if "current" not in batch.scores:
        return False
    if batch.old_log_probs is None:
        return True
    diff = diffs(batch)
    known = diff[~np.isnan(diff)]
    return len(known) > 0 and not known.any()


def bypass_record(batch: Batch) -> str:
    """Return what the file records of a bypass, in which `old` is the rollout's."""
    if correction_settings(batch).get("bypass_mode") is True:
        return "the run recorded `rollout_correction.bypass_mode=True`"
    source = str(batch.meta.get("old_log_probs_source", ""))
    is_copy = re.search("bypass|cop(y|ied)", source, re.IGNORECASE)
    return f"the file says that `old_log_probs` are {source}" if is_copy else ""


def correction_settings(batch: Batch) -> Mapping[str, Any]:
    """Return the settings of verl's `rollout_correction` that a run recorded."""
    facts = batch.meta.get("facts")
    recorded = facts if isinstance(facts, Mapping) else {}
    settings = batch.meta.get("rollout_correction", recorded.get("rollout_correction"))
    return settings if isinstance(settings, Mapping) else {}


def trainers_rule(batch: Batch) -> Correction | None:
    """Return the correction that the run's settings choose; None where unknown.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> trainers_rule(batch) is None
    True
    """
    settings = correction_settings(batch)
    if not {"rollout_is", "rollout_rs", "bypass_mode"} & {*settings}:
        return None
    try:
        rule = _rule_of_verl(settings)
    except (ValueError, KeyError, AttributeError):  # of another version
        return None
    same = (
        preset
        for preset in CORRECTIONS.values()
        if (preset.weight, preset.mask) == (rule.weight, rule.mask)
        and preset.edges == rule.edges
    )
    return next(same, rule)


def _setting(settings: Mapping[str, Any], name: str) -> str:
    """Return a setting that is on; empty where it is off."""
    value = settings.get(name)
    return "" if value in (None, "null", "None") else str(value)


def _rule_of_verl(settings: Mapping[str, Any]) -> Correction:
    weight: tuple[Weight, ...] = ()
    mask: tuple[Mask, ...] = ()
    if settings.get("bypass_mode") is True and settings.get("loss_type") != "reinforce":
        clip = CORRECTIONS["ppo_dual_clip"]  # no weight of its own
        weight, mask = clip.weight, clip.mask
    elif level := _setting(settings, "rollout_is"):
        limits = str(settings.get("rollout_is_threshold", 2.0)).split("_")
        factor = Weight(
            (float(limits[0]) if len(limits) > 1 else 0.0, float(limits[-1])),
            cast("Any", {"token": "token", "sequence": "sum"}[level]),
            outside="drop" if len(limits) > 1 else "clip",
            is_normalised=settings.get("rollout_is_batch_normalize") is True,
        )
        weight = (factor,)
    options = _setting(settings, "rollout_rs").split(",")
    limits = str(settings.get("rollout_rs_threshold")).split(",")
    for index, option in enumerate(name.strip() for name in options if name):
        level, quantity = option.rsplit("_", 1)
        bounds = limits[min(index, len(limits) - 1)].split("_")
        high = float(bounds[-1])
        lowest = 1 / high if quantity == "k1" else 0.0
        low = float(bounds[0]) if len(bounds) > 1 else lowest
        levels = {"token": "token", "seq_sum": "sum", "seq_mean": "mean"}
        reject = Mask(
            (low, high),
            cast("Any", quantity),
            cast("Any", {**levels, "seq_max": "all"}[level]),
            shrinks=True,
        )
        mask = (*mask, reject)
    return Correction("verl", "the settings of this run", weight, mask)
