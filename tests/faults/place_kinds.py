"""The kinds of places that are planted, and what a sentence must say to name one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from rounddiag.text import pieces
from tests.faults.planted import Place
from tests.faults.step_texts import tokenizer
from tests.faults.steps import Array

# The parts of a place; a value is drawn from the step for each of them.
KINDS: dict[str, tuple[str, ...]] = {
    "coordinates": ("coordinates",),
    "typed text": ("typed text",),
    "rank": ("rank",),
    "application": ("application",),
    "round from": ("round from",),
    "round up to": ("round up to",),
    "first tokens": ("first tokens",),
    "token id": ("token id",),
    "coordinates, rank, round from": ("coordinates", "rank", "round from"),
    "application, a role": ("application", "a role"),
    "rank, first tokens": ("rank", "first tokens"),
    "status, round from": ("status", "round from"),
    "few: coordinates, replica": ("coordinates", "replica"),
}
FURTHER: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "weight version": ("weight_version",),
    "last round": ("last round",),
    "last tokens": ("last tokens",),
    "first tokens, round from": ("first tokens", "round from"),
    "rank, round up to": ("rank", "round up to"),
    "weight version, a role": ("weight_version", "a role"),
    "rank, token id": ("rank", "token id"),
    "few: replica, round from": ("replica", "round from"),
    "few: replica, a role, round from": ("replica", "a role", "round from"),
    "block of samples": ("block of samples",),
    "every n-th sample": ("every n-th sample",),
    "set of samples": ("set of samples",),
    "block of samples, a role": ("block of samples", "a role"),
    "every n-th sample, round from": ("every n-th sample", "round from"),
}
_NUM_SAMPLES = 128
_MIN_RARE, _RARE_SHARE = 12, 0.05
_MIN_WEAK = 300
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")


def _block(rng: np.random.Generator) -> Array:
    """Neighbours that are no whole groups of 8."""
    size, first = int(rng.integers(5, 20)), int(rng.integers(1, 100))
    return np.arange(first, first + size)


def _every(rng: np.random.Generator) -> tuple[int, int]:
    """A period that is none of the columns: ranks take turns by 8."""
    period = int(rng.choice([3, 5, 6, 7]))
    return period, int(rng.integers(period))


_DRAWS: dict[str, tuple[str, str, Callable[[np.random.Generator], Any]]] = {
    "coordinates": ("role", "==", lambda _: "coordinates"),
    "typed text": ("role", "==", lambda _: "typed text"),
    "a role": (
        *("role", "=="),
        lambda rng: str(rng.choice(["coordinates", "typed text", "thought"])),
    ),
    "round from": ("round", ">=", lambda rng: int(rng.integers(3, 11))),
    "round up to": ("round", "<=", lambda rng: int(rng.integers(0, 4))),
    "first tokens": ("token", "<", lambda rng: int(rng.integers(2, 7))),
    "last tokens": ("tokens_left", "<", lambda rng: int(rng.integers(3, 9))),
    "last round": ("rounds_left", "==", lambda _: 0),
    "block of samples": ("sample", "in", _block),
    "every n-th sample": ("sample", "every", _every),
    "set of samples": (
        *("sample", "in"),
        lambda rng: np.sort(rng.permutation(_NUM_SAMPLES)[: rng.integers(6, 20)]),
    ),
}


def draw_place(kind: str, seed: int, frame: pd.DataFrame) -> Place:
    """Draw a place of a kind in a step.

    Parameters
    ----------
    kind : str
        A key of KINDS or FURTHER.
    seed : int
    frame : DataFrame
        From `place_columns`.
    """
    names = [*KINDS, *FURTHER]
    rng = np.random.default_rng([seed, 4, names.index(kind)])
    place: dict[str, tuple[str, Any]] = {}
    for part in {**KINDS, **FURTHER}[kind]:
        if part in _DRAWS:
            column, relation, draw = _DRAWS[part]
            place[column] = (relation, draw(rng))
        elif part == "token id":
            place["token_id"] = ("==", _token_id(rng, frame))
        else:
            value = rng.choice(np.unique(frame[part].to_numpy().astype(object)))
            place[part] = ("==", value if isinstance(value, str) else int(value))
    return place


def _token_id(rng: np.random.Generator, frame: pd.DataFrame) -> int:
    """A digit, or a word of the thoughts that is neither common nor rare."""
    digits = frame.loc[frame["role"] == "coordinates", "token_id"].unique()
    if rng.random() < 0.5:
        return int(rng.choice(digits))
    counts = frame.loc[frame["role"] == "thought", "token_id"].value_counts()
    share = counts / len(frame)
    known = np.sort(counts.index[share.between(0.001, 0.01)].to_numpy())
    texts = pieces(known, tokenizer())
    words = [i for i, text in zip(known, texts, strict=True) if text.strip().isalpha()]
    return int(rng.choice(words or digits))


def draw_strength(kind: str, seed: int, num_tokens: int) -> str:
    """The strengths in turn; a stronger one where a place has too few tokens for it."""
    names = [*KINDS, *FURTHER]
    strength = ("rare", "weak", "all")[(names.index(kind) + seed) % 3]
    # Ends of turns have a probability near 1: three times their noise is nothing.
    if strength == "weak" and (kind == "last tokens" or num_tokens < _MIN_WEAK):
        strength = "rare"
    is_few = num_tokens * _RARE_SHARE < _MIN_RARE
    return "all" if strength == "rare" and is_few else strength


def is_named(text: str, column: str, relation: str, value: Any) -> bool:
    """Return whether a sentence names a condition.

    A role by its name, a number of a column by the column's name with it, other values
    by themselves, a round and a count of tokens by the number, a token by its text in
    quotes, by a word of it, or by its id.

    Examples
    --------
    >>> is_named("all on rank 3, from round 5 on", "rank", "==", 3)
    True
    >>> is_named("all on rank 3, from round 5 on", "round", ">=", 4)
    False
    """
    patterns = _patterns(column, relation, value)
    return any(re.search(pattern, text.lower()) for pattern in patterns)


def _patterns(column: str, relation: str, value: Any) -> tuple[str, ...]:
    name = column.replace("_", "[ _]")
    patterns: tuple[str, ...]
    match column, relation:
        case "role", _:
            # "coordinate tokens" and "coordinates" are the same.
            patterns = (rf"\b{value.removesuffix('s')}",)
        case "round", ">=":
            patterns = (rf"\b(?:from|before|since) round {value}\b",)
            patterns += (rf"\bround(?: >=| ≥) {value}\b",)
        case "round", _:
            patterns = _up_to(value)
        case "token", _:
            patterns = (rf"\bfirst {_count(value)} (?:\w+ )?tokens?\b",)
        case "tokens_left", _:
            patterns = (rf"\blast {_count(value)} (?:\w+ )?tokens?\b",)
        case "rounds_left", _:
            patterns = (r"\blast rounds?\b",)
        case "token_id", _:
            patterns = _token(value)
        case "sample", _:
            patterns = _samples(relation, value)
        case _ if isinstance(value, str):
            patterns = (rf"(?<!\w){re.escape(value)}(?!\w)",)
        case _:
            patterns = (rf"\b{name}\b`?\s*(?:=|==|is|:)?\s*{value}\b",)
    return patterns


def _up_to(value: int) -> tuple[str, ...]:
    first = (r"\bfirst round\b", r"\bround 0\b") if value == 0 else ()
    return (
        rf"\b(?:to|until|after|through) round {value}\b",
        rf"\brounds \d+ (?:to|through) {value}\b",
        rf"\bbefore round {value + 1}\b",
        rf"\bfirst {_count(value + 1)} rounds?\b",
        rf"\bround(?: <=| ≤) {value}\b",
        rf"\bround < {value + 1}\b",
        *first,
    )


def _samples(relation: str, value: Any) -> tuple[str, ...]:
    if relation == "every":
        nth = {2: "second", 3: "third"}.get(value[0], f"{value[0]}th")
        return (rf"every {nth} sample from sample {value[1]} on",)
    if len(value) == np.ptp(value) + 1:
        return (rf"samples {value[0]} to {value[-1]}\b",)
    listed = ", ".join(map(str, value[:3]))
    return (rf"samples {listed} and {len(value) - 3} more\b",)


def _token(value: int) -> tuple[str, ...]:
    piece = re.escape(pieces([value], tokenizer())[0].strip().lower())
    quoted = rf"[\"'`“«][\s·]?{piece}[\"'`”»]"
    word = (rf"\b{piece}\b",) if piece.isalpha() and len(piece) > 4 else ()
    return (quoted, rf"\bid {value}\b", *word)


def _count(value: int) -> str:
    return rf"(?:{value}|{_NUMBERS[value]})" if value < len(_NUMBERS) else str(value)
