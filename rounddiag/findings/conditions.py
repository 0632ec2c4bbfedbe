"""Conditions on columns: what a place is made of, and how a sentence names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from rounddiag.core.columns import to_numpy, token_roles
from rounddiag.errors import RounddiagError
from rounddiag.schema.columns import ORIGINAL_SAMPLE
from rounddiag.text import pieces
from rounddiag.wording import encodable, with_minus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from typing_extensions import Self

    from rounddiag._typing import Array
    from rounddiag.findings.view import View

Scope: TypeAlias = Literal["sample", "round", "token"]
Relation: TypeAlias = Literal["=", ">=", "<=", "in"]
# A column with more distinct values names nobody, and numbers are cut into this many.
_MAX_VALUES, _MAX_GROUPS, _EDGES = 64, 1024, 16
_FEWEST = 2  # values of a column that can tell tokens apart
_STEPS = 32
# Numbers that are names: no order is meant by them.
_NAMES = re.compile(r"rank|replica|worker|node|gpu|host|shard|micro|pack|\bid\b|_id$")
# Columns in the order in which a sentence says them; others are between the two parts.
_SAID_FIRST = ("role", "token_id", "first_tokens", "last_tokens")
_SAID_LAST = (
    *("num_rounds", "round", "last_round", "images_seen", "decoding_step"),
    *("since_image", "after_image", "context_length", "last_of_longest"),
)
_ENDS = range(1, 17)  # first and last tokens of a round
# Context positions from which a cast to bfloat16 rounds, coarser at each.
POWERS = 2 ** np.arange(8, 17)
# What a column is about, by its name.
VERSIONS = re.compile(r"version|global_step|policy_step|staleness|lag", re.IGNORECASE)
CACHES = re.compile(r"cached", re.IGNORECASE)
PACKS = re.compile(r"pack|cu_seqlen", re.IGNORECASE)
WORKERS = re.compile(
    r"rank|replica|worker|engine|server|node|host|gpu|device|shard|dp|micro_batch|"
    r"actor|instance",
    re.IGNORECASE,
)
_AT_LIMIT = 0.98  # of the length of the longest sample
_LAST = (3, 6, 12, 24)  # tokens before the limit
_MAX_ID_TEXT = 20
# Of columns that describe the same tokens, the first here, then names, then numbers.
_LEAST_PLAIN = "set_of_samples"
_PLAIN = ("role", "round", "last_round", "first_tokens", "last_tokens", "token_id")


@dataclass(frozen=True)
class Condition:
    """One condition on one column, such as `rank = 3` or `round >= 5`.

    Attributes
    ----------
    column : str
    relation : {"=", ">=", "<=", "in"}
    value : object
        A number, a text, or a bool; a tuple of them for `in`.
    text : str
        The condition as part of a sentence: "on rank 3", "from round 5 on".

    Examples
    --------
    >>> print(Condition("round", ">=", 5, "from round 5 on"))
    round >= 5
    """

    column: str
    relation: Relation
    value: object
    text: str

    def __str__(self) -> str:
        return f"{self.column} {self.relation} {_value_text(self.value)}"


@dataclass(frozen=True, eq=False)
class ColumnOfTokens:
    """A column with a code for each token of a view.

    Attributes
    ----------
    name : str
    scope : {"sample", "round", "token"}
        What has a value of its own.
    codes : int32 array, one a token
        Index in `values`; -1 where the value is missing.
    values : sequence
        Sorted if `relations` has an order.
    relations : tuple of str
        Which conditions make sense: `=`, `>=`, `<=`; `in` for a set of values.
    selection_penalty : float
        Logarithm of the number of sets among which the data chose this one.
    """

    name: str
    scope: Scope
    codes: Array
    values: Sequence[object]
    relations: tuple[Relation, ...]
    selection_penalty: float = 0.0

    @property
    def rank(self) -> int:
        """How far down it is among columns that describe the same tokens."""
        if self.name in _PLAIN:
            return _PLAIN.index(self.name)
        if self.selection_penalty:
            return len(_PLAIN) + 2 + (self.name == _LEAST_PLAIN)
        return len(_PLAIN) + (len(self.relations) > 1)

    def condition(self, relation: Relation, code: int) -> Condition:
        """Return the condition that a code stands for."""
        value = self.values[code]
        return Condition(
            self.name, relation, value, _phrase(self.name, relation, value)
        )


def columns_of_tokens(view: View) -> list[ColumnOfTokens]:
    """Return every column of a view that can name a place, without the token ids."""
    found = [*_of_samples(view), *_of_rounds(view), *_of_tokens(view)]
    return [one for one in found if len(one.values) > 1]


def token_id_column(view: View, ids: Array) -> ColumnOfTokens:
    """Return the column of these token ids; other tokens have no value."""
    ids = np.sort(ids)
    at = np.minimum(np.searchsorted(ids, view.token_id), max(len(ids) - 1, 0))
    codes = np.where(ids[at] == view.token_id, at, -1).astype(np.int32)
    texts = _texts(view, ids)
    return ColumnOfTokens("token_id", "token", codes, texts, ("=",))


def _texts(view: View, ids: Array) -> list[object]:
    try:
        found = pieces(ids, view.batch.tokenizer, visible_whitespace=True)
    except (RounddiagError, OSError):
        found = pieces(ids, None)
    return [Named(int(one), text) for one, text in zip(ids, found, strict=True)]


class Named(int):
    """A number that prints as a text: a token id, or a set of samples."""

    text: str

    def __new__(cls, number: int, text: str) -> Self:
        """Return the number with its text."""
        one = super().__new__(cls, number)
        one.text = text
        return one

    def __reduce__(self) -> tuple[type[Self], tuple[int, str]]:
        """Pickle it with its text: a Diagnosis comes from a child process."""
        return type(self), (int(self), self.text)


def _of_samples(view: View) -> Iterator[ColumnOfTokens]:
    batch, facts = view.batch, view.facts
    values: dict[str, Array] = dict(facts.sample_columns)
    values.pop(ORIGINAL_SAMPLE.name, None)  # numbers of rows describe nothing
    if batch.rewards is not None:
        values.setdefault("reward", batch.rewards.double().cpu().numpy())
    if batch.group_ids is not None:
        values["group_id"] = np.asarray(batch.group_ids, dtype=object)
    owner = to_numpy(batch.rounds.sample)
    values["num_rounds"] = np.bincount(owner, minlength=batch.num_samples)
    for name, column in values.items():
        made = _encode(name, column)
        if made is not None:
            yield ColumnOfTokens(name, "sample", made[0][view.sample], made[1], made[2])
    if batch.advantages is not None:
        advantages = to_numpy(batch.advantages)[view.flat].astype(float)
        made = _encode("advantage", advantages)
        if made is not None:
            yield ColumnOfTokens("advantage", "token", *made)


def _of_rounds(view: View) -> Iterator[ColumnOfTokens]:
    facts = view.facts
    last = int(view.round.max(initial=0))
    yield ColumnOfTokens(
        "round",
        "round",
        view.round.astype(np.int32),
        range(last + 1),
        ("=", ">=", "<="),
    )
    owner = to_numpy(view.batch.rounds.sample)
    is_last = np.r_[owner[1:] != owner[:-1], True][: len(owner)]
    yield ColumnOfTokens(
        "last_round",
        "round",
        is_last[view.segment].astype(np.int32),
        (False, True),
        ("=",),
    )
    for name, column in facts.round_columns.items():
        if name in facts.sample_columns:
            continue
        made = _encode(name, column)
        if made is not None:
            yield ColumnOfTokens(name, "round", made[0][view.segment], made[1], made[2])
    if view.has_images and view.images is not None:
        made = _encode("images_seen", view.images)
        if made is not None:
            yield ColumnOfTokens("images_seen", "round", *made[:2], (">=", "<="))


def _of_tokens(view: View) -> Iterator[ColumnOfTokens]:
    role = read_roles(view)
    if role is not None:
        names, codes = role
        yield ColumnOfTokens("role", "token", codes.astype(np.int32), names, ("=",))
    num = to_numpy(view.batch.rounds.num_tokens)[view.segment]
    ends = (("first_tokens", view.token), ("last_tokens", num - 1 - view.token))
    for name, away in ends:
        codes = np.where(away < len(_ENDS), away, -1).astype(np.int32)
        yield ColumnOfTokens(name, "token", codes, _ENDS, ("<=",))
    written = view.num_before
    # The first tokens of responses agree by nature: no place is all but these.
    edges = np.unique(
        np.quantile(written, np.linspace(0, 1, _STEPS + 1)[_STEPS // 4 : -1])
    )
    edges = edges.astype(np.int64)
    step = (np.searchsorted(edges, written, side="right") - 1).astype(np.int32)
    yield ColumnOfTokens("decoding_step", "token", step, edges.tolist(), (">=",))
    yield from _of_images(view)
    yield from _of_context(view)
    yield from _of_longest(view)


def _of_images(view: View) -> Iterator[ColumnOfTokens]:
    """Yield how many tokens were generated since the last screenshot.

    Where each round begins with one, that is the place in the round.
    """
    if view.images is None or not view.has_images:
        return
    is_new = np.diff(view.sample, prepend=-1) != 0
    is_new |= np.diff(view.images, prepend=-1) != 0
    first = np.maximum.accumulate(np.where(is_new, np.arange(len(view)), 0))
    since = view.num_before - view.num_before[first]
    is_after = view.images > 0
    if (since == view.token)[is_after].all():
        return
    edges = np.unique(np.quantile(since[is_after], np.linspace(0, 1, _EDGES + 1)[:-1]))
    edges = np.unique(edges.astype(np.int64))
    codes = np.searchsorted(edges, since, side="right") - 1
    codes = np.where(is_after, codes, -1).astype(np.int32)
    yield ColumnOfTokens("since_image", "token", codes, edges.tolist(), (">=",))
    codes = np.where(is_after & (since < len(_ENDS)), since, -1).astype(np.int32)
    yield ColumnOfTokens("after_image", "token", codes, _ENDS, ("<=",))


def _of_context(view: View) -> Iterator[ColumnOfTokens]:
    """Yield the powers of two that the length of the context has reached."""
    if view.facts.prompt_length is None:
        return
    place = view.position + view.facts.prompt_length[view.sample]
    power = np.searchsorted(POWERS, place, side="right") - 1
    last = int(power.max(initial=-1))
    if last >= 0:
        yield ColumnOfTokens(
            "context_length",
            "token",
            power.astype(np.int32),
            POWERS[: last + 1].tolist(),
            (">=",),
        )


def _of_longest(view: View) -> Iterator[ColumnOfTokens]:
    """Yield the last tokens of the samples that reach the maximum length."""
    lengths = to_numpy(view.batch.lengths)
    is_longest = lengths >= _AT_LIMIT * lengths.max(initial=0)
    if not 1 < is_longest.sum() < len(lengths):
        return
    left = lengths[view.sample] - view.position
    codes = np.searchsorted(_LAST, left)
    is_end = is_longest[view.sample] & (codes < len(_LAST))
    codes = np.where(is_end, codes, -1).astype(np.int32)
    yield ColumnOfTokens("last_of_longest", "token", codes, _LAST, ("<=",))


def _encode(
    name: str, column: Array
) -> tuple[Array, list[object], tuple[Relation, ...]] | None:
    """Return codes, values and relations; None for a column that names no place."""
    if column.dtype.kind in "mM":
        return None
    if column.dtype.kind in "iufb":
        return _encode_numbers(name, column)
    missing = np.array(
        [
            value is None or (isinstance(value, float) and np.isnan(value))
            for value in column
        ],
        bool,
    )
    text = np.array([encodable(str(value)) for value in column], dtype=object)
    known, codes = np.unique(text, return_inverse=True)
    most = _MAX_GROUPS if name == "group_id" else _MAX_VALUES
    if not 1 < len(known) <= most or len(known) > max(len(column) / 2, 2):
        return None
    codes = np.where(missing, -1, codes).astype(np.int32)
    return codes, known.tolist(), ("=",)


def _encode_numbers(
    name: str, column: Array
) -> tuple[Array, list[object], tuple[Relation, ...]] | None:
    finite = (
        np.isfinite(column) if column.dtype.kind == "f" else np.ones(len(column), bool)
    )
    known = np.unique(column[finite])
    if len(known) < _FEWEST:
        return None
    is_name = _NAMES.search(name) is not None
    relations: tuple[Relation, ...] = ("=",)
    if len(known) > _MAX_VALUES:
        if is_name:
            return None
        cuts = np.quantile(known, np.linspace(0, 1, _EDGES + 1)[:-1], method="lower")
        known, relations = np.unique(cuts), (">=", "<=")
        codes = np.searchsorted(known, column, side="right") - 1
    else:
        if not is_name and column.dtype.kind != "b" and len(known) > _FEWEST:
            relations = ("=", ">=", "<=")
        codes = np.searchsorted(known, column)
    codes = np.where(finite, codes, -1).astype(np.int32)
    return codes, [value.item() for value in known], relations


def read_roles(view: View) -> tuple[list[str], Array] | None:
    """Return the names of the roles, and the code of each token's role.

    None without a tokenizer, or with one that cannot be read.
    """
    batch, memo = view.batch, view.facts.memo
    if batch.tokenizer is None or batch.is_redacted:
        return None
    if "roles" not in memo:
        try:
            memo["roles"] = token_roles(batch)
        except (RounddiagError, OSError):
            memo["roles"] = None  # one that must be downloaded, or no longer exists
    known = memo["roles"]
    if known is None:
        return None
    num = to_numpy(batch.rounds.num_tokens)
    before = np.cumsum(num) - num
    codes = known.codes[before[view.segment] + view.token]
    return [str(name) for name in known.categories], codes


def _value_text(value: object) -> str:
    if isinstance(value, Named):
        return value.text[:_MAX_ID_TEXT]
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


_ROLES = {
    "coordinates": "coordinates",
    "typed text": "typed text",
    "thought": "thoughts",
    "action": "names of actions",
    "syntax": "syntax of actions",
    "special": "special tokens",
    "other": "text outside of thoughts and actions",
}


def sort_for_sentence(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Sort conditions: what is written, who wrote it, when."""

    def place(one: Condition) -> int:
        if one.column in _SAID_FIRST:
            return _SAID_FIRST.index(one.column) - len(_SAID_FIRST)
        return _SAID_LAST.index(one.column) + 1 if one.column in _SAID_LAST else 0

    return tuple(sorted(conditions, key=place))


