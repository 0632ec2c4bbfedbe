"""Files of known frameworks that hold nothing to show, and what to add instead."""

from __future__ import annotations

from typing import NoReturn

from rounddiag.loaders.format import Format
from rounddiag.loaders.source import Source


def _refuse(_: object, source: Source) -> NoReturn:
    raise source.error(
        expected="a saved batch",
        found=f"{TINKER_SUMMARIES.name}: {TINKER_SUMMARIES.reason}",
        advice="Add the lines to the trainer that `rounddiag recipe tinker` prints.",
    )


TINKER_SUMMARIES = Format(
    name="Tinker's summaries of rollouts",
    framework="Tinker",
    files=("*_rollout_summaries.jsonl",),
    keys=("steps", "trajectory_metrics", "final_ob_len"),
    read=_refuse,
    reason="lengths and rewards, without log-probs",
)
