"""What `rounddiag summary FILE` prints: the rounds, the worst, and the sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.stats import round_summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.batch import Batch

_COLUMNS = [
    *("round", "num_samples", "num_tokens", "mean_abs_diff"),
    *("ci_low", "ci_high", "p99", "max_abs_diff"),
]
_FEW_SAMPLES = 10


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
    table = summary[_COLUMNS].to_string(index=False, float_format="{:.4g}".format)
    parts = [_counts(batch), table, _worst(summary), _sources(batch, num_nonfinite)]
    return "\n\n".join(parts)


def _counts(batch: Batch) -> str:
    return (
        f"{batch.num_samples} samples, {batch.num_rounds} rounds, {batch.num_tokens} "
        "generated tokens\n"
        "diff = old_log_prob - rollout_log_prob, in nat; 95 % intervals"
    )


def _worst(summary: pd.DataFrame) -> str:
    means = summary["mean_abs_diff"]
    if means.isna().all():
        return "worst round: none, no generated token has a finite diff"
    worst = summary.iloc[int(means.argmax())]
    few = worst["num_samples"] < _FEW_SAMPLES
    return (
        f"worst round: {worst['round']:.0f}, mean |diff| {worst['mean_abs_diff']:.4g} "
        f"(95 % interval {worst['ci_low']:.4g} to {worst['ci_high']:.4g}) over "
        f"{worst['num_samples']:.0f} samples and {worst['num_tokens']:.0f} tokens"
        + ("; few samples, so take it with care" if few else "")
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


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _plain(value: object) -> str:
    """Show text from a file without letting it command the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
