"""Records of one sample each, gathered into a batch."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import torch

from rounddiag.loaders.fields import batch_from_fields
from rounddiag.loaders.sequences import divided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.loaders.number_arrays import Array
    from rounddiag.loaders.source import Source

SAME_PROMPT = {"group_source": "samples whose prompts have the same tokens"}
_APART = {"token_ids", "response_mask", "position_ids"}


class SampleRecords:
    """Gathers samples that a file holds as whole sequences.

    Attributes
    ----------
    left_out : set of str
        Fields of the file that a Batch has no place for.
    """

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self._rows: dict[str, list[Tensor]] = defaultdict(list)
        self._columns: list[Mapping[str, object]] = []

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
        self._columns.append(columns)

    def batch(
        self, source: Source, info: Mapping[str, object], mask_source: str
    ) -> Batch:
        """Return the samples as a Batch, whose `meta` tells what is not of the file."""
        names = {name: name for name in self._rows if name not in _APART}
        fields = divided(
            self._rows,
            source.path,
            tokens="token_ids",
            written="response_mask",
            names=names,
        )
        fields["responses"] = [_at_least_int32(row) for row in fields["responses"]]
        groups = [prompt_group(row) for row in fields["prompts"]]
        columns = {"uid": groups, **self._table()}
        batch = batch_from_fields(
            fields, source=source.path, columns=columns, info=info
        )
        ours = {
            "mask_source": mask_source,
            "prompt_source": f"the tokens before the first 1 of `{mask_source}`",
            **SAME_PROMPT,
        }
        told = {"left_out": sorted(self.left_out)} if self.left_out else {}
        return replace(batch, meta={**batch.meta, **ours, **told})

    def _table(self) -> dict[str, list[object]]:
        """Return the columns; one of nothing but null is as good as not there."""
        names = dict.fromkeys(name for row in self._columns for name in row)
        table = {name: [row.get(name) for row in self._columns] for name in names}
        return {
            name: values
            for name, values in table.items()
            if not all(map(_is_null, values))
        }


def _is_null(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _at_least_int32(row: Tensor) -> Tensor:
    return row if row.is_floating_point() else row.to(_wide(row.dtype))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.int32)


def prompt_group(prompt: Tensor) -> str:
    """Return the same short text for the same prompt tokens.

    Examples
    --------
    >>> prompt_group(torch.tensor([1, 2])) == prompt_group(torch.tensor([1, 2]).int())
    True
    """
    return blake2b(prompt.long().numpy().tobytes(), digest_size=8).hexdigest()
