"""`identical_log_probs`: the two columns are bitwise equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Alternative, Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import View

# A row counts when it has this many uncertain tokens: sure ones are 0 in both engines.
MIN_UNCERTAIN = 5


@register("identical_log_probs", stage="exact")
def identical_log_probs(view: View) -> Evidence | None:
    """Find rows whose log-probs are bitwise equal in both columns."""
    uncertain = view.per_sample(view.uncertain.astype(float)) * view.num_per_sample
    differs = view.per_sample((view.d != 0).astype(float))
    rows = (differs == 0) & (uncertain >= MIN_UNCERTAIN)
    others = (view.num_per_sample > 0) & ~rows
    if not rows.any():
        return None
    whole = not view.abs.any()
    if not whole:
        # Elsewhere about half of the tokens may be equal by chance, never a whole row.
        equal = 1 - float(np.nanmean(differs[others]))
        expected = equal ** float(np.median(uncertain[rows]))
        if expected > 1e-4:
            return None
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
        alternatives=(
            Alternative(
                cause="batch_shape",
                would_tell="Score one row alone and in its micro-batch.",
            ),
        ),
        next_step=(
            "Look for a bypass that sets old to rollout (verl: "
            "`rollout_correction.bypass_mode`), and log both columns."
        ),
    )
