"""What `rounddiag summary FILE` prints: failed checks, the rounds, and the sources."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from rounddiag.batch.html import sources
from rounddiag.checks import check
from rounddiag.checks.words import count, printable
from rounddiag.stats import FEW_SAMPLES, few_rows, round_summary, worst_round

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.checks import Checks

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
        Some lines: failed checks, counts, a table with one row per round, the worst
        round, sources, what else was checked.
    """
    found = check(batch)
    summary = round_summary(batch)
    num_nonfinite = int(summary["num_nonfinite"].sum())
    table = summary[_COLUMNS].to_string(
        index=False, float_format="{:.4g}".format, na_rep="-"
    )
    failed = [f"failed check: {one.name}: {one.detail}" for one in found.failed]
    parts = [
        "\n".join(failed),
        *(_counts(batch), table, _worst(summary), _sources(batch, num_nonfinite)),
        _others(found),
    ]
    return "\n\n".join(filter(None, parts))


def _counts(batch: Batch) -> str:
    unit = "sample" if batch.group_ids is None else "group"
    return (
        f"{count(batch.num_samples, 'sample')}, {count(batch.num_rounds, 'round')}, "
        f"{count(batch.num_tokens, 'generated token')}\n"
        f"diff = old_log_prob - rollout_log_prob, in nat; 95 % intervals by {unit}"
    )


def _worst(summary: pd.DataFrame) -> str:
    worst = worst_round(summary)
    if worst is None:
        return "worst round: none, no generated token has a finite diff"
    interval = f"95 % interval {worst['ci_low']:.4g} to {worst['ci_high']:.4g}"
    if isnan(worst["ci_low"]):
        interval = "too few independent samples for an interval"
    is_few = few_rows(summary)
    compared = is_few.any() and not is_few.all()
    note = (
        f"\nof the rounds that {FEW_SAMPLES} samples or more reach" if compared else ""
    )
    return (
        f"worst round: {worst['round']:.0f}, mean |diff| {worst['mean_abs_diff']:.4g} "
        f"nat ({interval}; {count(int(worst['num_samples']), 'sample')}, "
        f"{count(int(worst['num_tokens']), 'token')}){note}"
    )


def _sources(batch: Batch, num_nonfinite: int) -> str:
    known = sources(batch.meta)
    lines = [f"{name}: {printable(fact)}" for name, fact in known.items()]
    lines.append(f"tokens left out, diff not finite: {num_nonfinite}")
    return "\n".join(lines)


def _others(found: Checks) -> str:
    lines = [f"{count(len(found.passed), 'check')} passed, {len(found.failed)} failed"]
    if num := len(found.not_testable):
        lines.append(f"{num} not testable: `rd.check(batch)` names them")
    return "\n".join(lines)
