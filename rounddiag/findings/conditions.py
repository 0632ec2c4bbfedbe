"""The columns of a batch that can name a place, with a code for each token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rounddiag._typing import Array
from rounddiag.columns import Column, Scope
from rounddiag.columns.phrases import phrase
from rounddiag.columns.predicates import Condition, Relation
from rounddiag.core.columns import to_numpy, token_roles
from rounddiag.core.groups import trajectory_columns
from rounddiag.core.images_seen import PICTURE_COLUMNS
from rounddiag.errors import RounddiagError
from rounddiag.findings.view import View
from rounddiag.schema.columns import ORIGINAL_SAMPLE
from rounddiag.text import pieces
from rounddiag.vision.screenshots import StoredScreenshot

# A column of names has at most so many distinct values, one of groups more; numbers are
# cut at so many edges. A column with more values would name single samples.
_MAX_VALUES, _MAX_GROUPS, _EDGES = 64, 1024, 16
_MIN_VALUES = 2  # with a single value, a column tells no tokens apart
_STEPS = 32  # quantiles of the decoding steps at which a place may begin
_ORDER: tuple[Relation, ...] = ("=", ">=", "<=")
_ENDS = range(1, 17)  # first and last tokens of a round
# Positions in the context from which bfloat16 rounds positions, coarser at each.
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
# Which of several columns with the same tokens is named: the first of `_PLAIN`, then
# columns of names, then of numbers, and a set of samples last.
_LEAST_PLAIN = "set_of_samples"
_PLAIN = ("role", "round", "last_round", "first_tokens", "last_tokens", "token_id")


@dataclass(frozen=True, eq=False)
class ColumnOfTokens:
    """A column with a code for each token of a view.

    Attributes
    ----------
    scope: What has a value of its own.
    codes: int32 array, one a token. Index in `values`; -1 where the value is missing.
    values: Sorted if `relations` has an order.
    relations: Which conditions make sense: `=`, `>=`, `<=`; `in` for a set of values.
    selection_penalty: Logarithm of the number of sets among which the data chose this
        one.
    labels: What each value stands for, where it is a number of something.
    """

    name: str
    scope: Scope
    codes: Array
    values: Sequence[object]
    relations: tuple[Relation, ...]
    selection_penalty: float = 0.0
    labels: Sequence[str] = ()

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
        value, label = self.values[code], self.labels[code] if self.labels else ""
        text = phrase(self.name, relation, value, label)
        return Condition(self.name, relation, value, text, label)


def columns_of_tokens(view: View) -> list[ColumnOfTokens]:
    """Return every column of a view that can name a place, without the token ids."""
    if "columns" not in view.memo:
        view.memo["columns"] = _read_columns(view)
    return view.memo["columns"]


def _read_columns(view: View) -> list[ColumnOfTokens]:
    of_tokens = [column for column in _of_tokens(view) if len(column.values) > 1]
    columns = [*_of_samples(view), *_of_rounds(view), *of_tokens]
    versions = [column for column in columns if VERSIONS.search(column.name)]
    names = {*view.batch.columns.extra_names} - {column.name for column in versions}
    return [
        column
        for column in columns
        if column.name not in names
        or explains(column.name)
        or not any(same_partition(column.codes, version.codes) for version in versions)
    ]


def explains(name: str) -> bool:
    """Return whether a column explains a mismatch as well as a version does.

    Any other that parts tokens as the versions do, such as the time of sampling, is one
    column with them.
    """
    return any(names.search(name) for names in (WORKERS, CACHES, PACKS))


def same_partition(codes: Array, others: Array) -> bool:
    """Return whether two columns of codes, from -1 on, part their rows alike.

    Examples
    --------
    >>> same_partition(np.array([0, 0, 1]), np.array([7, 7, -1]))
    True
    """
    sizes, other_sizes = (np.bincount(part + 1) for part in (codes, others))
    sizes, other_sizes = (np.sort(part[part > 0]) for part in (sizes, other_sizes))
    if not np.array_equal(sizes, other_sizes):
        return False
    pairs = codes.astype(np.int64) * (int(others.max(initial=-1)) + 2) + others
    return len(np.unique(pairs)) == len(sizes)


def token_id_column(view: View, ids: Array) -> ColumnOfTokens:
    """Return the column of these token ids; other tokens have no value."""
    ids = np.sort(ids)
    at = np.minimum(np.searchsorted(ids, view.token_id), max(len(ids) - 1, 0))
    codes = np.where(ids[at] == view.token_id, at, -1).astype(np.int32)
    try:
        texts = pieces(ids, view.batch.tokenizer, visible_whitespace=True)
    except (RounddiagError, OSError):
        texts = pieces(ids, None)
    values = ids.tolist()
    return ColumnOfTokens("token_id", "token", codes, values, ("=",), labels=texts)


def _of_samples(view: View) -> Iterator[ColumnOfTokens]:
    columns = view.batch.columns
    made = {name: columns.made(name) for name in ("reward", "group_id", "num_rounds")}
    named = {
        **columns.samples,
        **{k: column for k, column in made.items() if column is not None},
    }
    named.pop(ORIGINAL_SAMPLE.name, None)  # numbers of rows describe nothing
    steps = _columns_of_steps(view, named.values())
    for column in named.values():
        scope: Scope = "round" if column.name in steps else "sample"
        for encoded in _encode(column, view.sample):
            yield replace(encoded, scope=scope)
    advantages = view.batch.advantages
    if advantages is not None:
        values = to_numpy(advantages)[view.flat].astype(float)
        yield from _encode(Column.of("advantage", "token", values))


def _columns_of_steps(view: View, columns: Iterable[Column]) -> set[str]:
    """Return the columns that change along a trajectory whose rows are its steps.

    What a row is, is then a round: as where the rows are joined.
    """
    names = trajectory_columns(view.batch)
    if not names:
        return set()
    values = zip(*(view.batch.sample_columns[n].tolist() for n in names), strict=True)
    _, owner = np.unique([*map(repr, values)], return_inverse=True)
    _, first = np.unique(owner, return_index=True)
    codes = {column.name: column.codes()[0] for column in columns}
    return {name for name, code in codes.items() if (code != code[first][owner]).any()}


def _of_rounds(view: View) -> Iterator[ColumnOfTokens]:
    columns = view.batch.columns
    last = int(view.round.max(initial=0))
    if last:
        codes = view.round.astype(np.int32)
        yield ColumnOfTokens("round", "round", codes, range(last + 1), _ORDER)
    owner = columns.owner
    is_last = np.r_[owner[1:] != owner[:-1], True][: len(owner)]
    codes = is_last[view.segment].astype(np.int32)
    yield ColumnOfTokens("last_round", "round", codes, (False, True), ("=",))
    for name, column in columns.rounds.items():
        if name not in columns.samples:
            yield from _encode(column, view.segment)
    yield from _of_pictures(view)
    if view.has_images and view.images is not None:
        for images in _encode(Column.of("images_seen", "round", view.images)):
            yield replace(images, relations=(">=", "<="))


def _of_pictures(view: View) -> Iterator[ColumnOfTokens]:
    """Yield the columns of the last picture that the file has not; of two alike, one.

    Sizes are not read from a file where all pictures have as many tokens, or where that
    is not known.
    """
    if view.images is None:
        return
    columns, parts = view.batch.columns, list[ColumnOfTokens]()
    shots = (shot for row in view.batch.images or () for shot in row)
    is_stored = any(isinstance(shot, StoredScreenshot) for shot in shots)
    for name in PICTURE_COLUMNS:
        column = columns.made(name)
        parts += [] if column is None else _encode(column, view.segment)
        is_first = name == PICTURE_COLUMNS[0]
        if is_first and not parts and (column is not None or is_stored):
            return
    own = {*columns.extra_names}
    parts = [part for part in parts if part.name not in own]
    for index, part in enumerate(parts):
        others = (other.codes for other in parts[index + 1 :])
        if not any(same_partition(part.codes, codes) for codes in others):
            yield part


def _of_tokens(view: View) -> Iterator[ColumnOfTokens]:
    for name, flat in view.batch.token_columns.items():
        # Statistics of the log-probs, as a trainer's own KL, say again how they differ.
        if not flat.dtype.is_floating_point:
            yield from _encode(Column.of(name, "token", to_numpy(flat)[view.flat]))
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
    lengths = to_numpy(view.batch.lengths)
    is_longest = lengths >= _AT_LIMIT * lengths.max(initial=0)
    if not 1 < is_longest.sum() < len(lengths):
        return
    left = lengths[view.sample] - view.position
    codes = np.searchsorted(_LAST, left)
    is_end = is_longest[view.sample] & (codes < len(_LAST))
    codes = np.where(is_end, codes, -1).astype(np.int32)
    yield ColumnOfTokens("last_of_longest", "token", codes, _LAST, ("<=",))


def _encode(column: Column, rows: Array | None = None) -> Iterator[ColumnOfTokens]:
    """Yield a column with the code of each token's row, unless it names no place."""
    codes, values = column.codes()
    relations: tuple[Relation, ...] = ("=",)
    if column.kind == "time":
        return
    if values.dtype.kind in "OU":
        num = len(values) + bool((codes < 0).any())
        limit = _MAX_GROUPS if column.name == "group_id" else _MAX_VALUES
        if not 1 < num <= min(limit, max(len(codes) / 2, 2)):
            return
    else:
        known = values[np.isfinite(values)]
        is_many = len(known) > _MAX_VALUES
        if len(known) < _MIN_VALUES or (is_many and column.kind == "name"):
            return
        cuts = known
        if is_many:
            shares = np.linspace(0, 1, _EDGES + 1)[:-1]
            cuts = np.unique(np.quantile(known, shares, method="lower"))
            relations = (">=", "<=")
        elif column.kind == "number" and len(known) > _MIN_VALUES:
            relations = _ORDER
        place = np.searchsorted(cuts, values, side="right") - 1
        place[~np.isfinite(values)] = -1
        codes, values = np.append(place, -1)[codes], cuts
    codes = (codes if rows is None else codes[rows]).astype(np.int32)
    yield ColumnOfTokens(column.name, column.scope, codes, values.tolist(), relations)


def read_roles(view: View) -> tuple[list[str], Array] | None:
    """Return the names of the roles, and the code of each token's role.

    None without a tokenizer, or with one that cannot be read.
    """
    batch, memo = view.batch, view.facts.memo
    if batch.lacks("text", "tokenizer"):
        return None
    if "roles" not in memo:
        try:
            memo["roles"] = token_roles(batch)
        except (RounddiagError, OSError):
            memo["roles"] = None  # one that must be downloaded, or no longer exists
    known = memo["roles"]
    if known is None:
        return None
    codes = known.codes[view.order]
    return [str(name) for name in known.categories], codes
