"""Failed contracts of `rd.check` as facts, under the causes that they show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks import check
from rounddiag.core.columns import to_numpy
from rounddiag.core.scores import select_scores
from rounddiag.findings.detectors.mask_offset import mask_offset
from rounddiag.findings.finding import Evidence
from rounddiag.findings.registry import register
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.checks import Check, Checks
    from rounddiag.findings.view import View

# What swapped rows, or a mask that is moved, may explain better.
SUPERSEDED = frozenset({"filled_log_probs", "mask_too_wide"})
# Faults of rows and masks, which add no mismatch of their own.
_QUIET = frozenset({"padding_rows", "mask_punched"})


def describe_failed(one: Check) -> str:
    """Return what a failed check does, and how many places break it, as a clause."""
    return f"{one.effect}: {one.detail.partition(':')[0]}"


def failed_checks(view: View) -> Iterator[Evidence]:
    """Yield failed contracts as evidence; what is only worth knowing is left out."""
    if num := view.batch.meta.get("num_dropped_copies"):
        yield Evidence(
            cause="padding_rows",
            tokens=np.zeros(len(view), dtype=bool),
            adds_mismatch=False,
            where={
                "fact": f"{pluralize(num, 'row')} of the file were copies of others"
            },
            shown="They were left out when the file was read.",
            next_step="Drop the copies before the loss: they weigh twice.",
        )
    for one in checks_of(view).failed:
        if one.kind == "note" or one.cause in SUPERSEDED:
            continue
        tokens = _tokens(view, one)
        cause = _cause(view, one)
        yield Evidence(
            cause=cause,
            severity=one.kind,
            tokens=tokens,
            adds_mismatch=one.kind == "bug" and cause not in _QUIET,
            where={
                "samples": np.array(one.samples, dtype=int),
                "fact": describe_failed(one),
                "check": one.name,
                **_impossible(view, one),
            },
            shown=f"A check fails: {one.name} ({one.detail}).",
            next_step=one.advice,
        )


@register("filled_log_probs", kind="fact")
def filled_log_probs(view: View) -> Evidence | None:
    """Report one value in place of log-probs, but the zeros of a moved mask."""
    found = _superseded(view, "filled_log_probs")
    moved = mask_offset(view) if found is not None else None
    if found is None or moved is None:
        return found
    tokens = found.tokens & ~moved.tokens
    where = {"check": found.where["check"]}  # its count is that of all tokens
    return replace(found, tokens=tokens, where=where) if tokens.any() else None


@register("mask_too_wide", kind="fact")
def mask_too_wide(view: View) -> Evidence | None:
    """Report tokens under the mask that the model did not write."""
    return _superseded(view, "mask_too_wide")


def _superseded(view: View, cause: str) -> Evidence | None:
    for one in checks_of(view).failed:
        tokens = _tokens(view, one)
        if one.cause == cause and tokens.any() and not view.is_fitted:
            return Evidence(
                tokens=tokens,
                where={"fact": describe_failed(one), "check": one.name},
                shown=f"A check fails: {one.name} ({one.detail}).",
                next_step=one.advice,
            )
    return None


def not_written(view: View) -> Array:
    """Return tokens under the mask that the model did not write."""
    found = (mask_too_wide(view), mask_offset(view))
    none = np.zeros(len(view), dtype=bool)
    tokens: Array = np.logical_or.reduce([none, *(one.tokens for one in found if one)])
    return tokens


def _tokens(view: View, one: Check) -> Array:
    """Return the tokens that break a contract, or those of the samples that do."""
    if one.tokens is None:
        return np.isin(view.sample, one.samples)
    return np.isin(view.flat, one.tokens)


def checks_of(view: View) -> Checks:
    """Return the checks of the batch of a view."""
    memo = view.facts.memo
    if "checks" not in memo:
        memo["checks"] = check(view.batch, a=view.a, b=view.b, fast=True)
    found: Checks = memo["checks"]
    return found


def _impossible(view: View, one: Check) -> dict[str, float]:
    """Return the part of the generated tokens that have impossible values."""
    if one.cause != "impossible_log_probs" or one.tokens is None:
        return {}
    return {"part_impossible": len(one.tokens) / max(view.batch.num_tokens, 1)}


def _cause(view: View, one: Check) -> str:
    """Return the cause of a failed check; an impossible value that recurs is a fill."""
    if one.cause != "impossible_log_probs" or one.tokens is None:
        return one.cause or "unknown"
    batch = select_scores(view.batch, view.a, view.b)
    columns = [to_numpy(column)[one.tokens] for column in batch.both_log_probs()]
    found = [values[~(values <= 0) | np.isinf(values)] for values in columns]
    is_one = all(len(np.unique(values)) <= 1 for values in found)
    return "filled_log_probs" if is_one and max(map(len, found)) > 1 else one.cause
