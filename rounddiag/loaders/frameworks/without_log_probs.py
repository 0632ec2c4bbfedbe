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


VERL_ROLLOUTS = _format(
    *("verl", "*.jsonl", "input output gts score step"),
    "what verl writes to `rollout_data_dir`",
    "texts and scores, without log-probs",
    "verl",
)
TRL_COMPLETIONS = _format(
    *("TRL", "completions_*.parquet", "step prompt completion advantage"),
    "TRL's log of completions",
    "texts and rewards, without log-probs",
    "trl",
)
AREAL_ROLLOUTS = _format(
    *("AReaL", "*.jsonl", "task_id seqlen prompt_len head_version tail_version"),
    "AReaL's dump of rollouts",
    "texts and versions, without log-probs",
    "areal",
)
RLLM_EPISODE = _format(
    *("rLLM", "episode_*.json", "training_step episode_id task_hash trajectories"),
    "an episode of rLLM",
    "texts and rewards, without log-probs",
    "rllm",
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
ATIF = _format(
    *("Harbor, NeMo Gym", "trajectory.json", "schema_version agent steps"),
    "an ATIF trajectory",
    "texts, and at most the sampler's log-probs, without the trainer's",
    "Save the batch of the trainer that learns from it, as `rounddiag recipe` says;"
    ' `rounddiag.attach(batch, "trajectories", file)` then adds the screenshots.',
)
