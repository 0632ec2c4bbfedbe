"""Files of known frameworks that hold nothing to diagnose, and what to add instead."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

from rounddiag.loaders.format import Format

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source


def _refuse(found: str, advice: str, _: object, source: Source) -> NoReturn:
    raise source.error(expected="a saved batch", found=found, advice=advice)


def _format(
    framework: str, files: str, keys: str, name: str, reason: str, advice: str
) -> Format:
    """Return a format whose file is refused; `advice` may be the name of a recipe."""
    if advice.isalpha():
        advice = (
            f"Add the lines to the trainer that `rounddiag recipe {advice}` prints."
        )
    return Format(
        name=name,
        framework=framework,
        files=(files,),
        keys=tuple(keys.split()),
        read=partial(_refuse, f"{name}: {reason}", advice),
        reason=reason,
    )


TINKER_SUMMARIES = _format(
    *("Tinker", "*_rollout_summaries.jsonl", "steps trajectory_metrics final_ob_len"),
    "Tinker's summaries of rollouts",
    "lengths and rewards, without log-probs",
    "tinker",
)
DART_GUI = _format(
    *("DART-GUI", "data_for_step_*.pt", "logp token_ids prompt_token_ids"),
    "a step of DART-GUI",
    "the sampler's log-probs, without the trainer's",
    "verl",
)
