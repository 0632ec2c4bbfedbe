"""How a trajectory ended, in one word: by its columns, its success and last action."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.wording import with_minus

_SUCCESS_NAMES = r"(is_)?(solved|success(ful)?|passed)"
_UNSET = ("false", "0", "no", "none", "null")
_FLAGS = (*_UNSET, "true", "1", "yes")  # a share or a count of successes is none
# What a column of this name says if it is a flag that is set, or a text that is there.
_OF_NAMES = (
    ("error", r"\w*(error|exception)\w*"),
    ("truncated", r"(is_)?(truncated|aborted)"),
)
# What the text of a status, or of a reason to stop, says.
_OF_TEXTS = (
    ("error", r"error|exception|crash"),
    ("given up", r"infeasible|give[ns]?.?up|gave.?up"),
    ("truncated", r"trunc|length|max_|limit|time.?out|timed.?out|abort|incomplete"),
    ("failed", r"fail|incorrect|wrong|(un|not.)(solved|success)"),
    ("solved", r"solved|success|passed|correct"),
)
# Columns of a status, or of a reason to stop.
STATUS_NAMES = r"status|(finish|stop|end|exit|terminat)\w*_?(reason|condition|status)?"
_GIVEN_UP = r"\b(fail(ed|ure)?|infeasible|call_user)\b"


def successes(batch: Batch) -> list[bool | None]:
    """Return whether each sample's reward says that it succeeded, None if it does not.

    A reward is a success only where all rewards of the batch are 0 or 1. Any other may
    be shaped, or relative to those of its group.
    """
    if batch.rewards is None:
        return [None] * len(batch)
    rewards = batch.rewards.double().cpu().numpy()
    is_finite = np.isfinite(rewards)
    is_known = is_finite & np.isin(rewards[is_finite], (0, 1)).all()
    pairs = zip(rewards.tolist(), is_known.tolist(), strict=True)
    return [reward == 1 if known else None for reward, known in pairs]


def outcome_of(
    columns: Iterable[tuple[str, str]],
    last: Mapping[str, Any] | None,
    *,
    success: bool | None = None,
) -> str:
    """Return how an episode ended; "" where nothing says so.

    Parameters
    ----------
    columns : iterable of (str, str)
        The columns that say something of the end, each with its value as text.
    last : mapping or None
        The last action, as `describe_actions` has it.
    success : bool or None
        What the reward says, as `successes` returns it.

    Returns
    -------
    str
        `error`, `truncated`, `solved`, `failed`, `given up` or `finished`. What the
        file says comes before the reward. An action that gives up comes before a
        reward of 0: it says more.

    Examples
    --------
    >>> outcome_of([("status", "max_steps")], None, success=False)
    'truncated'
    >>> outcome_of([], {"kind": "finished", "line": "finished fail"}, success=False)
    'given up'
    """
    said = {word for name, text in columns if (word := _said(name, text))}
    for word in ("error", "given up", "truncated", "failed", "solved"):
        if word in said:
            return word
    if success:
        return "solved"
    is_last = last is not None and last["kind"] == "finished"
    if is_last and last and re.search(_GIVEN_UP, last["line"], re.IGNORECASE):
        return "given up"
    if success is False:
        return "failed"
    return "finished" if is_last or "finished" in said else ""


def _said(name: str, text: str) -> str:
    """Return what one column says."""
    is_set = text.lower() not in _UNSET
    if re.fullmatch(_SUCCESS_NAMES, name, re.IGNORECASE):
        return "" if text.lower() not in _FLAGS else "solved" if is_set else "failed"
    if not is_set:
        return ""
    for word, pattern in _OF_NAMES:
        if re.fullmatch(pattern, name, re.IGNORECASE):
            is_count = word == "error" and text.isdigit()
            return "" if is_count else word
    if re.fullmatch(STATUS_NAMES, name, re.IGNORECASE):
        for word, pattern in _OF_TEXTS:
            if re.search(pattern, text, re.IGNORECASE):
                return word
    return "finished" if re.fullmatch(r"(is_)?(done|completed)", name) else ""


def describe_outcome(
    own: Batch,
    columns: Iterable[tuple[str, str]],
    last: Mapping[str, Any] | None,
    *,
    success: bool | None,
) -> dict[str, str]:
    """Return the outcome of a batch of one sample, and the facts that say so."""
    known = [*columns]
    facts = [f"{name.replace('_', ' ')}: {text}" for name, text in known]
    if own.rewards is not None:
        facts.append(f"reward: {with_minus(f'{float(own.rewards[0]):.4g}')}")
    if last is not None and last["kind"] == "finished":
        facts.append(f"last action: {last['line']}")
    return {"word": outcome_of(known, last, success=success), "why": "; ".join(facts)}
