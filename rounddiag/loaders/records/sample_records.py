"""Records of one sample each, gathered into a batch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import torch

from rounddiag.batch.layout import offsets_of
from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.fields.sequences import divided
from rounddiag.loaders.left_out import told_left_out
from rounddiag.loaders.natural_order import is_absent
from rounddiag.loaders.tensors.ragged import Ragged, ragged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.loaders.records.number_arrays import Array
    from rounddiag.loaders.source import Source

SAME_PROMPT = {"group_source": "samples whose prompts have the same tokens"}
_APART = {"token_ids", "response_mask", "position_ids"}
_PIECE = 256  # samples that are divided at once


class SampleRecords:
    """Gathers samples that a file holds as whole sequences.

    Many short samples need more memory for the objects that hold their rows than for
    the rows. So these are put end to end, piece by piece, while the file is read.

    Parameters
    ----------
    source : Source
    mask_source : str
        What the file calls its mask.

    Attributes
    ----------
    left_out : set of str
        Fields of the file that a Batch has no place for.
    """

    def __init__(self, source: Source, mask_source: str) -> None:
        self.left_out: set[str] = set()
        self._source, self._mask_source = source, mask_source
        self._rows: dict[str, list[Tensor]] = defaultdict(list)
        self._pieces: dict[str, list[Ragged]] = defaultdict(list)
        self._columns: list[Mapping[str, object]] = []
        self._groups: list[str] = []

    def add(self, rows: Mapping[str, Array], columns: Mapping[str, object]) -> None:
        """Add a sample.

        Parameters
        ----------
        rows : mapping of str to array
            One value a token of the sequence: `token_ids`, `response_mask`, and what
            else there is under verl's names.
        columns : mapping of str to object
            What there is one value of.
        """
        for name, row in rows.items():
            self._rows[name].append(torch.from_numpy(row))
        self._rows["token_ids"][-1] = _at_least_int32(rows["token_ids"])
        self._columns.append(columns)
        if len(self._columns) % _PIECE == 0:
            self._divide()

    def _divide(self) -> None:
        """Divide the samples since the last time, and put them end to end."""
        names = {name: name for name in self._rows if name not in _APART}
        fields = divided(
            self._rows,
            self._source.path,
            tokens="token_ids",
            written="response_mask",
            names=names,
        )
        self._rows.clear()
        self._groups += [prompt_group(row) for row in fields["prompts"]]
        for name, rows in fields.items():
            self._pieces[name].append(ragged(rows))

    def batch(self, info: Mapping[str, object]) -> Batch:
        """Return the samples as a Batch, whose `meta` tells what is not of the file."""
        if self._rows:
            self._divide()
        batch = batch_from_fields(
            {name: _joined(self._pieces.pop(name)) for name in [*self._pieces]},
            source=self._source.path,
            columns={"uid": self._groups, **self._table()},
            info=info,
        )
        ours = {
            "mask_source": self._mask_source,
            "prompt_source": f"the tokens before the first 1 of `{self._mask_source}`",
            **SAME_PROMPT,
        }
        told = told_left_out(self.left_out)
        return replace(batch, meta={**batch.meta, **ours, **told})

    def _table(self) -> dict[str, list[object]]:
        """Return the columns; one of nothing but null is as good as not there."""
        names = dict.fromkeys(name for row in self._columns for name in row)
        table = {name: [row.get(name) for row in self._columns] for name in names}
        return {
            name: values
            for name, values in table.items()
            if not all(map(is_absent, values))
        }


def _at_least_int32(token_ids: Array) -> Tensor:
    dtype = np.promote_types(token_ids.dtype, np.int32)
    return torch.from_numpy(token_ids.astype(dtype, copy=False))


def _joined(pieces: list[Ragged]) -> Ragged:
    lengths = torch.cat([piece.lengths for piece in pieces])
    return Ragged(
        values=torch.cat([piece.values for piece in pieces]),
        offsets=offsets_of(lengths),
    )


def prompt_group(prompt: Tensor) -> str:
    """Return the same short text for the same prompt tokens.

    Examples
    --------
    >>> prompt_group(torch.tensor([1, 2])) == prompt_group(torch.tensor([1, 2]).int())
    True
    """
    return blake2b(prompt.long().numpy().tobytes(), digest_size=8).hexdigest()
