"""Failed contracts of `rd.check` as findings, under the cause they point to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks import check
from rounddiag.findings.finding import Evidence
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.checks import Checks
    from rounddiag.findings.finding import Severity
    from rounddiag.findings.view import View

# The cause that a failed contract points to, the severity, and the next step. Contracts
# whose failure is a fact and not a fault, such as truncated rounds, are left out.
_BY_CONTRACT: dict[str, tuple[str, Severity, str]] = {
    "position ids are integers": (
        "position_ids",
        "bug",
        "Keep position ids in int64 from the processor to the model.",
    ),
    "position ids are those of M-RoPE": (
        "position_ids",
        "bug",
        "Compute them with the model's own get_rope_index on the unpacked sequence.",
    ),
    "image tokens are as many as the grids ask for": (
        "image_expansion",
        "bug",
        (
            "Expand image placeholders once, in one place, and send the engine "
            "unexpanded ids."
        ),
    ),
    "every screenshot has one image block": (
        "image_expansion",
        "note",
        "Compare the images that each engine was given, round by round.",
    ),
    "responses do not begin with their prompt": (
        "prompt_mismatch",
        "bug",
        "Cut the prompt from the response before it is scored.",
    ),
    "prompt and response are `input_ids`": (
        "prompt_mismatch",
        "bug",
        "Score the ids that the sampler used.",
    ),
    "every row has a generated token": (
        "padding_rows",
        "bug",
        (
            "Drop rows without a generated token before the metrics: a mean of sample "
            "means counts them as 0."
        ),
    ),
    "no response is empty": (
        "padding_rows",
        "bug",
        "Drop empty rows before the metrics.",
    ),
    "both engines have the same token ids": (
        "retokenised",
        "bug",
        "Train on the ids that the engine returned, never on text encoded again.",
    ),
    "both engines' responses have one length": (
        "retokenised",
        "bug",
        "Train on the ids that the engine returned, never on text encoded again.",
    ),
    "the mask has no holes": (
        "mask_punched",
        "bug",
        "Save the batch before the rejection; pass the mask after it as `loss_mask`.",
    ),
    "log-probs are finite": (
        "filled_log_probs",
        "bug",
        "Find where NaN or infinity enters; a masked fill of -inf is common.",
    ),
}


@register("failed_contract", kind="fact")
def failed_contracts(view: View) -> Iterator[Evidence]:
    """Turn failed contracts into evidence."""
    failed = [one for one in _checks(view).failed if one.name in _BY_CONTRACT]
    for one in failed:
        cause, severity, step = _BY_CONTRACT[one.name]
        samples = np.array(one.samples, dtype=int)
        yield Evidence(
            cause=cause,
            severity=severity,
            tokens=np.isin(view.sample, samples),
            adds_mismatch=cause not in ("padding_rows", "mask_punched"),
            where={"samples": samples, "fact": one.detail.partition(":")[0]},
            shown=f"A check fails: {one.name} ({one.detail}).",
            next_step=step,
        )


def _checks(view: View) -> Checks:
    memo = view.facts.memo
    if "checks" not in memo:
        memo["checks"] = check(view.batch, a=view.a, b=view.b, fast=True)
    found: Checks = memo["checks"]
    return found
