"""Failed contracts of `rd.check` as facts, under the causes that they show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks import check
from rounddiag.core.columns import to_numpy
from rounddiag.core.divergence import FACTOR_2
from rounddiag.core.scores import select_scores
from rounddiag.findings.causes import NO_CAUSE
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


def describe_failed(failed: Check) -> str:
    """Return what a failed check does, and how many places break it, as a clause."""
    return f"{failed.effect}: {failed.detail.partition(':')[0]}"


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
    for failed in checks_of(view).failed:
        if failed.kind == "note" or failed.cause in SUPERSEDED:
            continue
        tokens = _tokens(view, failed)
        cause = _cause(view, failed)
        yield Evidence(
            cause=cause,
            severity=failed.kind,
            tokens=tokens,
            adds_mismatch=failed.kind == "bug" and cause not in _QUIET,
            where={
                "samples": np.array(failed.samples, dtype=int),
                "fact": describe_failed(failed),
                "check": failed.name,
                **_impossible(view, failed),
            },
            shown=_show(failed),
            next_step=failed.advice,
        )


@register("filled_log_probs", kind="fact")
def filled_log_probs(view: View) -> Evidence | None:
    """Report one value in place of log-probs, but the zeros of a moved mask."""
    filled = _superseded(view, "filled_log_probs")
    moved = mask_offset(view) if filled is not None else None
    if filled is None or moved is None:
        return filled
    tokens = filled.tokens & ~moved.tokens
    where = {"check": filled.where["check"]}  # its count is that of all tokens
    return replace(filled, tokens=tokens, where=where) if tokens.any() else None


@register("mask_too_wide", kind="fact")
def mask_too_wide(view: View) -> Evidence | None:
    """Report tokens under the mask that the model did not write."""
    return _superseded(view, "mask_too_wide")


def _superseded(view: View, cause: str) -> Evidence | None:
    for failed in checks_of(view).failed:
        if failed.cause != cause or view.is_fitted:
            continue
        tokens = _tokens(view, failed)
        if tokens.any():
            # What stands after the end of a turn no grammar forces.
            forced = _say_zeros(view, tokens) if failed.is_exact else ""
            return Evidence(
                tokens=tokens,
                where={"fact": describe_failed(failed), "check": failed.name},
                shown=_show(failed) + forced,
                next_step=failed.advice,
                candidates=("structured_output",) if forced else (),
            )
    return None


def _say_zeros(view: View, tokens: Array) -> str:
    """Return that a grammar forces such tokens too, if it may; empty if not."""
    unsure = tokens & (view.log_prob_a < -FACTOR_2)
    if not unsure.any() or view.log_prob_b[unsure].any():
        return ""
    num = pluralize(int(unsure.sum()), "token")
    return (
        f" Structured output forces tokens to exactly 0 too: here {num} that are less"
        f" than half likely in {view.a}."
    )


def _show(failed: Check) -> str:
    """Return a failed check as a sentence; one that asks or quotes has its mark."""
    end = "" if failed.detail.endswith(("?", ".")) else "."
    return f'A check fails, "{failed.name}": {failed.detail}{end}'


def not_written(view: View) -> Array:
    """Return tokens under the mask that the model did not write."""
    detected = (mask_too_wide(view), mask_offset(view))
    none = np.zeros(len(view), dtype=bool)
    return np.logical_or.reduce(
        [none, *(evidence.tokens for evidence in detected if evidence)]
    )


def _tokens(view: View, failed: Check) -> Array:
    if failed.tokens is None:
        return np.isin(view.sample, failed.samples)
    return np.isin(view.flat, failed.tokens)


def checks_of(view: View) -> Checks:
    """Return the checks of the batch of a view."""
    memo = view.facts.memo
    if "checks" not in memo:
        memo["checks"] = check(view.batch, a=view.a, b=view.b, fast=True)
    return memo["checks"]


def _impossible(view: View, failed: Check) -> dict[str, float]:
    if failed.cause != "impossible_log_probs" or failed.tokens is None:
        return {}
    return {"part_impossible": len(failed.tokens) / max(view.batch.num_tokens, 1)}


def _cause(view: View, failed: Check) -> str:
    """Return the cause of a failed check; an impossible value that recurs is a fill."""
    if failed.cause != "impossible_log_probs" or failed.tokens is None:
        return failed.cause or NO_CAUSE
    batch = select_scores(view.batch, view.a, view.b)
    columns = [to_numpy(column)[failed.tokens] for column in batch.both_log_probs()]
    impossible = [values[~(values <= 0) | np.isinf(values)] for values in columns]
    is_one = all(len(np.unique(values)) <= 1 for values in impossible)
    return (
        "filled_log_probs" if is_one and max(map(len, impossible)) > 1 else failed.cause
    )
