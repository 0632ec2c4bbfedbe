"""Where the rows of a source stand in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.loaders.scores.values import shown_names, whole

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.tables.table import Table

    Array = np.ndarray[Any, Any]

_SAME_BATCH = "Attach to the batch, or the selection, that was rescored."


def samples_of(batch: Batch, table: Table) -> Array:
    """Return which sample of the batch each row is of.

    Raises
    ------
    BatchError
        If a row names no sample of the batch.
    """
    ids = batch.sample_ids
    if ids is not None and "sample_id" in table.columns and len({*ids}) == len(ids):
        return _samples_by_id(ids, table.columns["sample_id"])
    if "sample" not in table.names:
        raise BatchError.build(
            key="sample",
            expected="the number of the sample in each row, or `sample_id` where the"
            " batch has ids and no two are alike",
            found=shown_names(table),
            advice="`rounddiag.export_rescore` writes both: pass them on.",
        )
    sample = whole(table, "sample")
    _check_range("sample", sample, np.int64(batch.num_samples), "samples of the batch")
    return sample


def positions_of(batch: Batch, table: Table, sample: Array) -> Array:
    """Return the position in the response of each row that is a token.

    Raises
    ------
    BatchError
        If a row names no token of its sample.
    """
    if "position" in table.names:
        position = whole(table, "position", len(sample))
        lengths: Array = batch.lengths.cpu().numpy()
        _check_range("position", position, lengths[sample], "positions of its sample")
        return position
    round_, token = (whole(table, name, len(sample)) for name in ("round", "token"))
    rounds = batch.rounds
    of_round: Array = rounds.sample.cpu().numpy()
    limits = np.searchsorted(of_round, np.arange(batch.num_samples + 1))
    _check_range("round", round_, np.diff(limits)[sample], "rounds of its sample")
    index = limits[sample] + round_
    num_tokens: Array = rounds.num_tokens.cpu().numpy()[index]
    _check_range("token", token, num_tokens, "tokens of its round")
    starts: Array = rounds.start.cpu().numpy()[index]
    offsets: Array = batch.offsets.cpu().numpy()
    return starts + token - offsets[sample]


def response_positions(batch: Batch, sample: int, size: int) -> Array:
    """Return the positions that a row of so many tokens is for: all, or the generated.

    Raises
    ------
    BatchError
        If it is neither.
    """
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

    found: Array = pd.Index(ids, dtype=object).get_indexer(
        pd.Index(names, dtype=object)
    )
    if (found < 0).any():
        row = int(np.flatnonzero(found < 0)[0])
        raise BatchError.build(
            key="sample_id",
            expected=f"ids of the batch, such as {ids[0]!r:.80}" if ids else "no rows",
            found=f"{names[row]!r:.80} in row {row}",
            advice=_SAME_BATCH,
        )
    return found


def _check_range(name: str, values: Array, stop: Array | np.int64, what: str) -> None:
    odd = (values < 0) | (values >= stop)
    if odd.any():
        row = int(np.flatnonzero(odd)[0])
        most = np.broadcast_to(stop, values.shape)[row]
        raise BatchError.build(
            key=name,
            expected=f"0 up to {most - 1}, one of the {most} {what}",
            found=f"{values[row]} in row {row}",
            advice=_SAME_BATCH,
        )
