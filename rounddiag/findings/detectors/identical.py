"""`identical_log_probs`: the two columns are bitwise equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.causes import list_alternatives
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# A row counts if it has this many uncertain tokens: certain ones are 0 in both engines.
MIN_UNCERTAIN = 5
# Kernels that depend on the batch's shape differ by less than this, in nats.
MAX_LEVEL = 0.1
# Probability that a whole row like the others is equal by chance.
MAX_CHANCE = 1e-4


@register("identical_log_probs", stage="exact")
def identical_log_probs(view: View) -> Evidence | None:
    """Find rows whose log-probs are bitwise equal in both columns."""
    if view.is_fitted:
        return None  # a fit may leave nothing
    uncertain = view.per_sample(view.uncertain.astype(float)) * view.num_per_sample
    differs = view.per_sample((view.d != 0).astype(float))
    rows = (differs == 0) & (uncertain >= MIN_UNCERTAIN)
    others = (view.num_per_sample > 0) & ~rows
    if not rows.any():
        return None
    whole = not view.abs.any()
    if not whole:
        # By chance about half of the tokens may be equal, never a whole row.
        equal = 1 - float(np.nanmean(differs[others]))
        expected = equal ** float(np.median(uncertain[rows]))
        if expected > MAX_CHANCE:
            return None
    level = float(view.abs[others[view.sample]].mean()) if not whole else 0.0
    if not whole and "rollout" not in (view.a, view.b) and level < MAX_LEVEL:
        return _batch_shape(view, rows, level)
    where = "All rows" if whole else f"{int(rows.sum())} of {len(rows)} rows"
    return Evidence(
        score=0.9 if whole else 0.8,
        tokens=rows[view.sample],
        adds_mismatch=False,
        explanation=(
            f"{where} have bitwise equal log-probs in both columns. That is true "
            "on-policy scoring, or one column is a copy of the other."
        ),
        measures=(Measure(name="equal rows", value=float(rows.sum()), unit="samples"),),
        alternatives=list_alternatives("batch_shape"),
        next_step=(
            "Look for a bypass that sets old to rollout (verl: "
            "`rollout_correction.bypass_mode`), and log both columns."
        ),
    )


def _batch_shape(view: View, rows: Array, level: float) -> Evidence:
    num, total = int(rows.sum()), int((view.num_per_sample > 0).sum())
    off = ~rows[view.sample]
    return Evidence(
        cause="batch_shape",
        score=0.9,
        tokens=off,
        measures=(
            Measure(name="equal rows", value=num, unit="samples"),
            Measure(name="mean |diff| of the others", value=level, unit="nat"),
        ),
        explanation=(
            f"{num} of {total} rows are bitwise equal in `{view.a}` and `{view.b}`, "
            f"the others differ by {level:.3g} nat: consistent with kernels that "
            "depend on the shape of the micro-batch."
        ),
        alternatives=list_alternatives("low_precision"),
        next_step=(
            "Use equal micro-batches in both passes, or set old to current in the "
            "first update; 0.01 to 0.03 nat is harmless."
        ),
    )
