"""Which micro batch each of slime's samples was in."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from rounddiag.loaders.frameworks.slime.values import whole
from rounddiag.loaders.tables.stored_fields import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def micro_batches(shards: Sequence[object], count: int) -> Iterator[tuple[int, int]]:
    """Give positions of samples, and which micro batch of its shard each was in.

    Parameters
    ----------
    shards : sequence of dict
        `partition`, the positions of its samples, and `micro_batch_indices`, a list of
        indices in it for each micro batch.
    count : int
        How many samples there are: no more is given, whatever the lists repeat.

    Examples
    --------
    >>> shard = {"partition": [4, 7], "micro_batch_indices": [[1], [0]]}
    >>> list(micro_batches([shard], 2))
    [(7, 0), (4, 1)]
    """
    batches = islice(_batches(shards[:count]), count)
    indices = (
        (partition, index, number)
        for partition, number, batch in batches
        for index in as_list(batch)
    )
    for partition, index, number in islice(indices, count):
        if isinstance(index, int) and 0 <= index < len(partition):
            position = whole(partition[index])
            if position is not None:
                yield position, number


def _batches(
    shards: Sequence[object],
) -> Iterator[tuple[Sequence[object], int, object]]:
    for shard in shards:
        match shard:
            case {"partition": [*_] as partition, "micro_batch_indices": list(batches)}:
                yield from ((partition, n, batch) for n, batch in enumerate(batches))
