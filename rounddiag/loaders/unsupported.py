"""Messages for files that cannot be loaded: what they are, and what they lack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.loaders.column_mapping import our_name
from rounddiag.loaders.detection import (
    UnknownContent,
    content_names,
    describe_content,
    is_weights,
)
from rounddiag.loaders.source import format_names
from rounddiag.loaders.tabular.json_lines import JsonLines
from rounddiag.loaders.tabular.table import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rounddiag.errors import LoadError
    from rounddiag.loaders.source import Source


REQUIRED = ("response_ids", "response_mask", "rollout_log_probs", "old_log_probs")
# Names that columns of these fields often have.
_LOG_PROBS = r"(?=.*(?:lo?g?_?p|lp))"
_TYPICAL_NAMES = {
    "response_ids": r"(?!.*prompt).*(?:ids|tokens|response)$",
    "response_mask": r"(?!.*attention).*mask$",
    "rollout_log_probs": _LOG_PROBS
    + r".*(?:rollout|sampl|infer|vllm|sglang|behav|gen)",
    "old_log_probs": _LOG_PROBS + r".*(?:old|train|actor|fsdp|megatron|prox)",
}
_RECIPE = "Add the lines to the trainer that `rounddiag recipe {}` prints."


@dataclass(frozen=True)
class UnsupportedFile:
    """A file of a known framework that holds nothing to diagnose.

    Attributes
    ----------
    keys : tuple of str
        Names that identify it.
    description : str
        What it is, and what it lacks.
    advice : str
        What to add to the trainer.
    framework : str
        What writes it.
    files : str
        A pattern of its file names.
    """

    keys: tuple[str, ...]
    description: str
    advice: str
    framework: str
    files: str


UNSUPPORTED_FILES = (
    UnsupportedFile(
        ("input", "output", "gts", "score", "step"),
        "what verl writes to `rollout_data_dir`: texts and scores, without log-probs",
        _RECIPE.format("verl"),
        framework="verl",
        files="*.jsonl",
    ),
    UnsupportedFile(
        ("step", "prompt", "completion", "advantage"),
        "TRL's log of completions: texts and rewards, without log-probs",
        _RECIPE.format("trl"),
        framework="TRL",
        files="completions_*.parquet",
    ),
    UnsupportedFile(
        ("task_id", "seqlen", "prompt_len", "head_version", "tail_version"),
        "AReaL's dump of rollouts: texts and versions, without log-probs",
        _RECIPE.format("areal"),
        framework="AReaL",
        files="*.jsonl",
    ),
    UnsupportedFile(
        ("training_step", "episode_id", "task_hash", "trajectories"),
        "an episode of rLLM: texts and rewards, without log-probs",
        _RECIPE.format("rllm"),
        framework="rLLM",
        files="episode_*.json",
    ),
    UnsupportedFile(
        ("steps", "trajectory_metrics", "final_ob_len"),
        "Tinker's summaries of rollouts: lengths and rewards, without log-probs",
        _RECIPE.format("tinker"),
        framework="Tinker",
        files="*_rollout_summaries.jsonl",
    ),
    UnsupportedFile(
        ("logp", "token_ids", "prompt_token_ids"),
        "a step of DART-GUI: the sampler's log-probs, without the trainer's",
        _RECIPE.format("verl"),
        framework="DART-GUI",
        files="data_for_step_*.pt",
    ),
    UnsupportedFile(
        ("schema_version", "agent", "steps"),
        "an ATIF trajectory: texts, and at most the sampler's log-probs, without the"
        " trainer's",
        "Save the batch of the trainer that learns from it, as `rounddiag recipe` says;"
        ' `rounddiag.attach(batch, "trajectories", file)` then adds the screenshots.',
        framework="Harbor, NeMo Gym",
        files="trajectory.json",
    ),
)


def match_unsupported(names: Collection[str]) -> UnsupportedFile | None:
    """Return the first unsupported file whose keys are all among `names`.

    Examples
    --------
    >>> log = match_unsupported(["step", "prompt", "completion", "reward", "advantage"])
    >>> log.description
    "TRL's log of completions: texts and rewards, without log-probs"
    """
    present = {*names}
    return next((file for file in UNSUPPORTED_FILES if {*file.keys} <= present), None)


def unsupported_error(source: Source, root: object) -> LoadError:
    """Return the error for content of no known format."""
    names = content_names(root)
    file = match_unsupported(names)
    if file is not None:
        return source.error("a saved batch", file.description, file.advice)
    advice = root.advice if isinstance(root, UnknownContent) else ""
    advice += "`rounddiag.formats()` lists what can be opened."
    if _has_columns(root):
        advice += f" {_columns_example(names, map(our_name, names))}"
    return source.error("a saved batch", describe_content(root), advice)


def _has_columns(root: object) -> bool:
    if isinstance(root, Mapping) and is_weights(root):
        return False
    return (
        isinstance(root, Table | JsonLines | Mapping) and len(content_names(root)) > 0
    )


def missing_columns_error(
    source: Source, root: object, columns: Mapping[str, str]
) -> LoadError:
    """Return the error for a table that lacks required columns."""
    names = content_names(root)
    known = {*map(our_name, columns), *map(our_name, names)}
    missing = [f"`{name}`" for name in REQUIRED if name not in known]
    verb = "is" if len(missing) == 1 else "are"
    return source.error(
        expected=f"a table with {', '.join(REQUIRED)}",
        found=f"that {' and '.join(missing)} {verb} missing,"
        f" where the columns are {format_names(names)}",
        advice=_columns_example(names, known),
    )


def _columns_example(names: Collection[str], known: Iterable[str] = ()) -> str:
    """Return an example of `columns=` for a message.

    Examples
    --------
    >>> _columns_example(["ids", "mask", "vllm_lp", "lp"])[:60]
    'Name the columns: `columns={"response_ids": "ids", "response'
    """
    excluded = {*known}
    pairs = ", ".join(
        f'"{field}": "{_likely_column(field, names)}"'
        for field in REQUIRED
        if field not in excluded
    )
    return f"Name the columns: `columns={{{pairs}}}`."


def _likely_column(field: str, names: Collection[str]) -> str:
    """Return the only column whose name is typical of a field, else `...`."""
    typical = [name for name in names if re.match(_TYPICAL_NAMES[field], name.lower())]
    return f"{typical[0]:.40}" if len(typical) == 1 else "..."
