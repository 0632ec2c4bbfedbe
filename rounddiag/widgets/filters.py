"""The tokens of a batch that a filter keeps, and the frames built from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core import sample_frame, token_frame
from rounddiag.core.measured import Measured, metrics_of
from rounddiag.core.scores import has_pair
from rounddiag.errors import FrameError
from rounddiag.findings import View
from rounddiag.findings.place import Place
from rounddiag.findings.sample_sets import OWN_START, SETS
from rounddiag.schema import IS_REWRITTEN, METRICS, ROUNDS, SUMMARY
from rounddiag.stats import (
    cell_frame,
    round_summary,
    worst_cells,
    worst_samples,
    worst_tokens,
)
from rounddiag.widgets.columns import BatchColumns, invalid_condition

# What metrics need beside `diff`.
_SOURCES = ("prob_diff", "equal_so_far")
OF_PICTURES = "round_change"  # all of them are decoded for it
_SAMPLE_FACTS = ("sample_id", "group_id", "reward")
_SETS_OF_SAMPLES = SETS - {OWN_START}


@dataclass(frozen=True)
class FilteredBatch:
    """What a filter keeps of a batch.

    Attributes
    ----------
    batch: All of it; its two log-probs are those of the chosen pair of scores.
    tokens: The token frame of the kept tokens, with the groups of `by` if it is set.
    is_all: Whether every token is kept.
    by: The column of `tokens` that names their groups.
    """

    batch: Batch
    tokens: pd.DataFrame
    is_all: bool
    by: str | None = None

    @property
    def data(self) -> Batch | pd.DataFrame:
        """The input of figures that draw tokens."""
        return self.batch if self.is_all else self.tokens

    def summary_by_group(self, metric: str) -> pd.DataFrame:
        """Return the round summary of each group, under the name of the column."""
        summaries = []
        for name, rows in self.tokens.groupby(self.by, observed=True):
            summary = round_summary(rows, metric=metric)
            summary[self.by] = str(name)
            summaries.append(summary)
        every = pd.concat(summaries, ignore_index=True)
        return every.astype({self.by: self.tokens[self.by].dtype})

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """The round frame of the kept tokens, with ids, groups and rewards."""
        if self.is_all and has_pair(self.batch):
            return cell_frame(self.batch, ())
        samples = sample_frame(self.batch)
        known = [name for name in _SAMPLE_FACTS if name in samples]
        if has_pair(self.batch):
            rounds = cell_frame(self.tokens)
        else:  # no diff is missing
            own = {name: METRICS[name].source_column for name in metrics_of(self.batch)}
            read = [name for name, source in own.items() if source in self.tokens]
            rounds = cell_frame(self.tokens, read).assign(num_nonfinite=0)
        rounds = rounds.merge(samples[["sample", *known]], on="sample", how="left")
        name = IS_REWRITTEN.name
        if name not in self.batch.columns.rounds:
            return rounds
        keys = [*ROUNDS.keys]
        marks = cell_frame(self.batch, ())[[*keys, name]]
        return rounds.merge(marks, on=keys, how="left")

    @cached_property
    def cells(self) -> pd.DataFrame:
        """`rounds` with all columns of `cell_frame`, also where everything is kept."""
        is_whole = self.is_all and has_pair(self.batch)
        return cell_frame(self.batch) if is_whole else self.rounds

    @cached_property
    def worst_rounds(self) -> pd.DataFrame:
        """All rounds of samples, the worst first."""
        return worst_cells(self.tokens, num=self.batch.num_rounds)

    @cached_property
    def worst_samples(self) -> pd.DataFrame:
        """All samples, the worst first, with their ids."""
        samples = worst_samples(self.tokens, num=self.batch.num_samples)
        if (ids := self.batch.sample_ids) is not None:
            samples = samples.assign(sample_id=[ids[i] for i in samples["sample"]])
        return samples

    @cached_property
    def worst_tokens(self) -> pd.DataFrame:
        """All tokens with a finite diff, the largest first."""
        return worst_tokens(self.tokens, num=len(self.tokens))

    def count_beyond(self, threshold: float) -> dict[str, Any]:
        """Count the tokens and samples with a |diff| beyond so many nats."""
        diff, sample = self.tokens["diff"].to_numpy(), self.tokens["sample"].to_numpy()
        is_beyond = np.abs(diff) > threshold
        return {
            "num_tokens": len(diff),
            "num_tokens_beyond": int(is_beyond.sum()),
            "num_samples_beyond": len(np.unique(sample[is_beyond])),
        }


def filter_batch(
    columns: BatchColumns,
    keep: Mapping[str, Any],
    a: str,
    b: str,
    by: str | None,
    *,
    reads_pictures: bool,
) -> FilteredBatch:
    """Apply a filter to a batch, for one pair of scores."""
    batch = Measured.of(columns.batch, a, b).require_batch()
    tokens = _tokens(batch, sources=bool(keep or by), reads_pictures=reads_pictures)
    is_taken = by in [*tokens, *SUMMARY.dtypes]
    name = f"{by} group" if is_taken else by
    if by is not None:
        tokens[name] = columns.groups(by, np.abs(tokens["diff"].to_numpy()))
    if keep:
        tokens = tokens[kept_tokens(columns, keep)].reset_index(drop=True)
    return FilteredBatch(batch, tokens, is_all=not keep, by=name)


def filter_of_place(
    columns: BatchColumns, place: Place, view: View
) -> dict[str, Any] | str:
    """Return the filter of a place; the text of a condition that no filter has."""
    keep: dict[str, Any] = {}
    for condition in place.conditions:
        name, value = condition.column, condition.value
        if name in _SETS_OF_SAMPLES:  # those of its tokens: the other conditions stay
            keep["sample"] = np.unique(view.sample[place.tokens]).tolist()
            continue
        if name == "first_tokens" and isinstance(value, int):
            name, value = "token", value - 1
        elif name == "images_seen":
            name = "num_images"
        if name not in columns.names:
            return condition.text
        if condition.relation in ("=", "in"):
            keep[name] = [*value] if isinstance(value, tuple) else [value]
        else:
            end = "from" if condition.relation == ">=" else "to"
            keep[name] = {**keep.get(name, {}), end: value}
    return keep


def _tokens(batch: Batch, *, sources: bool, reads_pictures: bool) -> pd.DataFrame:
    """Return the tokens of a batch; without a pair no diff is known: all are NaN."""
    if has_pair(batch):
        return token_frame(batch, _SOURCES if sources else [])
    names = [METRICS[name].source_column for name in metrics_of(batch)]
    if not reads_pictures:  # of all rounds
        names = [name for name in names if name != OF_PICTURES]
    frame = token_frame(batch, names)
    return frame.assign(diff=np.full(len(frame), np.nan, dtype=np.float32))


def kept_tokens(columns: BatchColumns, keep: Mapping[str, Any]) -> Array:
    """Mark the tokens that a filter keeps."""
    is_kept = np.ones(columns.batch.num_tokens, dtype=bool)
    for name, condition in keep.items():
        if name != "text":
            is_kept &= columns.keep(name, condition)
    if "text" in keep:
        is_kept &= _has_text(columns, keep["text"], is_kept)
    return is_kept


def _has_text(columns: BatchColumns, condition: object, is_kept: Array) -> Array:
    match condition:
        case {"regex": str(text), **rest} if text and not rest:
            is_regex = True
        case str(text) if text:
            is_regex = False
        case _:
            expected = "a text, or {'regex': expression}"
            raise invalid_condition("text", expected, f"{condition!r:.80}")
    batch = columns.batch
    sample = np.repeat(batch.columns.owner, columns.round_sizes)
    is_searched = np.zeros(batch.num_samples, dtype=bool)
    is_searched[sample[is_kept]] = True
    frame = token_frame(batch.where(is_searched), ["text"])
    starts = np.flatnonzero(frame["token"] == 0)
    is_found = np.zeros(len(is_kept), dtype=bool)
    pieces = frame["text"].tolist()
    is_found[is_searched[sample]] = tokens_matching(
        text, pieces, starts, is_regex=is_regex
    )
    return is_found


def tokens_matching(
    text: str, pieces: Sequence[str], starts: Array, *, is_regex: bool = False
) -> Array:
    """Mark the tokens that share a character with a match, in any case."""
    limits = pairwise([*starts.tolist(), len(pieces)])
    texts = ["".join(pieces[begin:stop]) for begin, stop in limits]
    spans = match_spans(text if is_regex else re.escape(text), texts)
    ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    return _overlap(spans, ends)


def match_spans(pattern: str, texts: Sequence[str]) -> Array:
    r"""Find all matches of a regular expression in any case, each text on its own.

    pyarrow offers RE2 for replacing only, so each match is replaced by itself between
    two characters that no text has, and their places are read off.
    """
    pattern, texts = _encodable(pattern), [*map(_encodable, texts)]
    begin, end = _unused_characters("".join(texts))
    try:  # the expression alone first: the message is about what the user wrote
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
        marked = pc.replace_substring_regex(
            pa.array(texts, pa.large_string()),
            pattern=f"(?i){pattern}",
            replacement=f"{begin}\\0{end}",
        )
    except pa.ArrowInvalid as error:
        raise _invalid_pattern(pattern, error) from error
    joined = "".join(marked.to_pylist()).encode("utf-32-le")
    characters = np.frombuffer(joined, np.uint32)
    begins, ends = (np.flatnonzero(characters == ord(mark)) for mark in (begin, end))
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
    begins = np.r_[0, ends[:-1]][: len(ends)]
    # A character that several tokens make is the text of the first one of them, and
    # the others are empty: they go with it.
    last = np.maximum.accumulate(np.where(begins < ends, np.arange(len(ends)), 0))
    begins, ends = begins[last], ends[last]
    after = np.searchsorted(spans[:, 1], begins, side="right")
    start = np.append(spans[:, 0], np.iinfo(np.int64).max)[after]
    return start < ends
