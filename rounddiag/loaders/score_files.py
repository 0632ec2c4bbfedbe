"""Scores from a file or table: the position, id and log-probability of each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns.sources import as_ragged
from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import stored_array
from rounddiag.loaders.tables import Table
from rounddiag.wording import format_names

_CONVERSION_ERRORS = (ArithmeticError, TypeError, ValueError, RuntimeError)


def _describe_columns(table: Table) -> str:
    return f"columns {format_names(table.names)}"


def _whole_number_column(table: Table, name: str, size: int | None = None) -> Array:
    return _whole(name, _column(table, name, size))


def _flat_rows(table: Table, name: str, num_rows: int) -> tuple[Array, Array]:
    try:
        rows = as_ragged(table.fields[name])
    except (*_CONVERSION_ERRORS, KeyError) as error:
        raise _misfit(name, "a list of numbers per sample", f"{error!s:.80}") from error
    if rows.values.dim() != 1 or len(rows.lengths) != num_rows:
        shape = f"{len(rows.lengths)} lists of shape {tuple(rows.values.shape)}"
        raise _misfit(name, f"{num_rows} lists of numbers", shape)
    convert = _whole if name == "token_ids" else _floats
    return convert(name, stored_array(rows.values)), rows.lengths.numpy()


def _column(table: Table, name: str, size: int | None) -> Array:
    if name not in table.columns:
        raise _misfit(name, "a column of one value per row", _describe_columns(table))
    values = np.asarray(table.columns[name])
    if size not in {None, len(values)}:
        raise _misfit(name, f"{size} values, one per row", f"{len(values)}")
    return values


def _whole(name: str, values: Array) -> Array:
    if values.dtype.kind in "iu" or values.size == 0:
        return values.astype(np.int64)
    try:
        with np.errstate(invalid="ignore"):  # NaN, which the comparison below finds
            numbers = values.astype(np.int64)
        if values.dtype.kind in "fO" and (numbers == values).all():
            return numbers
    except _CONVERSION_ERRORS as error:
        raise _misfit(name, "whole numbers", f"{error!s:.80}") from error
    raise _misfit(name, "whole numbers", _first_invalid(values))


def _floats(name: str, values: Array) -> Array:
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8:  # noqa: PLR2004 torch has no longer ones
        return values
    try:
        if values.dtype.kind in "iuO":
            return values.astype(np.float64)
    except _CONVERSION_ERRORS as error:
        raise _misfit(name, "numbers", f"{error!s:.80}") from error
    raise _misfit(name, "numbers", _first_invalid(values))


def _first_invalid(values: Array) -> str:
    invalid = [v for v in values.tolist() if not isinstance(v, float) or v % 1]
    return f"{invalid[0]!r:.80}" if invalid else str(values.dtype)


def _misfit(name: str, expected: str, content: str) -> BatchError:
    return BatchError.build(
        key=name,
        expected=expected,
        found=content,
        advice="See `rounddiag.attach` for the columns.",
    )


_SAME_BATCH = "Attach to the batch, or the selection, that was rescored."


def _match_samples(batch: Batch, table: Table) -> Array:
    ids = batch.sample_ids
    if ids is not None and "sample_id" in table.columns and len({*ids}) == len(ids):
        return _samples_by_id(ids, table.columns["sample_id"])
    if "sample" not in table.names:
        raise BatchError.build(
            key="sample",
            expected="the index of the sample in each row, or `sample_id` if the"
            " batch has unique ids",
            found=_describe_columns(table),
            advice="`rounddiag.export_rescore` writes both: pass them on.",
        )
    sample = _whole_number_column(table, "sample")
    _check_range("sample", sample, np.int64(batch.num_samples), "samples of the batch")
    return sample


def _token_positions(batch: Batch, table: Table, sample: Array) -> Array:
    """Return the position in the response of each row, for one row per token."""
    if "position" in table.names:
        position = _whole_number_column(table, "position", len(sample))
        lengths: Array = batch.lengths.cpu().numpy()
        _check_range("position", position, lengths[sample], "positions of its sample")
        return position
    round_, token = (
        _whole_number_column(table, name, len(sample)) for name in ("round", "token")
    )
    rounds = batch.rounds
    round_samples: Array = rounds.sample.cpu().numpy()
    limits = np.searchsorted(round_samples, np.arange(batch.num_samples + 1))
    _check_range("round", round_, np.diff(limits)[sample], "rounds of its sample")
    index = limits[sample] + round_
    num_tokens: Array = rounds.num_tokens.cpu().numpy()[index]
    _check_range("token", token, num_tokens, "tokens of its round")
    starts: Array = rounds.start.cpu().numpy()[index]
    offsets: Array = batch.offsets.cpu().numpy()
    return starts + token - offsets[sample]


def _response_positions(batch: Batch, sample: int, size: int) -> Array:
    """Return the positions that a row of this size covers: all, or generated ones."""
    length = int(batch.lengths[sample])
    if size == length:
        return np.arange(length)
    start = int(batch.offsets[sample])
    mask = batch.response_mask[start : start + length].cpu().numpy()
    generated = np.flatnonzero(mask)
    if size == len(generated):
        return generated
    raise BatchError.build(
        key="token_ids",
        expected=f"{length} token ids for sample {sample}, its whole response, or"
        f" {len(generated)}, its generated tokens",
        found=f"{size}",
        advice=_SAME_BATCH,
    )


def _samples_by_id(ids: tuple[str, ...], names: Any) -> Array:  # noqa: ANN401 a sequence or an array
    import pandas as pd

    samples: Array = pd.Index(ids, dtype=object).get_indexer(
        pd.Index(names, dtype=object)
    )
    if (samples < 0).any():
        row = int(np.flatnonzero(samples < 0)[0])
        raise BatchError.build(
            key="sample_id",
            expected=f"ids of the batch, such as {ids[0]!r:.80}" if ids else "no rows",
            found=f"{names[row]!r:.80} in row {row}",
            advice=_SAME_BATCH,
        )
    return samples


def _check_range(name: str, values: Array, stop: Array | np.int64, items: str) -> None:
    invalid = (values < 0) | (values >= stop)
    if invalid.any():
        row = int(np.flatnonzero(invalid)[0])
        count = np.broadcast_to(stop, values.shape)[row]
        raise BatchError.build(
            key=name,
            expected=f"0 up to {count - 1}, one of the {count} {items}",
            found=f"{values[row]} in row {row}",
            advice=_SAME_BATCH,
        )


@dataclass(frozen=True, kw_only=True)
class Entries:
    """The scores of a source, one entry per token.

    Attributes
    ----------
    sample, position: Of the token.
    """

    sample: Array
    position: Array
    token_ids: Array
    log_probs: Array

    def flat_positions(self, batch: Batch) -> Array:
        """Return the index of each token in the flat fields of the batch."""
        starts: Array = batch.offsets.cpu().numpy()
        return starts[self.sample] + self.position


def read_entries(batch: Batch, table: Table) -> Entries:
    """Return the entries of a table with one row per sample or one row per token."""
    names = {*table.names}
    if {"token_ids", "log_probs"} <= names:
        return _entries_per_sample(batch, table)
    if {"token_id", "log_prob"} <= names:
        return _entries_per_token(batch, table)
    raise BatchError.build(
        expected="`token_ids` and `log_probs`, one row per sample, or `token_id` and"
        " `log_prob`, one row per token",
        found=_describe_columns(table),
        advice="Rename the columns.",
    )


def _entries_per_token(batch: Batch, table: Table) -> Entries:
    sample = _match_samples(batch, table)
    return Entries(
        sample=sample,
        position=_token_positions(batch, table, sample),
        token_ids=_whole_number_column(table, "token_id", len(sample)),
        log_probs=_floats("log_prob", _column(table, "log_prob", len(sample))),
    )


def _entries_per_sample(batch: Batch, table: Table) -> Entries:
    sample = _match_samples(batch, table)
    token_ids, sizes = _flat_rows(table, "token_ids", len(sample))
    log_probs, others = _flat_rows(table, "log_probs", len(sample))
    if (sizes != others).any():
        row = int(np.flatnonzero(sizes != others)[0])
        raise BatchError.build(
            key="log_probs",
            expected=f"{sizes[row]} values for sample {sample[row]}, one per token id",
            found=f"{others[row]}",
            advice="Write null where a token has no value.",
        )
    rows = [
        _response_positions(batch, index, size)
        for index, size in zip(sample.tolist(), sizes.tolist(), strict=True)
    ]
    return Entries(
        sample=np.repeat(sample, sizes),
        position=np.concatenate([np.empty(0, np.int64), *rows]),
        token_ids=token_ids,
        log_probs=log_probs,
    )
