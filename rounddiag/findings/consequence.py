"""What a mismatch does to the update: what it touches, and how far the step moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from rounddiag._typing import Array
from rounddiag.core.columns import to_numpy
from rounddiag.core.loss_ratio import trainers_rule
from rounddiag.core.weights import token_weights
from rounddiag.findings.finding import Finding
from rounddiag.findings.view import View
from rounddiag.schema import CORRECTIONS, Correction, Pair
from rounddiag.wording import percent, pluralize, with_minus

# The mask with most trainers as its source, and weights of whole samples.
_MASK, _PRODUCT, _TIS = (
    CORRECTIONS[name] for name in ("icepop", "sequence_tis", "tis")
)
# A sample's product below it is what verl rejects; the largest weight of a sample.
_COLLAPSED, _LARGEST = CORRECTIONS["sequence_rejection"].bounds[0], _PRODUCT.bounds[1]
_RARE = 0.01  # probability by chance


def describe_consequence(view: View, findings: Sequence[Finding]) -> str:
    """Say what the mismatch does to the step; empty if the batch has no advantages.

    The gradient weight of a token is |advantage|: what it adds to an update without
    correction, of a ratio of 1. Tokens outside the loss have none.
    """
    if view.batch.advantages is None:
        return ""
    size = np.abs(to_numpy(view.batch.advantages)[view.flat].astype(np.float64))
    if view.batch.loss_mask is not None:
        size = size * (to_numpy(view.batch.loss_mask)[view.flat] != 0)
    total = float(size.sum())
    if not (np.isfinite(total) and total > 0):
        return ""
    touched = np.zeros(len(view), dtype=bool)
    for finding in findings:
        if finding.is_bug:
            touched[finding.indices] = True
    parts = [_describe_collapse(view, size)]
    if touched.any():
        parts = [_describe_touched(view, touched, size), *parts]
        parts.insert(1, _describe_hiding(view, touched))
    return " ".join(filter(None, parts))


def _weights(view: View, correction: Correction) -> Array:
    pair = (None, None) if Pair(view.a, view.b).is_standard else (view.a, view.b)
    return token_weights(view.batch, correction, *pair)[view.order]


def _describe_touched(view: View, touched: Array, size: Array) -> str:
    """Say what the mismatch touches, and how far the step moves, which is no share."""
    samples = view.samples_with(touched).sum() / view.num_samples
    share = float(size[touched].sum() / size.sum())
    own = trainers_rule(view.batch)
    rule, of_run = (
        (own, "this run's")
        if own and not own.ratios - {"mismatch"}
        else (_TIS, "the trainers'")
    )
    away = np.nan_to_num(size * (_weights(view, rule) - 1.0))
    moved = float(np.linalg.norm(away) / np.linalg.norm(size))
    return (
        f"These tokens, {percent(float(touched.mean()))} of all in {percent(samples)}"
        f" of samples, carry {percent(share)} of the step's gradient weight. With"
        f" {of_run} rule `{rule.name}` the step moves by {percent(moved)} of its size."
    )


def _describe_hiding(view: View, touched: Array) -> str:
    dropped = _weights(view, _MASK) == 0
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
    weights = _weights(view, _PRODUCT)
    left = float(np.nansum(weights * size) / size.sum())
    grown = float(size[weights >= _LARGEST].sum() / size.sum())
    if left < _COLLAPSED:
        effect = f"leave {percent(left)} of"
    elif 2 * grown > 1:  # most
        effect = f"be at their limit of {_LARGEST:g} for {percent(grown)} of"
    else:
        return ""
    num_rounds = len(np.unique(view.segment)) / view.num_samples
    tokens, mean = len(view) / view.num_samples, float(view.diff.mean())
    return (
        f"Weights per sequence would {effect} the step's gradient weight, although"
        f" tokens differ by {with_minus(f'{mean:.2g}')} nat on average: the ratios of"
        f" {num_rounds:.3g} rounds, {tokens:,.0f} tokens a sample, multiply."
    )
