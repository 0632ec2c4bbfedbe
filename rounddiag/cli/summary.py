"""What `rounddiag summary FILE` prints: the rounds, the worst, and the sources."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from rounddiag.stats import FEW_SAMPLES, round_summary, worst_round

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.batch import Batch

_COLUMNS = [
    *("round", "num_samples", "num_tokens", "mean_abs_diff"),
    *("ci_low", "ci_high", "p99", "max"),
]


def describe(batch: Batch) -> str:
    """Tell the mismatch of every round and where the numbers come from.

    Parameters
    ----------
    batch : Batch
        A loaded batch.

    Returns
    -------
    str
        Some lines: counts, a table with one row per round, the worst round, sources.
    """
    summary = round_summary(batch)
    num_nonfinite = int(summary["num_nonfinite"].sum())
    table = summary[_COLUMNS].to_string(
        index=False, float_format="{:.4g}".format, na_rep="-"
    )
    parts = [_counts(batch), table, _worst(summary), _sources(batch, num_nonfinite)]
    return "\n\n".join(parts)


def _counts(batch: Batch) -> str:
    unit = "sample" if batch.group_ids is None else "group"
    return (
        f"{_many(batch.num_samples, 'sample')}, {_many(batch.num_rounds, 'round')}, "
        f"{_many(batch.num_tokens, 'generated token')}\n"
        f"diff = old_log_prob - rollout_log_prob, in nat; 95 % intervals by {unit}"
    )


def _worst(summary: pd.DataFrame) -> str:
    worst = worst_round(summary)
    if worst is None:
        return "worst round: none, no generated token has a finite diff"
    interval = f"95 % interval {worst['ci_low']:.4g} to {worst['ci_high']:.4g}"
    if isnan(worst["ci_low"]):
        interval = "too few independent samples for an interval"
    some_few = (summary["num_samples"] < FEW_SAMPLES).any()
    compared = some_few and worst["num_samples"] >= FEW_SAMPLES
    note = (
        f"\nof the rounds that {FEW_SAMPLES} samples or more reach" if compared else ""
    )
    return (
        f"worst round: {worst['round']:.0f}, mean |diff| {worst['mean_abs_diff']:.4g} "
        f"nat ({interval}; {_many(worst['num_samples'], 'sample')}, "
        f"{_many(worst['num_tokens'], 'token')}){note}"
    )


def _sources(batch: Batch, num_nonfinite: int) -> str:
    told = {
        "mask": batch.meta.get("mask_source"),
        "old log-probs": batch.meta.get("old_log_probs_source"),
        "sampling": _pairs(batch.meta.get("sampling") or {}),
    }
    lines = [
        f"{what}: {_plain(value or 'not recorded')}" for what, value in told.items()
    ]
    if batch.meta.get("rounds"):
        lines.append(f"rounds: {_plain(batch.meta['rounds'])}")
    num_dropped = batch.meta.get("num_dropped_rows", 0)
    lines.append(f"padding rows left out: {num_dropped}")
    lines.append(f"tokens left out, diff not finite: {num_nonfinite}")
    return "\n".join(lines)


def _many(number: float, what: str) -> str:
    return f"{number:.0f} {what}{'' if number == 1 else 's'}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _plain(value: object) -> str:
    """Show text from a file without letting it command the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
