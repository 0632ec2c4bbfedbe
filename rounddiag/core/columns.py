"""Columns of the frames: from tensors and totals to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rounddiag import schema
from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.turns import piece_texts
from rounddiag.columns import Column, ColumnSource, Kind, Scope, register_column
from rounddiag.core.aggregation import run_sums
from rounddiag.core.sums import (
    Totals,
    as_numpy,
    diffs,
    pack_tokens,
    prob_diffs,
    take_runs,
)
from rounddiag.core.weights import lacks_update
from rounddiag.errors import FrameError
from rounddiag.schema import CORRECTIONS, SECONDS, weight_column
from rounddiag.text import pieces, special_tokens
from rounddiag.text.role_tagging import ROLES, Tagger, roles

if TYPE_CHECKING:
    import pandas as pd


def token_texts(batch: Batch) -> list[str]:
    """Return the piece of text of every generated token, in order."""
    rounds = batch.rounds
    return [
        *chain.from_iterable(
            span_texts(batch, to_numpy(rounds.start), to_numpy(rounds.num_tokens))
        )
    ]


def span_texts(batch: Batch, starts: Array, sizes: Array) -> list[list[str]]:
    """Return the pieces of text of stretches of the flat fields, each by itself.

    Raises a BatchError if the batch has neither token ids nor text.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.Batch.from_turns([[("assistant", "click(1, 2)")]])
    >>> span_texts(batch, np.array([0, 3]), np.array([2, 1]))
    [['click', '('], [',']]
    """
    if batch.pieces is not None:
        begins = to_numpy(batch.offsets)
        rows: dict[int, list[str]] = {}
        samples = (np.searchsorted(begins, starts, side="right") - 1).tolist()
        for sample in {*samples}:
            rows[sample] = piece_texts(batch, sample)
        first = (starts - begins[samples]).tolist()
        places = zip(samples, first, sizes.tolist(), strict=True)
        return [rows[sample][at : at + size] for sample, at, size in places]
    ends = np.cumsum(sizes)
    ids = take_runs(as_numpy(batch.require_ids().cpu()), starts, sizes)
    texts = pieces(ids, batch.tokenizer, starts=ends - sizes)
    return [texts[a:b] for a, b in pairwise([0, *ends.tolist()])]


def token_roles(batch: Batch, tagger: Tagger | None = None) -> pd.Categorical[str]:
    """Return the role of every generated token, in order."""
    import pandas as pd

    batch.require(*_NEEDS["role"])
    special = special_tokens(batch.tokenizer) if batch.pieces is None else {}
    tags = roles(
        token_texts(batch),
        starts=_starts(batch),
        special=set(special.values()),
        tagger=tagger,
    )
    names = list(dict.fromkeys(ROLES) | dict.fromkeys(tags))
    place = {name: i for i, name in enumerate(names)}
    # From the names themselves, pandas takes as long as everything else.
    codes = np.fromiter(map(place.__getitem__, tags), np.int64, len(tags))
    return pd.Categorical.from_codes(codes, pd.Index(names))


def _starts(batch: Batch) -> Array:
    num = to_numpy(batch.rounds.num_tokens)
    return np.cumsum(num) - num


def sample_clusters(batch: Batch) -> Array:
    """Return the cluster of each sample, counted from 0: its group, or itself alone."""
    if batch.group_ids is None:
        return np.arange(len(batch))
    return np.unique(np.asarray(batch.group_ids), return_inverse=True)[1]


# Column of the token frame -> per-token field of the batch.
_FIELDS = {
    "token_id": "response_ids",
    "rollout_log_prob": "rollout_log_probs",
    "old_log_prob": "old_log_probs",
    "entropy": "entropy",
    "advantage": "advantages",
    "loss_mask": "loss_mask",
}
_OF_UPDATES = {weight_column(c) for c in CORRECTIONS.values() if "update" in c.ratios}
_BOTH = ("old", "rollout")
_NEEDS: dict[str, tuple[str, ...]] = {
    "token_id": ("ids",),
    "role": ("text", "tokenizer"),
    "text": ("text",),
    "rollout_log_prob": ("rollout",),
    "old_log_prob": ("old",),
    **dict.fromkeys(("importance_weight", "prob_diff", "equal_so_far"), _BOTH),
}
# Where files have what a round took, and what its step was rewarded with.
_OF_ROUNDS = {
    "round_seconds": ("round_seconds", "sampling_seconds", SECONDS.name),
    "round_reward": ("round_reward", "turn_score", "reward"),
}
_ON_REQUEST = (
    *("position", *_FIELDS, "importance_weight", "prob_diff", "equal_so_far"),
    *("surprise", "round_length", *_OF_ROUNDS, "round_change", "round_advantage"),
    *("role", "text"),
)
_WEIGHTS = [*map(weight_column, CORRECTIONS.values())]


def token_samples(batch: Batch) -> Array:
    """Return the sample of every generated token."""
    rounds = batch.rounds
    return np.repeat(to_numpy(rounds.sample), to_numpy(rounds.num_tokens))


def token_numbers(batch: Batch) -> Array:
    """Return the number of every generated token in its round, from 0."""
    num = to_numpy(batch.rounds.num_tokens)
    count = np.arange(num.max(initial=0), dtype=np.int32)
    return take_runs(count, np.zeros_like(num), num)


def check_columns(batch: Batch, columns: Sequence[str]) -> None:
    """Raise a FrameError for a column that is unknown or that the batch lacks."""
    if isinstance(columns, str):
        raise FrameError.build(
            key="columns",
            expected="a list of columns",
            found=f"the text {columns!r}",
            advice=f"Pass {[columns]}.",
        )
    known = [*_ON_REQUEST, *batch.columns.extra_names]
    for name in columns:
        if name not in known and name not in _WEIGHTS:
            raise FrameError.build(
                expected=f"columns out of {known}",
                found=repr(name),
                advice="`sample`, `round` and `token` are always there.",
            )
        if name in _OF_UPDATES and "current" not in batch.scores:
            raise lacks_update()
        batch.require(*_NEEDS.get(name, _BOTH if name in _WEIGHTS else ()))
        if name == "surprise" and _engine_of(batch) is None:
            batch.require("rollout")
        if name == "round_advantage":
            batch.require("advantages")
        if name == "round_change" and batch.columns.made(name) is None:
            raise FrameError.build(
                key=name,
                expected="a batch with a sample of two screenshots",
                found="one without",
                advice="Leave the column out.",
            )
        if name in _OF_ROUNDS and batch.columns.made(name) is None:
            raise FrameError.build(
                key=name,
                expected=f"a batch with one of the columns {[*_OF_ROUNDS[name]]}",
                found="one without",
                advice="Save it in `round_columns`, one number per round.",
            )
        if name in _FIELDS and getattr(batch, _FIELDS[name]) is None:
            raise FrameError.build(
                expected=f"a batch with `{_FIELDS[name]}` for the column {name!r}",
                found="a batch without it",
                advice="Leave the column out, or save the field in the trainer.",
            )


def aggregates(totals: Totals, num_tokens: Array) -> dict[str, Array]:
    """Turn totals into counts and means of finite diffs; overwrites their arrays."""
    counts = {"num_tokens": num_tokens, "num_nonfinite": totals.num_nonfinite}
    num_finite = num_tokens
    if totals.num_nonfinite.any() or not num_tokens.all():
        num_finite = num_tokens - totals.num_nonfinite
        totals.max_abs_diff[num_finite == 0] = np.nan
    sums = {"mean_abs_diff": totals.abs_diff, "mean_diff": totals.diff}
    # In place, because the arrays are large where rounds are short. 0 / 0 is NaN: no
    # finite diff, no mean.
    with np.errstate(invalid="ignore"):
        for values in (*sums.values(), totals.k3):
            np.divide(values, num_finite, out=values)
    return {**counts, **sums, "max_abs_diff": totals.max_abs_diff, "k3": totals.k3}


def first_unequal(batch: Batch, diff: Array) -> Array:
    """Position of each round's first token whose finite diff is not 0; else NaN.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> first_unequal(batch, np.zeros(batch.num_tokens))[:2]
    array([nan, nan])
    """
    num = to_numpy(batch.rounds.num_tokens)
    ends = np.cumsum(num)
    unequal = np.flatnonzero(np.isfinite(diff) & (diff != 0))
    place = np.searchsorted(unequal, ends - num)
    first = np.append(unequal, len(diff))[place]
    return np.where(first < ends, positions(batch) + first - (ends - num), np.nan)


def equal_so_far(batch: Batch) -> Array:
    """1 for each token before its sample's first whose finite diff is not 0, else 0.

    Examples
    --------
    >>> import rounddiag as rd
    >>> equal_so_far(rd.load("sample_data/healthy.parquet"))[:2]
    array([0., 0.], dtype=float32)
    """
    sample, diff = token_samples(batch), diffs(batch)
    is_unequal = np.isfinite(diff) & (diff != 0)
    num_before = np.cumsum(is_unequal)
    starts = np.flatnonzero(np.diff(sample, prepend=-1))
    known = (num_before - is_unequal)[starts]
    lengths = np.diff([*starts, len(sample)])
    is_so_far: Array = num_before == np.repeat(known, lengths)
    return is_so_far.astype(np.float32)


def token_column(batch: Batch, token: Array, name: str) -> Any:  # noqa: ANN401 list, array or categories
    """Return one value per generated token; `token` is the column of that name."""
    if name in ("text", "role"):
        return token_texts(batch) if name == "text" else token_roles(batch)
    num = to_numpy(batch.rounds.num_tokens)
    if name == "position":
        return np.repeat(positions(batch), num) + token
    columns = batch.columns
    made = columns.made(name) if name in (*_ON_REQUEST, *_WEIGHTS) else None
    return token_values(batch, columns.of_file(name) if made is None else made)


def token_values(batch: Batch, column: Column) -> Array:
    """Return a column with one value per generated token."""
    if column.scope == "token":
        return column.filled
    num = to_numpy(batch.rounds.num_tokens)
    return np.repeat(batch.columns.at_rounds(column).filled, num)


def positions(batch: Batch) -> Array:
    """Position of each round's first token in its response."""
    first = to_numpy(batch.offsets)[to_numpy(batch.rounds.sample)]
    return np.subtract(
        to_numpy(batch.rounds.start), first, dtype=np.int32, casting="unsafe"
    )


