"""Whether all tokens have bitwise equal log-probs, or all that were judged."""

from __future__ import annotations

import numpy as np

from rounddiag.batch import Batch
from rounddiag.core.columns import token_samples
from rounddiag.core.scores import select_scores
from rounddiag.core.sums import diffs
from rounddiag.findings.causes import NO_CAUSE
from rounddiag.findings.finding import Evidence
from rounddiag.findings.view import View
from rounddiag.wording import pluralize

# Uncertain tokens before a place that must be equal. A certain token is 0 in both.
MIN_UNSURE = 8


def are_identical(batch: Batch, a: str, b: str) -> bool:
    """Return whether log-probs are finite and equal at every token of the mask."""
    # The difference of two infinite or missing values is not 0.
    return bool((diffs(select_scores(batch, a, b)) == 0).all())


def find_unread(view: View) -> Evidence | None:
    """Return the tokens that differ where all that were read are equal, as a fact.

    They are a bug if they differ by more than is usual for tokens that differ at all.
    """
    batch = select_scores(view.batch, view.a, view.b)
    size = np.abs(diffs(batch))
    differs = (size > 0) & np.isfinite(size)
    if not differs.any():
        return None
    samples = np.unique(token_samples(batch)[differs])
    mean = float(size[differs].mean())
    return Evidence(
        cause=NO_CAUSE,
        severity="bug" if mean > view.usual.usual else "note",
        tokens=np.zeros(len(view), dtype=bool),
        shown="",
        where={
            "samples": samples,
            "fact": f"{int(differs.sum()):,} of {pluralize(len(size), 'token')} differ,"
            f" by {mean:.2g} nat on average, in {pluralize(len(samples), 'sample')}"
            f" (the first is {samples[0]}); all others are bitwise equal, and so are"
            " all that were judged",
        },
        next_step=f"Diagnose `batch[{[*samples[:8].tolist()]}]`, which has them.",
    )
