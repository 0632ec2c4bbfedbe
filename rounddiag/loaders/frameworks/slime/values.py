"""What slime's samples have one value of: columns of the Batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.tensors.numpy_nodes import scalar_value
from rounddiag.loaders.tensors.stored import StoredTensor
from rounddiag.loaders.tensors.tensor_nodes import stored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rounddiag.loaders.source import Source

MAX_VALUES = 1 << 20  # of all columns together
_MAX_ENTRIES = 32  # of a dictionary, such as `metadata`


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
    places = dict.fromkeys(
        place for sample in samples for place in _places(sample, used)
    )
    names = {".".join(map(str, place)): place for place in places}
    most = MAX_VALUES // max(len(samples), 1)
    columns, left_out = dict[str, list[Any]](), {*list(names)[most:]}
    for name, place in list(names.items())[:most]:
        values = [_plain(_at(sample, place), source) for sample in samples]
        if all(isinstance(value, str | int | float | None) for value in values):
            columns[name] = values
        else:
            left_out.add(name)
    return columns, left_out


def _places(
    sample: Mapping[str, Any], used: Collection[str]
) -> Iterator[tuple[object, ...]]:
    """Give where the values of a sample stand: a key, or a key and one below it."""
    for key, value in sample.items():
        if key in used or value is None:
            continue
        if isinstance(value, dict) and len(value) <= _MAX_ENTRIES:
            yield from ((key, entry) for entry in value)
        else:
            yield (key,)


def _at(sample: Mapping[str, Any], place: tuple[object, ...]) -> object:
    value: object = sample
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _plain(value: object, source: Source) -> object:
    """Return a number that a tensor or numpy wraps as it is; others unchanged."""
    tensor = stored(value, source)
    if isinstance(tensor, StoredTensor) and not tensor.shape:
        return tensor.read().item()
    return scalar_value(value)


def whole(value: object) -> int | None:
    """Return an integer, also of a tensor of one; None for anything else."""
    if isinstance(value, StoredTensor) and not value.shape:
        value = value.read().item()
    return value if isinstance(value, int) else None
