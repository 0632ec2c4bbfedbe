"""What slime's samples have one value of: columns of the Batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from rounddiag.loaders.numpy_nodes import scalar_value
from rounddiag.loaders.tensor_nodes import stored
from rounddiag.loaders.tensors import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rounddiag.loaders.source import Source

MAX_NAMES = 256  # of the fields of all samples
_MAX_ENTRIES = 64  # of a dictionary, such as `metadata`


def plain_table(
    samples: Sequence[Mapping[str, Any]], used: Collection[str], source: Source
) -> tuple[dict[str, list[Any]], set[str]]:
    """Return a column of each field that is plain, and the names of the others.

    The entries of a dictionary are columns of their own, such as `metadata.task`. A
    field that is None in every sample is in neither.

    Parameters
    ----------
    samples : sequence of mapping
    used : collection of str
        Fields that have another place in the Batch.
    source : Source

    Returns
    -------
    columns : dict of str to list
    left_out : set of str

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source
    >>> samples = [{"status": "completed", "metadata": {"task": 1}}, {"kl": [0.5]}]
    >>> plain_table(samples, (), Source(path=Path("3.pt"), size=0))
    ({'status': ['completed', None], 'metadata.task': [1, None]}, {'kl'})
    """
    rows = [_flat(sample, used) for sample in samples]
    names = dict.fromkeys(name for row in rows for name in row)
    columns, left_out = {}, set[str]()
    for name in list(names)[:MAX_NAMES]:
        values = [_plain(row.get(name), source) for row in rows]
        if not all(isinstance(value, str | int | float | None) for value in values):
            left_out.add(name)
        elif any(value is not None for value in values):
            columns[name] = values
    return columns, left_out | {*list(names)[MAX_NAMES:]}


def _flat(sample: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """Take the dictionaries of a sample apart."""
    flat = {}
    for name, value in sample.items():
        if name in used:
            continue
        if isinstance(value, dict) and len(value) <= _MAX_ENTRIES:
            flat.update({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            flat[str(name)] = value
    return flat


def _plain(value: object, source: Source) -> object:
    """Return a number that stands in a tensor or in numpy's wrapping as it is."""
    tensor = value if isinstance(value, Tensor) else stored(value, source)
    if isinstance(tensor, StoredTensor | Tensor) and not tensor.shape:
        return (tensor if isinstance(tensor, Tensor) else tensor.read()).item()
    return scalar_value(value)


def whole(value: object) -> int | None:
    """Return an integer, also of a tensor of one; None for anything else."""
    number = value.item() if isinstance(value, Tensor) and not value.shape else value
    return number if isinstance(number, int) else None
