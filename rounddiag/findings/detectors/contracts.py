"""Failed contracts of `rd.check` that are bugs, or wrong updates, as facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.checks import Check
    from rounddiag.findings.view import View

# They are no mismatch of their own.
_NO_MISMATCH = ("padding_rows", "mask_punched")


@register("failed_contract", kind="fact")
def failed_contracts(view: View) -> Iterator[Evidence]:
    """Yield one fact a cause."""
    by_cause: dict[str, list[Check]] = {}
    for one in view.facts.memo["checks"].failed:
        if one.kind != "note":
            by_cause.setdefault(one.cause, []).append(one)
    for cause, failed in by_cause.items():
        first = failed[0]
        samples = {sample for one in failed for sample in one.samples}
        yield Evidence(
            cause=cause,
            severity=first.kind,
            tokens=np.logical_or.reduce([_tokens(view, one) for one in failed]),
            adds_mismatch=first.kind == "bug" and cause not in _NO_MISMATCH,
            where={
                "samples": np.array(sorted(samples), dtype=int),
                "fact": first.detail.partition(":")[0],
            },
            shown=" ".join(
                f'The check "{one.name}" fails: {one.detail}.' for one in failed
            ),
            next_step=first.advice,
        )


def _tokens(view: View, failed: Check) -> Array:
    """Return the tokens that break a contract; where unknown, those of its samples."""
    if failed.tokens is not None:
        return np.isin(view.flat, failed.tokens)
    return np.isin(view.sample, np.array(failed.samples, dtype=int))
