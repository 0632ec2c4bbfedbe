"""Rows of scores as one entry a token: where it stands, its id, its log-probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.loaders.scores.places import positions_of, response_positions, samples_of
from rounddiag.loaders.scores.values import flat_rows, floats, shown_names, whole

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.tables.table import Table

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Entries:
    """One value a token, as a source has them.

    Attributes
    ----------
    sample, position : array of int
        Where the token stands.
    token_ids : array of int
    log_probs : array of float
    """

    sample: Array
    position: Array
    token_ids: Array
    log_probs: Array

    def flat_positions(self, batch: Batch) -> Array:
        """Return where the tokens stand in the flat fields of the batch."""
        starts: Array = batch.offsets.cpu().numpy()
        return starts[self.sample] + self.position


def entries_of(batch: Batch, table: Table) -> Entries:
    """Return the entries of rows that are samples, or of rows that are tokens.

    Raises
    ------
    BatchError
        If columns are missing or do not fit, or a row is of no sample or token.
    """
    names = {*table.names}
    if {"token_ids", "log_probs"} <= names:
        return _of_samples(batch, table)
    if {"token_id", "log_prob"} <= names:
        return _of_tokens(batch, table)
    raise BatchError.build(
        expected="`token_ids` and `log_probs`, a row a sample, or `token_id` and"
        " `log_prob`, a row a token",
        found=shown_names(table),
        advice="Rename the columns.",
    )


def _of_tokens(batch: Batch, table: Table) -> Entries:
    sample = samples_of(batch, table)
    return Entries(
        sample=sample,
        position=positions_of(batch, table, sample),
        token_ids=whole(table, "token_id", len(sample)),
        log_probs=floats(table, "log_prob", len(sample)),
    )


def _of_samples(batch: Batch, table: Table) -> Entries:
    sample = samples_of(batch, table)
    token_ids, sizes = flat_rows(table, "token_ids", len(sample))
    log_probs, others = flat_rows(table, "log_probs", len(sample))
    if (sizes != others).any():
        row = int(np.flatnonzero(sizes != others)[0])
        raise BatchError.build(
            key="log_probs",
            expected=f"{sizes[row]} values for sample {sample[row]}, one a token id",
            found=f"{others[row]}",
            advice="Write null where a token has no value.",
        )
    rows = [
        response_positions(batch, index, size)
        for index, size in zip(sample.tolist(), sizes.tolist(), strict=True)
    ]
    return Entries(
        sample=np.repeat(sample, sizes),
        position=np.concatenate([np.empty(0, np.int64), *rows]),
        token_ids=token_ids,
        log_probs=log_probs,
    )
