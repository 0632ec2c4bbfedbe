"""Failed contracts of `rd.check` as findings, under the cause they point to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks import check
from rounddiag.findings.finding import Evidence
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.view import View

# The cause that a failed contract points to, the score, and the next step. Contracts
# whose failure is a fact and not a fault, such as truncated rounds, are left out.
_BY_CONTRACT: dict[str, tuple[str, float, str]] = {
    "position ids are integers": (
        "position_ids",
        0.95,
        "Keep position ids in int64 from the processor to the model.",
    ),
    "position ids are those of M-RoPE": (
        "position_ids",
        0.95,
        "Compute them with the model's own get_rope_index on the unpacked sequence.",
    ),
    "image tokens are as many as the grids ask for": (
        "image_expansion",
        0.9,
        (
            "Expand image placeholders once, in one place, and send the engine "
            "unexpanded ids."
        ),
    ),
    "every screenshot has one image block": (
        "image_expansion",
        0.45,
        "Compare the images that each engine was given, round by round.",
    ),
    "responses do not begin with their prompt": (
        "prompt_mismatch",
        0.9,
        "Cut the prompt from the response before it is scored.",
    ),
    "prompt and response are `input_ids`": (
        "prompt_mismatch",
        0.9,
        "Score the ids that the sampler used.",
    ),
    "every row has a generated token": (
        "padding_rows",
        0.95,
        (
            "Drop rows without a generated token before the metrics: a mean of sample "
            "means counts them as 0."
        ),
    ),
    "no response is empty": (
        "padding_rows",
        0.9,
        "Drop empty rows before the metrics.",
    ),
    "both engines have the same token ids": (
        "retokenised",
        0.97,
        "Train on the ids that the engine returned, never on text encoded again.",
    ),
    "both engines' responses have one length": (
        "retokenised",
        0.95,
        "Train on the ids that the engine returned, never on text encoded again.",
    ),
    "the mask has no holes": (
        "mask_punched",
        0.7,
        "Save the batch before the rejection; pass the mask after it as `loss_mask`.",
    ),
    "log-probs are finite": (
        "filled_log_probs",
        0.8,
        "Find where NaN or infinity enters; a masked fill of -inf is common.",
    ),
}
# Positions up to which the contracts are checked here; a longer batch keeps what
# `rounddiag.load` checked.
MAX_POSITIONS = 1_500_000


@register("failed_contract", stage="exact")
def failed_contracts(view: View) -> Iterator[Evidence]:
    """Turn failed contracts into evidence."""
    for cause, failed in _failed_once(view).items():
        samples = np.array(sorted({i for one in failed for i in one[2]}), dtype=int)
        yield Evidence(
            cause=cause,
            score=max(_BY_CONTRACT[name][1] for name, _, _ in failed),
            tokens=np.isin(view.sample, samples),
            adds_mismatch=cause not in ("padding_rows", "mask_punched"),
            where={"samples": samples, "fact": failed[0][1].partition(":")[0]},
            explanation="A check fails: "
            + "; ".join(f"{name} ({detail})" for name, detail, _ in failed)
            + ".",
            next_step=_BY_CONTRACT[failed[0][0]][2],
        )


def _failed_once(view: View) -> dict[str, list[tuple[str, str, tuple[int, ...]]]]:
    memo = view.facts.memo
    if "failed_contracts" not in memo:
        memo["failed_contracts"] = _group_failed(view)
    failed: dict[str, list[tuple[str, str, tuple[int, ...]]]] = memo["failed_contracts"]
    return failed


def _group_failed(view: View) -> dict[str, list[tuple[str, str, tuple[int, ...]]]]:
    """Return name, detail and samples of the failed contracts, by cause."""
    batch = view.batch
    if len(batch.response_ids) <= MAX_POSITIONS:
        failed = [(one.name, one.detail, one.samples) for one in check(batch).failed]
    else:
        known = batch.meta.get("checks", ())
        failed = [
            (str(one["name"]), str(one["detail"]), ())
            for one in known
            if one["status"] == "failed"
        ]
    found: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {}
    for one in failed:
        if one[0] in _BY_CONTRACT:
            found.setdefault(_BY_CONTRACT[one[0]][0], []).append(one)
    return found