def to_numpy(values: Tensor) -> Array:
    """Copy a tensor to the host as an array; bfloat16, not in numpy, as float32."""
    is_bfloat16 = values.dtype == torch.bfloat16
    return (values.float() if is_bfloat16 else values).cpu().numpy()


def _importance_weights(batch: Batch) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        weights: Array = np.exp(diffs(batch))
    return weights


def _pack(name: str, batch: Batch) -> ColumnSource | None:
    values, dtype = getattr(batch, _FIELDS[name]), schema.TOKENS[name].dtype
    if values is None:
        return None
    return lambda: pack_tokens(batch, values).astype(dtype, copy=False)


def _engine_of(batch: Batch) -> Tensor | None:
    """Return the sampler's log-probs; the training engine's without them."""
    rollout = batch.rollout_log_probs
    return batch.old_log_probs if rollout is None else rollout


def _surprise(batch: Batch) -> ColumnSource | None:
    values = _engine_of(batch)
    if values is None:
        return None
    return lambda: -pack_tokens(batch, values).astype(np.float32, copy=False)


def _round_advantage(batch: Batch) -> ColumnSource | None:
    advantages = batch.advantages
    if advantages is None:
        return None

    def read() -> Array:
        num = to_numpy(batch.rounds.num_tokens)
        values = pack_tokens(batch, advantages).astype(np.float64)
        return (run_sums(values, num) / num).astype(np.float32)

    return read


