"""The tokens of a batch that a filter keeps, and the frames built from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rounddiag.core import round_frame, sample_frame, token_frame
from rounddiag.core.columns import extra_column_names
from rounddiag.core.scores import select_scores
from rounddiag.errors import FrameError
from rounddiag.figures._parts.data import check_sample
from rounddiag.figures.colored_text import NO_TEXT
from rounddiag.schema import TOKENS
from rounddiag.stats import cell_frame, worst_cells, worst_samples, worst_tokens
from rounddiag.text import pieces
from rounddiag.wording import join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.widgets.state import Filter

Field = TypeVar("Field")


_SAMPLE_FACTS = ("sample_id", "group_id", "reward")


@dataclass(frozen=True)
class FilteredBatch:
    """What a filter keeps of a batch.

    Attributes
    ----------
    batch : Batch
        All of it; its two log-probs are those of the chosen pair of scores.
    tokens : DataFrame
        The token frame of the kept tokens.
    is_all : bool
        Whether every token is kept.
    """

    batch: Batch
    tokens: pd.DataFrame
    is_all: bool

    @property
    def data(self) -> Batch | pd.DataFrame:
        """The input of figures that draw tokens."""
        return self.batch if self.is_all else self.tokens

    @property
    def samples(self) -> Batch:
        """The samples with at least one kept token, with all of their tokens."""
        if self.is_all:
            return self.batch
        return self.batch[self.tokens["sample"].unique()]

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """The round frame of the kept tokens, with ids, groups and rewards."""
        if self.is_all:
            return round_frame(self.batch)
        samples = sample_frame(self.batch)
        known = [name for name in _SAMPLE_FACTS if name in samples]
        rounds = cell_frame(self.tokens)
        return rounds.merge(samples[["sample", *known]], on="sample", how="left")

    @cached_property
    def cells(self) -> pd.DataFrame:
        """`rounds` with all columns of `cell_frame`, also where everything is kept."""
        return cell_frame(self.batch) if self.is_all else self.rounds

    @cached_property
    def worst(self) -> dict[str, pd.DataFrame]:
        """The worst `tokens` with their text, `rounds` and `samples`, worst first."""
        samples = worst_samples(self.tokens)
        if (ids := self.batch.sample_ids) is not None:
            samples = samples.assign(sample_id=[ids[i] for i in samples["sample"]])
        return {
            "tokens": add_pieces(self.batch, worst_tokens(self.tokens)),
            "rounds": worst_cells(self.tokens),
            "samples": samples,
        }

    def count_beyond(self, threshold: float) -> dict[str, Any]:
        """Count the tokens and samples with a |diff| beyond so many nats."""
        diff, sample = self.tokens["diff"].to_numpy(), self.tokens["sample"].to_numpy()
        is_beyond = np.abs(diff) > threshold
        return {
            "num_tokens": len(diff),
            "num_samples": len(np.unique(sample)),
            "num_nonfinite": int((~np.isfinite(diff)).sum()),
            "num_tokens_beyond": int(is_beyond.sum()),
            "num_samples_beyond": len(np.unique(sample[is_beyond])),
        }


def filter_batch(
    batches: Sequence[Batch], index: int, keep: Filter, a: str, b: str, by: str | None
) -> FilteredBatch:
    """Apply a filter to one of some batches, for one pair of scores.

    Parameters
    ----------
    batches : sequence of Batch
    index : int
        Which of them.
    keep : Filter
    a, b : str
        The scores to compare.
    by : str, optional
        A column of samples or rounds that the token frame has to have.
    """
    batch = select_scores(batches[index], a, b)
    if keep.is_empty:
        return FilteredBatch(batch, token_frame(batch), is_all=True)
    more = [by] if by in extra_column_names(batch) else []
    kept = kept_tokens(batch, keep, columns=("prob_diff", *more))
    if by is not None and by not in kept:
        column = sample_frame(batch)[["sample", by]]
        kept = kept.merge(column, on="sample", how="left")
    return FilteredBatch(batch, kept, is_all=False)


def nothing_kept(batch: Batch) -> FilteredBatch:
    """Return the result of a filter that keeps no token."""
    return FilteredBatch(batch, token_frame(batch[:0], ["prob_diff"]), is_all=False)


def add_pieces(batch: Batch, rows: pd.DataFrame) -> pd.DataFrame:
    """Add the text of each token as `piece` to rows with `sample, round, token`."""
    if batch.is_redacted:
        return rows.assign(piece=NO_TEXT)
    sample, index, token = (rows[key].to_numpy() for key in TOKENS.keys)
    first = np.searchsorted(batch.rounds.sample.cpu().numpy(), sample)
    positions = batch.rounds.start.cpu().numpy()[first + index] + token
    ids = batch.response_ids.cpu().numpy()[positions]
    return rows.assign(piece=pieces(ids, batch.tokenizer, starts=range(len(ids))))


_KINDS = {"sample": int, "group": str, "text": str, "role": str}


def kept_tokens(
    batch: Batch,
    keep: Filter,
    *,
    a: str = "old",
    b: str = "rollout",
    columns: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the token frame of the tokens that a filter keeps.

    Parameters
    ----------
    batch : Batch
    keep : Filter
        A token is kept if it meets every condition that is set: its `sample`, its
        `group`, its `role`; a `reward` and a round within their ranges, both ends
        included; at least one character within a match of `text`. A match may span
        several tokens of a round.
    a, b : str
        The scores to compare.
    columns : sequence of str
        As in `rounddiag.token_frame`.

    Returns
    -------
    DataFrame
        With the sample numbers of the batch; empty where nothing is kept.

    Raises
    ------
    FrameError
        If the batch has no such sample, group or role, or lacks the field; if a range
        is not two numbers; if a regular expression is invalid.

    Examples
    --------
    >>> import rounddiag as rd
    >>> from rounddiag.widgets.state import Filter
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> kept = kept_tokens(batch, Filter(sample=3, text="click("), columns=["text"])
    >>> kept["text"].tolist()
    [' click', '(', ' click', '(']
    """
    _check_types(keep)
    in_sample = _kept_samples(batch, keep)
    part = batch if in_sample.all() else batch.where(in_sample)
    needed = {"text": bool(keep.text), "role": keep.role is not None}
    more = [name for name in needed if needed[name] and name not in columns]
    frame = token_frame(part, [*columns, *more], a=a, b=b)
    frame["sample"] = np.flatnonzero(in_sample).astype(np.int32)[frame["sample"]]
    return frame[_is_kept(frame, keep)].drop(columns=more).reset_index(drop=True)


