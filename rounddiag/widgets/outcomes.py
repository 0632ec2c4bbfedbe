"""How a trajectory ended, in one word: by its columns, its success and last action."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from rounddiag.batch import Batch
from rounddiag.batch.layout import reward_scale
from rounddiag.wording import with_minus

SUCCESS_NAMES = r"((is|was|has)_)?(solved|success(ful)?|passed|won|resolved|correct)"
_UNSET = ("", "false", "0", "no", "none", "null")
_FLAGS = (*_UNSET, "true", "1", "yes")  # a share or a count of successes is none
# What a column of this name says if it is a flag that is set, or a text that is there.
_OF_NAMES = (
    ("error", r"(?!no_)\w*(error|exception)\w*"),
    ("truncated", r"(is_)?(truncated|aborted)"),
)
_FLAG_NAMES = r"(is|has|was)_\w+|truncated|aborted"  # in which 1 is a flag
_NUMBERS = r"[-+\N{MINUS SIGN}]?(\d[\d.,]*(e[-+]?\d+)?|nan|inf)( m?s)?"
# What the text of a status, or of a reason to stop, says, but for what it denies.
_FAULT = r"\w{0,40}(error|exception|crash|trunc)\w*"
_DENIED = (
    rf"(?<![a-z\d])(not?|without|zero|0)[ _-]+(any )?{_FAULT}"
    rf"|\b{_FAULT} ?[:=] ?(0|no|none|null|nil|false)(?=\W*$|[,;)])"
)
# The other words of the text of an error that says no error.
_NO_ERROR = (
    r"(found|occurred|raised|reported|detected|\d+ warnings?"
    r"|none|null|nil|n/a|na|undefined|ok|success)?"
)
_OF_TEXTS = (
    ("error", r"error|exception|crash"),
    ("given up", r"infeasible|give[ns]?.?up|gave.?up"),
    ("truncated", r"trunc|length|max_|limit|time.?out|timed.?out|abort|incomplete"),
    ("failed", r"fail|incorrect|wrong|(un|not.)(re)?(solved|success)"),
    ("solved", r"solved|success|passed|correct|\bwon\b"),
)
# Columns of a status, or of a reason to stop.
STATUS_NAMES = r"status|(finish|stop|end|exit|terminat)\w*_?(reason|condition|status)?"
_GIVEN_UP = r"\b(fail(ed|ure)?|infeasible|call_user)\b"


def successes(batch: Batch) -> list[bool | None]:
    """Return whether each sample's reward says that it succeeded, None if it does not.

    Only the ends of a scale do: one that the batch states, or of rewards that are all 0
    or 1, or all -1 or 1, in the batch that a slice is of. Any other may be shaped, or
    relative to those of its group.
    """
    scale = reward_scale(batch)
    if batch.rewards is None or not scale:
        return [None] * len(batch)
    known = {scale[0]: False, scale[-1]: True}
    return [known.get(reward) for reward in batch.rewards.double().tolist()]


def says_error(name: str, text: str) -> bool:
    """Return whether a column says that something failed: a rate or count does not."""
    return _said(name, text) == "error"


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
        file says comes before the reward; where they contradict each other, both are
        said. An action that gives up comes before a reward of 0: it says more.

    Examples
    --------
    >>> outcome_of([("status", "max_steps")], None, success=False)
    'truncated'
    >>> outcome_of([], {"kind": "finished", "line": "finished fail"}, success=False)
    'given up'
    >>> outcome_of([("status", "success")], None, success=False)
    'solved, but failed by its reward'
    """
    said = {word for name, text in columns if (word := _said(name, text))}
    by_reward = {True: "solved", False: "failed", None: ""}[success]
    for word in ("error", "given up", "truncated", "failed", "solved"):
        if word in said:
            is_other = by_reward and {word, by_reward} == {"solved", "failed"}
            return f"{word}, but {by_reward} by its reward" if is_other else word
    is_last = last is not None and last["kind"] == "finished"
    if is_last and last and re.search(_GIVEN_UP, last["line"], re.IGNORECASE):
        by_reward = by_reward.replace("failed", "") or "given up"
    return by_reward or ("finished" if is_last or "finished" in said else "")


def _said(name: str, text: str) -> str:
    text, is_name = text.strip().lower(), partial(_matches, name)
    is_set = text not in _UNSET
    if is_name(SUCCESS_NAMES):
        return "" if text not in _FLAGS else "solved" if is_set else "failed"
    if not is_set:
        return ""
    for word, pattern in _OF_NAMES:
        if is_name(pattern):
            is_number = _matches(text, _NUMBERS)
            is_flag = text == "1" and is_name(_FLAG_NAMES)
            words = " ".join(re.findall(r"[\w/]+", re.sub(_DENIED, "", text)))
            denies = word == "error" and _matches(words, _NO_ERROR)
            return "" if (is_number and not is_flag) or denies else word
    if is_name(STATUS_NAMES):
        text = re.sub(_DENIED, "", text)
        return next((word for word, said in _OF_TEXTS if re.search(said, text)), "")
    return "finished" if is_name(r"(is_)?(done|completed)") else ""


def _matches(text: str, pattern: str) -> bool:
    return re.fullmatch(pattern, text, re.IGNORECASE) is not None


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
