"""JSON lines with one whole sequence per record, shared by NeMo-RL and prime-rl."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.content import as_json
from rounddiag.columns.column import is_unknown
from rounddiag.loaders.field_reader import divide_sequences
from rounddiag.loaders.fields import field_of, is_per_token
from rounddiag.loaders.json_lines import Record
from rounddiag.loaders.plain_columns import collect_columns
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, batch_from_table

_APART = {"token_ids", "response_mask", "position_ids"}


class TokenRecords:
    """Collects samples that are stored as whole sequences.

    Parameters
    ----------
    source : Source
    mask_source : str
        The name of the mask in the file.
    computed : collection of str
        Fields that the trainer computed from the log-probs of both engines. They are
        left out and named.
    """

    def __init__(
        self, source: Source, mask_source: str, computed: Collection[str] = ()
    ) -> None:
        self._source, self._mask_source = source, mask_source
        self._apart = {*computed}
        self._left_out: set[str] = set()
        self._rows: dict[str, list[Tensor]] = defaultdict(list)
        self._columns: list[Mapping[str, object]] = []

    def split(
        self, record: Record, names: Mapping[str, str], used: Collection[str] = ()
    ) -> tuple[dict[str, Array], dict[str, object]]:
        """Split a record into its values per token and its values per sample.

        Other lists of one number per token keep their names: as fields that a Batch
        has, as further log-probs, or as columns of tokens. Lists and objects of another
        length become JSON text.
        """
        num_tokens = len(record.row("token_ids"))
        rows, columns = {}, {}
        for name, value in record.items():
            if name in names or name in used:
                continue
            if not isinstance(value, list | np.ndarray) or len(value) != num_tokens:
                columns[name] = _plain(value)
            elif name not in self._apart.union(names.values()) and _is_of_tokens(
                name, value
            ):
                rows[name] = record.row(name)
            else:
                self._left_out.add(name)
        required = {
            ours: record.row(theirs, num_tokens) for theirs, ours in names.items()
        }
        return {**required, **rows}, columns

    def add(self, rows: Mapping[str, Array], columns: Mapping[str, object]) -> None:
        """Add a sample."""
        for name, row in rows.items():
            self._rows[name].append(torch.from_numpy(row))
        ids = rows["token_ids"]
        wide = ids.astype(np.promote_types(ids.dtype, np.int32), copy=False)
        self._rows["token_ids"][-1] = torch.from_numpy(wide)
        self._columns.append(columns)

    def batch(self, info: Mapping[str, object]) -> Batch:
        """Return the samples as a Batch; `meta` names what was derived and left out."""
        partial = {
            name
            for name, rows in self._rows.items()
            if len(rows) < len(self._columns) and field_of(name) is None
        }
        fields = divide_sequences(
            self._rows,
            self._source.path,
            tokens="token_ids",
            written="response_mask",
            names={name: name for name in self._rows if name not in _APART | partial},
        )
        facts = {
            "mask_source": self._mask_source,
            "prompt_source": f"the tokens before the first 1 of `{self._mask_source}`",
        }
        columns, few = collect_columns(self._columns)
        table = Table(
            fields=fields,
            columns={
                name: values
                for name, values in columns.items()
                if not all(
                    v is None or (field_of(name) and is_unknown(v)) for v in values
                )
            },
            info=info,
            left_out=[*self._left_out | partial, *few],
            facts=facts,
        )
        return batch_from_table(table.with_prompt_groups(), self._source)


def _is_of_tokens(name: str, values: object) -> bool:
    """Return whether the numbers of a name, one per token, have a place in a Batch."""
    if field_of(name) is None:
        return isinstance(values, np.ndarray) and values.ndim == 1
    return is_per_token(name) or name == "position_ids"


def _plain(value: object) -> object:
    is_plain = value is None or isinstance(value, str | int | float)
    return value if is_plain else as_json(value)