def _kept_samples(batch: Batch, keep: Filter) -> Array:
    is_kept = np.ones(batch.num_samples, dtype=bool)
    if keep.sample is not None:
        check_sample(keep.sample, batch.num_samples)
        is_kept &= np.arange(batch.num_samples) == keep.sample
    if keep.group is not None:
        names = np.array(_require("group", "group_ids", batch.group_ids))
        _check_known("group", keep.group, [*dict.fromkeys(names.tolist())])
        is_kept &= names == keep.group
    if keep.reward is not None:
        low, high = _ends("reward", keep.reward)
        rewards = _require("reward", "rewards", batch.rewards).double().cpu().numpy()
        is_kept &= (low <= rewards) & (rewards <= high)
    return is_kept


def _is_kept(frame: pd.DataFrame, keep: Filter) -> Array:
    is_kept = np.ones(len(frame), dtype=bool)
    if keep.rounds is not None:
        is_kept &= frame["round"].between(*_ends("rounds", keep.rounds)).to_numpy()
    if keep.role is not None:
        _check_known("role", keep.role, [*frame["role"].cat.categories])
        is_kept &= (frame["role"] == keep.role).to_numpy()
    if keep.text:
        starts = np.flatnonzero(frame["token"] == 0)
        texts = frame["text"].tolist()
        is_kept &= tokens_matching(keep.text, texts, starts, is_regex=keep.is_regex)
    return is_kept


def _check_types(keep: Filter) -> None:
    for name, kind in _KINDS.items():
        value = getattr(keep, name)
        if value is not None and not isinstance(value, kind):
            expected = {int: "the number of a sample", str: "a string"}[kind]
            raise _invalid_filter(key=name, expected=expected, found=f"{value!r:.80}")


def _require(key: str, field: str, values: Field | None) -> Field:
    if values is None:
        wanted = f"a batch with `{field}`"
        raise _invalid_filter(key=key, expected=wanted, found="a batch without them")
    return values


def _check_known(key: str, value: str, known: list[str]) -> None:
    if value not in known:
        names = join_names([*map(repr, known)], len(known), most=8)
        expected = f"one of {names}"
        raise _invalid_filter(key=key, expected=expected, found=f"{value!r:.80}")


def _ends(key: str, value: object) -> tuple[float, float]:
    match value:
        case (int() | float() as low, int() | float() as high):
            return low, high
    pair = "two numbers, the lowest and the highest"
    raise _invalid_filter(key=key, expected=pair, found=f"{value!r:.80}")


