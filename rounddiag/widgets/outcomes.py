"""How a trajectory ended, in one word: by its columns, reward and last action."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rounddiag.batch import Batch
from rounddiag.wording import with_minus

# What a column of this name says if it is a flag that is set, or a text that is there.
_OF_NAMES = (
    ("error", r"\w*(error|exception)\w*"),
    ("solved", r"(is_)?(solved|success(ful)?|passed)"),
    ("truncated", r"(is_)?(truncated|aborted)"),
)
# What the text of a status, or of a reason to stop, says.
_OF_TEXTS = (
    ("error", r"error|exception|crash"),
    ("given up", r"infeasible|give[ns]?.?up|gave.?up"),
    ("truncated", r"trunc|length|max_|limit|time.?out|timed.?out|abort|incomplete"),
    ("failed", r"fail|incorrect|unsolved|not.solved|wrong"),
    ("solved", r"solved|success|passed|correct"),
)
# Columns of a status, or of a reason to stop.
STATUS_NAMES = r"status|(finish|stop|end|exit|terminat)\w*_?(reason|condition|status)?"
_GIVEN_UP = r"\b(fail(ed|ure)?|infeasible|call_user)\b"


def outcome_of(
    columns: Iterable[tuple[str, str]],
    reward: float | None,
    last: Mapping[str, Any] | None,
) -> str:
    """Return how an episode ended; "" where nothing says so.

    Parameters
    ----------
    columns : iterable of (str, str)
        The columns that say something of the end, each with its value as text.
    reward : float or None
        Above 0 the task is solved.
    last : mapping or None
        The last action, as `describe_actions` has it.

    Returns
    -------
    str
        `error`, `truncated`, `solved`, `failed`, `given up` or `finished`. What the
        file says comes before the reward, and the reward before the last action, which
        the model chose: alone it says that the model finished or gave up.

    Examples
    --------
    >>> outcome_of([("status", "max_steps")], 0.0, None)
    'truncated'
    >>> outcome_of([], 0.0, {"kind": "finished", "line": "finished fail"})
    'given up'
    """
    said = {word for name, text in columns if (word := _said(name, text))}
    for word in ("error", "given up", "truncated", "failed", "solved"):
        if word in said:
            return word
    is_last = last is not None and last["kind"] == "finished"
    if reward is not None and reward > 0:
        return "solved"
    if is_last and last and re.search(_GIVEN_UP, last["line"], re.IGNORECASE):
        return "given up"
    if reward is not None:
        return "failed"
    return "finished" if is_last or "finished" in said else ""


def _said(name: str, text: str) -> str:
    """Return what one column says."""
    if text in ("False", "0"):
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
    own: Batch, columns: Iterable[tuple[str, str]], last: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the outcome of a batch of one sample, and the facts that say so."""
    reward = None if own.rewards is None else float(own.rewards[0])
    known = [*columns]
    facts = [f"{name.replace('_', ' ')}: {text}" for name, text in known]
    if reward is not None:
        facts.append(f"reward: {with_minus(f'{reward:.4g}')}")
    if last is not None and last["kind"] == "finished":
        facts.append(f"last action: {last['line']}")
    return {"word": outcome_of(known, reward, last), "why": "; ".join(facts)}
