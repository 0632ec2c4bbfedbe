"""Files that trainers write and that cannot be diagnosed: what they are, what helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_VERL = (
    "Add `rounddiag.capture.save_batch(batch, path)` to verl's trainer, after"
    " `batch = batch.union(old_log_prob)`."
)
_HOOK = "Add the lines to the trainer that README.md has under {}."


@dataclass(frozen=True)
class Useless:
    """A file without what is needed.

    Attributes
    ----------
    keys : tuple of str
        Names that are all in it.
    what : str
        What it is, and what it lacks.
    advice : str
        Which line to add to the trainer.
    """

    keys: tuple[str, ...]
    what: str
    advice: str


USELESS = (
    Useless(
        ("input", "output", "gts", "score", "step"),
        "what verl writes to `rollout_data_dir`: texts and scores, without log-probs",
        _VERL,
    ),
    Useless(
        ("step", "prompt", "completion", "advantage"),
        "TRL's log of completions: texts and rewards, without log-probs",
        _HOOK.format('"Save a batch in TRL and others"'),
    ),
    Useless(
        ("task_id", "seqlen", "prompt_len", "head_version", "tail_version"),
        "AReaL's dump of rollouts: texts and versions, without log-probs",
        _HOOK.format('"Save a batch in TRL and others"'),
    ),
    Useless(
        ("training_step", "episode_id", "task_hash", "trajectories"),
        "an episode of rLLM: texts and rewards, without log-probs",
        _VERL,
    ),
    Useless(
        ("steps", "trajectory_metrics", "final_ob_len"),
        "Tinker's summaries of rollouts: lengths and rewards, without log-probs",
        "Keep `logprobs` of each datum and those of the training pass, save both under"
        " names of your own, and open them with `columns=`.",
    ),
    Useless(
        ("logp", "token_ids", "prompt_token_ids"),
        "a step of DART-GUI: the sampler's log-probs, without the trainer's",
        _VERL,
    ),
)


def find_useless(names: Collection[str]) -> Useless | None:
    """Return the first file whose keys are all among `names`.

    Examples
    --------
    >>> found = find_useless(["step", "prompt", "completion", "my_reward", "advantage"])
    >>> found.what
    "TRL's log of completions: texts and rewards, without log-probs"
    """
    return next((file for file in USELESS if {*file.keys} <= {*names}), None)
