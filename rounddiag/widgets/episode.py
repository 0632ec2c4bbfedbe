"""What a file says of an episode: its task, its end, its rounds and observations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rounddiag.batch import Batch
from rounddiag.batch.turns import GENERATED
from rounddiag.columns import Column
from rounddiag.schema import COST, SECONDS
from rounddiag.text.chat_template import TURN_ENDS
from rounddiag.widgets.outcomes import (
    STATUS_NAMES,
    SUCCESS_NAMES,
    describe_outcome,
    says_error,
)
from rounddiag.wording import encodable, with_minus

# Columns whose text is the task; others are tried if it has no space, as a name.
_TASKS = (
    *("instruction", "task_instruction", "goal", "task_description", "question"),
    *("problem", "query", "task", "prompt"),
)
# Columns that say how an episode ended, or what failed in it.
_ENDS = re.compile(
    rf"{STATUS_NAMES}|{SUCCESS_NAMES}|(is_)?(done|completed|truncated|terminated|aborted)"
    r"|\w*error\w*|\w*exception\w*|max_(turns|steps)",
    re.IGNORECASE,
)
# Columns of rounds that stand beside their head; a tooltip has all others.
_MAIN = re.compile(
    r"time|second|_m?s$|latency|duration|finish|stop|cached|reward|score|advantage"
    r"|error|parsed",
    re.IGNORECASE,
)
_UNITS = (
    (re.compile(r"_(s|sec|secs|seconds)$"), " s"),
    (re.compile(r"_(ms|millis|milliseconds)$"), " ms"),
)
# Of a file's own bookkeeping, and what the head of a round shows.
_INNER = ("prompt_ids", "prompt_hash", "row", "action", "seconds", "cost")
_PRICES = {SECONDS.name: "s", COST.name: "USD"}
_EXACT = 1 << 53  # up to here float64 has every integer
_MAX_TEXT = 4000  # characters of a text that are sent


def describe_episode(
    sample: Batch, last: dict[str, Any] | None, *, success: bool | None
) -> dict[str, Any]:
    """Describe the end of a sample, a batch of one, whose last action is `last`."""
    said = texts_of_end(sample, 0)
    facts = [
        {"name": _label(name), "text": text, "is_error": says_error(name, text)}
        for name, text in said.items()
    ]
    is_known = last is not None and last["kind"] != "unknown"
    return {
        "facts": facts,
        "last": last["label"] if last and is_known else "",
        "outcome": describe_outcome(sample, said.items(), last, success=success),
    }


def texts_of_end(batch: Batch, sample: int) -> dict[str, str]:
    """Return what columns say of the end of a sample, by their names."""
    return {
        name: text
        for name, column in batch.columns.samples.items()
        if _ENDS.fullmatch(name) and (text := _text_of(column, sample, _MAX_TEXT))
    }


def task_of(sample: Batch, parts: Sequence[dict[str, Any]]) -> str:
    """Return the task of a sample: of a column, else the user's words in the prompt."""
    columns = sample.columns.samples
    texts = [
        _text_of(columns[name], 0, _MAX_TEXT) for name in _TASKS if name in columns
    ]
    said = [part["text"] for part in parts if part["role"] == "user" and part["text"]]
    sentences = [text for text in texts if " " in text]
    return next(iter([*sentences, *said[-1:], *filter(None, texts)]), "")


def round_facts(sample: Batch, num_rounds: int) -> list[list[dict[str, Any]]]:
    """Return what the file has of each round of a sample: names, texts, which first."""
    made = sample.columns.available(["round_advantage"])
    columns = {
        name: column
        for name, column in {**sample.columns.rounds, **made}.items()
        if name not in _INNER and len(column.filled) == num_rounds
    }
    names = sorted(columns, key=lambda name: not _MAIN.search(name))
    return [
        [
            {
                "name": _label(name),
                "text": text,
                "is_main": bool(_MAIN.search(name)) and text != "True",
                "is_error": says_error(name, text),
            }
            for name in names
            if (text := _text_of(columns[name], index, _MAX_TEXT))
        ]
        for index in range(num_rounds)
    ]


def round_costs(sample: Batch, num_rounds: int) -> list[str]:
    """Return the seconds and the price of each round, as far as recorded."""
    columns = sample.columns.rounds
    known = {
        name: columns[name]
        for name in (SECONDS.name, COST.name)
        if name in columns and columns[name].kind == "number"
    }
    return [
        " · ".join(
            f"{column.filled[index]:.3g} {_PRICES[name]}"
            for name, column in known.items()
            if column.is_known()[index]
        )
        for index in range(num_rounds)
    ]


def recorded_actions(sample: Batch, num_rounds: int) -> list[str]:
    """Return the action that the file has of each round, empty where it has none."""
    column = sample.columns.rounds.get("action")
    if column is None or len(column.filled) != num_rounds:
        return [""] * num_rounds
    return texts_at(column, num_rounds)


