"""What a mismatch does to the update: the gradient weight it touches, corrections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from rounddiag._typing import Array
from rounddiag.core.columns import to_numpy
from rounddiag.core.weights import token_weights
from rounddiag.findings.finding import Finding
from rounddiag.findings.view import View
from rounddiag.schema import CORRECTIONS
from rounddiag.wording import percent, pluralize

# The mask with most trainers as its source, and weights of whole samples.
_MASK, _PRODUCT = CORRECTIONS["icepop"], CORRECTIONS["sequence_tis"]
# A sample's product below it is what verl rejects.
_COLLAPSED = CORRECTIONS["sequence_rejection"].bounds[0]
_RARE = 0.01  # probability by chance


def describe_consequence(view: View, findings: Sequence[Finding]) -> str:
    """Say what the mismatch does to the step; empty if the batch has no advantages.

    The gradient weight of a token is |advantage|: what it adds to an update without
    correction, of a ratio of 1.
    """
    if view.batch.advantages is None:
        return ""
    size = np.abs(to_numpy(view.batch.advantages)[view.flat].astype(np.float64))
    total = float(size.sum())
    if not (np.isfinite(total) and total > 0):
        return ""
    touched = np.zeros(len(view), dtype=bool)
    for finding in findings:
        if finding.is_bug:
            touched[finding.indices] = True
    if not touched.any():
        return _describe_collapse(view, size)
    share = float(size[touched].sum()) / total
    text = f"These tokens carry {percent(share)} of the step's gradient weight."
    return " ".join(filter(None, [text, _describe_hiding(view, touched)]))


def _weights(view: View, name: str) -> Array:
    """Return the weight of each token of the view."""
    num = to_numpy(view.batch.rounds.num_tokens)
    place = (np.cumsum(num) - num)[view.segment] + view.token
    weights: Array = token_weights(view.batch, name, view.a, view.b)[place]
    return weights


def _describe_hiding(view: View, touched: Array) -> str:
    """Say that a mask drops the tokens of the bug, more than it would by chance."""
    dropped = _weights(view, _MASK.name) == 0
    num, hit = int(dropped.sum()), int((dropped & touched).sum())
    by_chance = float(touched.mean())
    # The binomial tail: as many of any tokens, drawn without regard to the bug.
    if 2 * hit <= num or not special.bdtrc(hit - 1, num, by_chance) < _RARE:
        return ""
    low, high = _MASK.bounds
    return (
        f"IcePop's mask (ratio {low:g} to {high:g}) would hide the bug:"
        f" {percent(hit / num)} of the {pluralize(num, 'token')} that it drops are"
        f" among these, which are {percent(by_chance)} of all."
    )


def _describe_collapse(view: View, size: Array) -> str:
    """Say that products over samples weigh the step down though tokens agree."""
    share = float(np.nansum(_weights(view, _PRODUCT.name) * size) / size.sum())
    if not share < _COLLAPSED:
        return ""
    num_samples = int((view.num_per_sample > 0).sum())
    num_rounds = len(np.unique(view.segment)) / num_samples
    tokens, mean = len(view) / num_samples, float(view.diff.mean())
    return (
        f"Weights per sequence would leave {share:.2g} of the step's gradient weight,"
        f" although tokens differ by {mean:.2g} nat on average: the ratios of"
        f" {num_rounds:.0f} rounds, {tokens:,.0f} tokens a sample, multiply."
    )