def _invalid_filter(*, key: str, expected: str, found: str) -> FrameError:
    advice = "Remove it from the filter, or choose another value."
    return FrameError.build(key=key, expected=expected, found=found, advice=advice)


def tokens_matching(
    text: str, pieces: Sequence[str], starts: Array, *, is_regex: bool = False
) -> Array:
    """Mark the tokens that share a character with a match; case-sensitive.

    Parameters
    ----------
    text : str
        Literal text, or a regular expression in the syntax of RE2: its time is linear
        in the text for every expression, so it needs no time limit.
    pieces : sequence of str
        As `rounddiag.text.pieces` gives them.
    starts : ndarray of int
        Indices of `pieces` where a round begins: a match may span several tokens, but
        stays within a round.
    is_regex : bool

    Returns
    -------
    ndarray of bool, one per token

    Raises
    ------
    FrameError
        If the expression is invalid, or has lookaround or backreferences.

    Examples
    --------
    >>> tokens_matching("(1", ["click", "(", "12", "3)"], np.array([0])).tolist()
    [False, True, True, False]
    """
    limits = pairwise([*starts.tolist(), len(pieces)])
    texts = ["".join(pieces[begin:stop]) for begin, stop in limits]
    spans = match_spans(text if is_regex else re.escape(text), texts)
    ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    return _overlap(spans, ends)


def match_spans(pattern: str, texts: Sequence[str]) -> Array:
    r"""Find all matches of a regular expression, each text on its own.

    pyarrow offers RE2 for replacing only, so each match is replaced by itself between
    two characters that no text has, and their places are read off.

    Parameters
    ----------
    pattern : str
        In the syntax of RE2.
    texts : sequence of str

    Returns
    -------
    ndarray of int, shape (num_matches, 2)
        Start and stop in characters of all texts joined, in order; matches of no
        character are left out.

    Examples
    --------
    >>> match_spans("a+|b", ["xaab", "ab"]).tolist()
    [[1, 3], [3, 4], [4, 5], [5, 6]]
    >>> match_spans("q*", ["xx"]).tolist()
    []
    """
    pattern, texts = _encodable(pattern), [*map(_encodable, texts)]
    begin, end = _unused_characters("".join(texts))
    try:  # the expression alone first: the message is about what the user wrote
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
        marked = pc.replace_substring_regex(
            pa.array(texts, pa.large_string()),
            pattern=pattern,
            replacement=f"{begin}\\0{end}",
        )
    except pa.ArrowInvalid as error:
        raise _invalid_pattern(pattern, error) from error
    joined = "".join(marked.to_pylist()).encode("utf-32-le")
    characters = np.frombuffer(joined, np.uint32)
    begins, ends = (np.flatnonzero(characters == ord(one)) for one in (begin, end))
    num_before = 2 * np.arange(len(begins))  # marks before each match
    spans: Array = np.stack([begins - num_before, ends - num_before - 1], axis=1)
    return spans[spans[:, 0] < spans[:, 1]]


_HALVES = re.compile("[\ud800-\udfff]")


def _encodable(text: str) -> str:
    """Replace halves of characters, which broken text may have and UTF-8 has not."""
    return _HALVES.sub("\ufffd", text)


def _unused_characters(text: str) -> tuple[str, str]:
    """Return two characters for private use that a text does not have."""
    used = set(text)
    first, second, *_ = (c for c in map(chr, range(0xF0000, 0xFFFFE)) if c not in used)
    return first, second


def _invalid_pattern(pattern: str, error: Exception) -> FrameError:
    reason = str(error).removeprefix("Invalid regular expression: ")
    return FrameError.build(
        key="text",
        expected="a regular expression in the syntax of RE2, which has neither"
        " lookaround nor backreferences",
        found=f"{pattern!r:.80} ({reason:.200})",
        advice="Rewrite it, or search for the literal text.",
    )


def _overlap(spans: Array, ends: Array) -> Array:
    """Mark the tokens, given by where they end, that overlap a span of characters."""
    begins = np.r_[0, ends[:-1]][: len(ends)]
    # A character that several tokens make is the text of the first one of them, and
    # the others are empty: they go with it.
    last = np.maximum.accumulate(np.where(begins < ends, np.arange(len(ends)), 0))
    begins, ends = begins[last], ends[last]
    after = np.searchsorted(spans[:, 1], begins, side="right")
    start = np.append(spans[:, 0], np.iinfo(np.int64).max)[after]
    is_inside: Array = start < ends
    return is_inside