def texts_at(column: Column, num_rounds: int) -> list[str]:
    """Return the values of a column of rounds as text, empty where unknown."""
    return [_text_of(column, index) for index in range(num_rounds)]


def _label(name: str) -> str:
    """Return the words of a column's name; the unit stands after its value."""
    for unit, _ in _UNITS:
        name = unit.sub("", name)
    return name.replace("_", " ")


def _text_of(column: Column, row: int, max_length: int | None = None) -> str:
    """Return a value as text with its unit; empty where it is unknown."""
    if not column.is_known()[row]:
        return ""
    value = column.filled[row]
    unit = next((unit for name, unit in _UNITS if name.search(column.name)), "")
    if column.kind in ("number", "name"):
        is_whole = float(value).is_integer() and abs(value) < _EXACT
        return with_minus(str(int(value)) if is_whole else f"{value:.6g}") + unit
    return encodable(str(value))[:max_length]


# The words of observations, without the marks of a chat template.

_OPENERS = ("<|im_start|>", "<|start_header_id|>", "<|start|>", "<start_of_turn>")
_CLOSERS = ("<|end_header_id|>", "<|message|>")
_ROLES = ("system", "user", "assistant", "tool", "observation", "model", "ipython")
_MARK = re.compile(
    r"<[|\uff5c][^<>]{1,40}[|\uff5c]>|</?s>|<(?:start|end)_of_turn>|<[be]os>"
    r"|\[/?INST\]"
)


def read_turns(
    pieces: Sequence[str], is_image: Sequence[bool], special: Collection[str]
) -> list[dict[str, Any]]:
    r"""Return the messages of a stretch of a chat: role, text, pictures, error.

    The error is the first line that says a failure; "" without one.

    Parameters
    ----------
    pieces : sequence of str
        One a token; of adjacent image tokens, one.
    is_image : sequence of bool
    special : collection of str
        The special tokens of the tokenizer, if it tells them. What a page wrote is
        never a mark: it is several tokens.

    Examples
    --------
    >>> text = ["<|im_start|>", "tool", "\n", "no such file", "<|im_end|>"]
    >>> read_turns(text, [False] * 5, [])
    [{'role': 'tool', 'text': 'no such file', 'num_images': 0, 'error': ''}]
    """
    return [*_turns(pieces, is_image, special)]


def said_between(
    batch: Batch, sample: int, num_rounds: int
) -> list[list[dict[str, Any]]] | None:
    """Return the messages before, between and after the rounds of a batch with turns.

    None where the turns of `assistant` are not the rounds.
    """
    if batch.turns is None:
        return None
    gaps: list[list[dict[str, Any]]] = [[]]
    for turn in batch.turns[sample]:
        if turn.role == GENERATED:
            gaps.append([])
        else:
            gaps[-1] += _turn(turn.role, [_shortened(turn.text)], turn.num_images)
    return gaps if len(gaps) == num_rounds + 1 else None


def _shortened(text: str) -> str:
    """Leave out the middle of a text: tools write their errors at the end."""
    hidden = len(text) - _MAX_TEXT
    if hidden <= 0:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n… {hidden:,} characters …\n{text[-half:]}"


def _turns(
    pieces: Sequence[str], is_image: Sequence[bool], special: Collection[str]
) -> Iterator[dict[str, Any]]:
    role, words, images, is_head = "", list[str](), 0, False
    for piece, picture in zip(pieces, is_image, strict=True):
        is_mark = not picture and (piece in special or bool(_MARK.fullmatch(piece)))
        inner = piece.strip("<|\uff5c>[]/").lower()
        if picture:
            images += 1
        elif piece in _CLOSERS:
            role, words, is_head = "".join(words).strip(), [], False
        elif is_mark and (piece in (*_OPENERS, *TURN_ENDS) or inner in _ROLES):
            yield from _turn(role, words, images)
            role, words, images = inner if inner in _ROLES else "", [], 0
            is_head = piece in _OPENERS
        elif is_head and "\n" in piece:
            before, _, after = piece.partition("\n")
            role, words, is_head = "".join([*words, before]).strip(), [after], False
        elif not is_mark:
            words.append(piece)
    yield from _turn("" if is_head else role, [] if is_head else words, images)


# A line that says a failure, as tools and languages write it.
_FAILURE = re.compile(
    r"\s*(Traceback \(most recent call last\)|[\w.]*(Error|Exception)(:|$)"
    r"|(error|ERROR):)",
    re.ASCII,
)


def _turn(role: str, words: Sequence[str], images: int) -> Iterator[dict[str, Any]]:
    text = "".join(words).strip()
    error = next(filter(_FAILURE.match, text.split("\n")), "")
    if text or images:
        yield {"role": role, "text": text, "num_images": images, "error": error}
