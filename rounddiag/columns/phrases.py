"""A condition on a column in words: "on rank 3", "from round 5 on"."""

from __future__ import annotations

from collections.abc import Callable

from rounddiag.columns.column import is_identifier
from rounddiag.wording import with_minus

_MAX_LABEL = 20


def condition_value(value: object, label: str = "") -> str:
    """Write a value of a condition, or the start of its label.

    Examples
    --------
    >>> condition_value(0.123456), condition_value(3)
    ('0.1235', '3')
    """
    if label:
        return label[:_MAX_LABEL]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_ROLES = {
    "coordinates": "coordinates",
    "typed text": "typed text",
    "other arguments": "other arguments of actions",
    "thought": "thoughts",
    "action": "names of actions",
    "syntax": "syntax of actions",
    "special": "special tokens",
    "other": "text outside of thoughts and actions",
}


def phrase(name: str, relation: str, value: object, label: str = "") -> str:
    """Return a condition as part of a sentence.

    The label is what a number stands for: the text of a token id, or a set of samples.

    Examples
    --------
    >>> phrase("rank", "=", 3), phrase("round", ">=", 5)
    ('on rank 3', 'from round 5 on')
    """
    text = condition_value(value, label)
    if label and name != "token_id":
        return label
    if name in _PHRASES:
        return _PHRASES[name](relation, value, text)
    plain = name.replace("_", " ")
    if isinstance(value, tuple):
        first = ", ".join(map(condition_value, value[:-1]))
        listed = f"{first} or {condition_value(value[-1])}"
        return f"{'on' if is_identifier(name) else 'with'} {plain} {listed}"
    if isinstance(value, bool):
        return plain if value else f"not {plain}"
    if isinstance(value, int) and relation != "=":
        text = f"{value:,}"
    if isinstance(value, int | float):
        text = with_minus(text)
    if relation == "=":
        return f"{'on' if is_identifier(name) else 'with'} {plain} {text}"
    return f"with {plain} {text} or {'more' if relation == '>=' else 'less'}"


def _round(relation: str, value: object, text: str) -> str:
    if relation == ">=":
        return f"from round {text} on"
    is_range = relation == "<=" and value != 0
    return f"in rounds 0 to {text}" if is_range else f"in round {text}"


def _token(_: str, value: object, text: str) -> str:
    is_id = text in (str(value), f"⟨{value}⟩")
    return f"token id {value}" if is_id else f"the token {text!r}"


def _ends(which: str) -> Callable[[str, object, str], str]:
    def phrase(_: str, value: object, text: str) -> str:
        if value == 1:
            return f"at the {which} token of rounds"
        return f"in the {which} {text} tokens of rounds"

    return phrase


def _images(relation: str, value: object, text: str) -> str:
    if relation == ">=" and value == 1:
        return "after the first image"
    if relation == "<=" and value == 0:
        return "without an image in context"
    return f"with {text} or {_more(relation)} images in context"


def _num_rounds(relation: str, _: object, text: str) -> str:
    many = text if relation == "=" else f"{text} or {_more(relation)}"
    return f"in samples of {many} rounds"


def _more(relation: str) -> str:
    return "more" if relation == ">=" else "fewer"


_PHRASES: dict[str, Callable[[str, object, str], str]] = {
    "role": lambda _, __, text: _ROLES.get(text, text),
    "token_id": _token,
    "round": _round,
    "last_round": lambda _, value, __: (
        "in the last round" if value else "before the last round"
    ),
    "first_tokens": _ends("first"),
    "last_tokens": _ends("last"),
    "decoding_step": lambda _, value, __: f"from generated token {value:,} on",
    "context_length": lambda _, value, __: f"from context position {value:,} on",
    "last_of_longest": lambda _, __, text: (
        f"in the last {text} tokens before the length limit"
    ),
    "images_seen": _images,
    "since_image": lambda _, value, __: (
        f"{value:,} or more tokens after the last screenshot"
    ),
    "after_image": lambda _, __, text: f"in the first {text} tokens after a screenshot",
    "num_rounds": _num_rounds,
}
