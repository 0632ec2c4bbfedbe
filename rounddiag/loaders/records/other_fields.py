"""Fields of a record that its reader does not know: sorted, so that none is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from rounddiag.loaders.records.number_arrays import Array
    from rounddiag.loaders.records.record import Record

_CARRIED = {"entropy", "advantages", "position_ids"}


def others(
    record: Record, used: Collection[str], num_tokens: int
) -> tuple[dict[str, Array], dict[str, object], set[str]]:
    """Sort the fields of a record that a reader did not use.

    Returns
    -------
    rows : dict of str to array
        One value a token, of what a Batch carries under the same name: `entropy`,
        `advantages`, `position_ids`, log-probabilities of another engine or model.
    columns : dict of str to object
        One plain value each; what is not plain is kept as JSON text.
    left_out : set of str
        Fields of one value a token that a Batch has no place for.
    """
    rows, columns, left_out = {}, {}, set()
    for name, value in record.items():
        if name in used:
            continue
        if not isinstance(value, list | np.ndarray) or len(value) != num_tokens:
            columns[name] = _plain(value)
        elif name in _CARRIED or name.endswith(("_logprobs", "_log_probs")):
            rows[name] = record.row(name)
        else:
            left_out.add(name)
    return rows, columns, left_out


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=_listed, ensure_ascii=False)


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 an array, as JSON wants it
    return list(value.tolist())