def _phrase(name: str, relation: str, value: object) -> str:
    """Return a condition in words."""
    text = _value_text(value)
    if isinstance(value, Named) and name != "token_id":
        return value.text
    if name in _PHRASES:
        return _PHRASES[name](relation, value, text)
    plain = name.replace("_", " ")
    if isinstance(value, tuple):
        first = ", ".join(map(_value_text, value[:-1]))
        listed = f"{first} or {_value_text(value[-1])}"
        return f"{'on' if _NAMES.search(name) else 'with'} {plain} {listed}"
    if isinstance(value, bool):
        return plain if value else f"not {plain}"
    if isinstance(value, int) and relation != "=":
        text = f"{value:,}"
    if isinstance(value, int | float):
        text = with_minus(text)
    if relation == "=":
        return f"{'on' if _NAMES.search(name) else 'with'} {plain} {text}"
    return f"with {plain} {text} or {'more' if relation == '>=' else 'less'}"


def _round(relation: str, value: object, text: str) -> str:
    if relation == ">=":
        return f"from round {text} on"
    is_range = relation == "<=" and value != 0
    return f"in rounds 0 to {text}" if is_range else f"in round {text}"


def _token(_: str, value: object, text: str) -> str:
    has_text = isinstance(value, Named) and text != f"⟨{int(value)}⟩"
    return f"the token {text!r}" if has_text else f"token id {text.strip('⟨⟩')}"


def _ends(which: str) -> Callable[[str, object, str], str]:
    def phrase(_: str, value: object, text: str) -> str:
        if value == 1:
            return f"at the {which} token of rounds"
        return f"in the {which} {text} tokens of rounds"

    return phrase


def _images(relation: str, value: object, text: str) -> str:
    if relation == ">=" and value == 1:
        return "after the first image"
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
