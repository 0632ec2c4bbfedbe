"""What `save(..., redact=True)` keeps: a list, and nothing else.

A field of the Batch that is not named here is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns.column import is_unknown, scatter_with_missing
from rounddiag.core.columns import to_numpy
from rounddiag.core.scores import pair_of
from rounddiag.loaders.fields import SAMPLING
from rounddiag.loaders.parquet.columns import real_values
from rounddiag.schema import ORIGINAL_SAMPLE
from rounddiag.wording import pluralize, printable

_KEPT = (
    *("response_mask", "loss_mask", "rollout_log_probs", "old_log_probs", "entropy"),
    *("advantages", "rewards", "position_ids", "step", "contexts"),
)
# Names that say nothing of a task; others are numbered.
KNOWN_COLUMNS = frozenset(
    {
        *("sample", "round", "rank", "dp_rank", "micro_batch", "replica", "row"),
        *("num_rows", "step_part", "num_turns", "__num_turns__", "turns", "version"),
        *("versions", "weight_version", "min_weight_version", "max_weight_version"),
        *("min_global_steps", "max_global_steps", "num_tokens", "num_images", "won"),
        *("acc", "kl", "clipped", "weight", "value", "advantage", "entropy"),
        *("prompt_length", "cached_tokens", "reward", "score", "round_reward"),
        *("num_context_tokens", "num_context_images", "num_entered_tokens"),
        *("num_left_tokens", "num_left_images", "is_rewritten", "parsed"),
        ORIGINAL_SAMPLE.name,
    }
)
KNOWN_SCORES = frozenset(
    {"current", "ref", "teacher", "base", "proximal", "rescored", "old", "rollout"}
)
# Values of `meta` that only this package, or an engine, writes.
_WORDS = {
    "mask_source": (
        *("response_mask", "loss_mask", "attention_mask", "the chat template"),
        "attention_mask without image tokens",
    ),
    "rounds": ("unknown", "from the chat template"),
}
_COUNTS = ("num_dropped_rows", "num_dropped_copies", "num_records_without_tokens")
_MODES = ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")
# Of any spelling: `user_id`, `userId`, `userid`, `session-uuid`; not `valid`, `grid`.
_IDENTIFIER = re.compile(
    r"(^|_)([ug]?u?ids?|hash(es)?|digest)(_|$)"
    r"|(user|session|request|task|trace|sample|group|prompt|episode|run|job|trial"
    r"|rollout|trajectory|instance|worker|host|device|account|client|message|item"
    r"|token|image)(u?u?ids?|hash(es)?)(_|$)",
    re.IGNORECASE,
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SMALL = 1 << 31  # a known column has smaller numbers: counts, ranks, versions
_PLAIN = (bool, int, float, np.number, np.bool_)


@dataclass(frozen=True)
class Redacted:
    """A batch as `save(..., redact=True)` writes it, and the list of what it keeps.

    Attributes
    ----------
    contents: What the file has, by what became of it or by table.
    """

    batch: Batch
    contents: Mapping[str, Sequence[str]]

    def __str__(self) -> str:
        lines = [f"{pluralize(len(self.batch), 'sample')}, of which the file has:"]
        for label, names in self.contents.items():
            if names:
                lines.append(f"  {label}: {printable(', '.join(names))}")
        return "\n".join(lines)


def redact(batch: Batch) -> Redacted:
    """Return the batch as `save(..., redact=True)` writes it; see `save`."""
    unchanged: dict[str, Any] = {name: getattr(batch, name) for name in _KEPT}
    rounds = batch.round_ids
    numbered: dict[str, Any] = {
        "sample_ids": _number_texts(batch.sample_ids),
        "group_ids": _number_texts(batch.group_ids),
        "round_ids": None if rounds is None else rounds.unique(return_inverse=True)[1],
    }
    contents = {
        "unchanged": [name for name, value in unchanged.items() if value is not None],
        "numbered": [name for name, value in numbered.items() if value is not None],
    }
    tables: dict[str, Any] = {}
    for table, columns in (
        ("scores", [(name, flat, "") for name, flat in batch.scores.items()]),
        ("token_columns", [*_tokens(batch)]),
        ("sample_columns", [*_rows(batch.sample_columns)]),
        ("round_columns", [*_rows(batch.round_columns)]),
    ):
        known = KNOWN_SCORES if table == "scores" else KNOWN_COLUMNS
        stem = "score" if table == "scores" else "column"
        tables[table], texts = {}, []
        for number, (name, values, change) in enumerate(columns):
            ours = name if name in known else f"{stem}_{number}"
            tables[table][ours] = values
            was = [] if ours == name else [f"was {name!r:.60}"]
            notes = "; ".join([*was, *([change] if change else [])])
            texts.append(f"{ours} ({notes})" if notes else ours)
        contents[table] = texts
    meta = {**_meta(batch.meta), **_pair(batch, [*tables["scores"]])}
    contents["meta"] = [*meta, *meta["sampling"]]
    unchanged |= {"offsets": batch.offsets, "lengths": batch.lengths}
    return Redacted(Batch(**unchanged, **numbered, **tables, meta=meta), contents)


def _number_texts(texts: Sequence[object] | None) -> tuple[str, ...] | None:
    if texts is None:
        return None
    numbers = {text: str(number) for number, text in enumerate(dict.fromkeys(texts))}
    return tuple(numbers[text] for text in texts)


def _tokens(batch: Batch) -> Iterator[tuple[str, Tensor, str]]:
    """Yield columns of tokens whose numbers cannot be ids of tokens."""
    for name, flat in batch.token_columns.items():
        real = to_numpy(real_values(flat, batch.offsets, batch.lengths))
        is_version = name in KNOWN_COLUMNS and "version" in name and _is_small(real)
        if is_version or (not _is_identifier(name) and not _is_whole(real)):
            yield name, flat, ""


def _rows(columns: Mapping[str, Array]) -> Iterator[tuple[str, Array, str]]:
    """Yield columns of samples or rounds, with how their values changed."""
    for name, values in columns.items():
        if values.ndim != 1:
            continue
        items = values.tolist()
        is_known = np.array([not is_unknown(item) for item in items], dtype=bool)
        known = [item for item in items if not is_unknown(item)]
        if _is_identifier(name):
            texts = _number_texts([repr(item) for item in known]) or ()
            codes = np.array([*map(int, texts)], dtype=np.int64)
            places = np.flatnonzero(is_known)
            column = scatter_with_missing(codes, places, len(values))
            yield name, column, "values numbered"
        elif values.dtype.kind in "biuf" or all(isinstance(v, _PLAIN) for v in known):
            fits = all(not isinstance(v, int) or abs(v) <= 1 << 53 for v in known)
            numbers = np.array(known, dtype=np.float64 if fits else object)
            if not _is_whole(numbers) or (name in KNOWN_COLUMNS and _is_small(numbers)):
                yield name, values, ""
            else:
                ranks = np.unique(numbers, return_inverse=True)[1]
                places = np.flatnonzero(is_known)
                column = scatter_with_missing(ranks, places, len(values))
                yield name, column, "ranks of its whole numbers"


def _is_whole(values: Array) -> bool:
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
        if (values != np.trunc(values)).any():
            return False
    return not ((values == 0) | (values == 1)).all()


def _is_small(values: Array) -> bool:
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return bool((abs(known) < _SMALL).all())


def _is_identifier(name: str) -> bool:
    """Return whether a name is that of ids or hashes.

    Examples
    --------
    >>> [_is_identifier(name) for name in ("userId", "USER-ID", "userid", "uid")]
    [True, True, True, True]
    >>> [_is_identifier(name) for name in ("valid", "grid", "num_tokens")]
    [False, False, False]
    """
    return _IDENTIFIER.search(_HUMP.sub("_", name)) is not None


def _meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Keep counts, numbers of the sampler, and values that are words of ours."""
    words = {k: meta.get(k) for k, known in _WORDS.items() if meta.get(k) in known}
    counts = {k: meta[k] for k in _COUNTS if isinstance(meta.get(k), int)}
    sampling = meta.get("sampling")
    settings = sampling if isinstance(sampling, Mapping) else {}
    numbers = {
        name: settings[name]
        for name in SAMPLING
        if isinstance(settings.get(name), int | float) or settings.get(name) in _MODES
    }
    return {**words, **counts, "sampling": numbers, "redacted": True}


def _pair(batch: Batch, scores: Sequence[str]) -> dict[str, Any]:
    """Keep which scores are compared, under the names that they have in the file."""
    pair = pair_of(batch)
    ours = dict(zip(batch.scores, scores, strict=True))
    names = [ours.get(name, name) for name in (pair.a, pair.b)]
    is_known = {*names} <= {*scores, *KNOWN_SCORES}
    return {} if pair.is_standard or not is_known else {"pair": names}