def _of_round(name: str, batch: Batch) -> ColumnSource | None:
    columns = batch.columns.rounds
    known = (columns[key] for key in _OF_ROUNDS[name] if key in columns)
    column = next(
        (candidate for candidate in known if candidate.kind == "number"), None
    )
    return None if column is None else lambda: column.filled.astype(np.float32)


def _read(
    name: str, read: Callable[[Batch], Array], batch: Batch
) -> ColumnSource | None:
    return None if batch.lacks(*_NEEDS.get(name, ())) else partial(read, batch)


# Scope, kind and function of columns that need nothing but what `_NEEDS` says.
_READ: dict[str, tuple[Scope, Kind, Callable[[Batch], Array]]] = {
    "token": ("token", "number", token_numbers),
    "importance_weight": ("token", "number", _importance_weights),
    "prob_diff": ("token", "number", prob_diffs),
    "equal_so_far": ("token", "number", equal_so_far),
    "role": ("token", "text", lambda batch: np.asarray(token_roles(batch), object)),
    "round_length": (
        *("round", "number"),
        lambda batch: to_numpy(batch.rounds.num_tokens).astype(np.float32),
    ),
}
register_column("surprise", "token", "number", _surprise)
register_column("round_advantage", "round", "number", _round_advantage)
for _name in _OF_ROUNDS:
    register_column(_name, "round", "number", partial(_of_round, _name))
for _name in _FIELDS:
    register_column(_name, "token", "number", partial(_pack, _name))
for _name, (_scope, _kind, _function) in _READ.items():
    register_column(_name, _scope, _kind, partial(_read, _name, _function))
