"""JSON lines with one whole sequence per record, shared by NeMo-RL and prime-rl."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.loaders.assembly.step_order import is_absent
from rounddiag.loaders.field_batch import batch_from_fields
from rounddiag.loaders.field_reader import divide_sequences
from rounddiag.loaders.json_lines import Record
from rounddiag.loaders.plain_columns import SAME_PROMPT, prompt_group
from rounddiag.loaders.source import Source, left_out_entry

# Fields per token that a Batch has under the same name, besides log-probabilities.
_BATCH_FIELDS = {"entropy", "advantages", "position_ids"}
_APART = {"token_ids", "response_mask", "position_ids"}


class TokenRecords:
    """Collects samples that are stored as whole sequences.

    Parameters
    ----------
    source : Source
    mask_source : str
        The name of the mask in the file.
    """

    def __init__(self, source: Source, mask_source: str) -> None:
        self._source, self._mask_source = source, mask_source
        self._left_out: set[str] = set()
        self._rows: dict[str, list[Tensor]] = defaultdict(list)
        self._columns: list[Mapping[str, object]] = []

    def split(
        self, record: Record, names: Mapping[str, str], used: Collection[str] = ()
    ) -> tuple[dict[str, Array], dict[str, object]]:
        """Split a record into its values per token and its values per sample.

        Other fields with one value per token are used if a Batch has them: `entropy`,
        `advantages`, `position_ids`, log-probabilities of another engine or model.
        Lists and objects of another length become JSON text.
        """
        num_tokens = len(record.row("token_ids"))
        rows, columns = {}, {}
        for name, value in record.items():
            if name in names or name in used:
                continue
            if not isinstance(value, list | np.ndarray) or len(value) != num_tokens:
                columns[name] = _plain(value)
            elif name in _BATCH_FIELDS or name.endswith(("_logprobs", "_log_probs")):
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
        fields = divide_sequences(
            self._rows,
            self._source.path,
            tokens="token_ids",
            written="response_mask",
            names={name: name for name in self._rows if name not in _APART},
        )
        groups = [prompt_group(row) for row in fields["prompts"]]
        batch = batch_from_fields(
            fields,
            source=self._source.path,
            columns={"uid": groups, **self._table()},
            info=info,
        )
        derived = {
            "mask_source": self._mask_source,
            "prompt_source": f"the tokens before the first 1 of `{self._mask_source}`",
            **SAME_PROMPT,
        }
        entry = left_out_entry(self._left_out)
        return replace(batch, meta={**batch.meta, **derived, **entry})

    def _table(self) -> dict[str, list[object]]:
        """Return the columns, without those that are null everywhere."""
        names = dict.fromkeys(name for row in self._columns for name in row)
        table = {name: [row.get(name) for row in self._columns] for name in names}
        return {
            name: values
            for name, values in table.items()
            if not all(map(is_absent, values))
        }


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=_as_list, ensure_ascii=False)


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401 an array, as JSON wants it
    return list(value.tolist())
