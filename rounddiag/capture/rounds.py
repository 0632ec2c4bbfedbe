"""What an agent loop knows of each round: records, and the columns they become."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.loaders.fields.mapping import plain_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


_HASH_BYTES = 8


def round_record(
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    *,
    images: Iterable[Any] = (),
    **facts: str | float | None,
) -> dict[str, Any]:
    """Record one call of the sampling engine, for the list `round_records` of a sample.

    Parameters
    ----------
    prompt_ids : sequence of int
        What the engine was given: everything before this round.
    token_ids : sequence of int
        What it answered. A call without an answer is no round, and is left out later.
    images : iterable of bytes or PIL images
        The pictures that are new in this round.
    **facts
        What else is known, such as `request_id`, `weight_version`, `cached_tokens`,
        `finish_reason`.

    Returns
    -------
    dict
        `num_tokens`, `prompt_length`, `prompt_hash`, `num_images`, `image_hashes` (of
        64 bits, in hexadecimal) and the facts.

    Examples
    --------
    >>> record = round_record([5, 6, 7], [8, 9], finish_reason="stop")
    >>> record["prompt_length"], record["num_tokens"], record["finish_reason"]
    (3, 2, 'stop')
    """
    hashes = [_hash(_picture_bytes(image)) for image in images]
    return {
        "num_tokens": len(token_ids),
        "prompt_length": len(prompt_ids),
        "prompt_hash": _hash(np.asarray(prompt_ids, dtype=np.int64).tobytes()),
        "num_images": len(hashes),
        "image_hashes": hashes,
        **facts,
    }


def with_records(batch: Batch, records: Sequence[Any]) -> Batch:
    """Return the batch with the records in its `round_columns`.

    Raises
    ------
    BatchError
        If they are not a list of dictionaries a sample.
    """
    if len(records) != batch.num_samples:
        raise _misfit(batch.num_samples, f"{len(records)}")
    found: list[tuple[int, int, dict[str, Any]]] = []
    num_without_tokens = 0
    for sample, listed in enumerate(records):
        all_calls = _dictionaries(batch, listed)
        answered = [record for record in all_calls if record.get("num_tokens") != 0]
        num_without_tokens += len(all_calls) - len(answered)
        found += [(sample, index, record) for index, record in enumerate(answered)]
    told = (
        {"num_records_without_tokens": num_without_tokens} if num_without_tokens else {}
    )
    return replace(batch, round_columns=_columns(found), meta={**batch.meta, **told})


def _dictionaries(batch: Batch, listed: Any) -> list[dict[str, Any]]:  # noqa: ANN401 what a trainer passed
    if listed is None:
        return []
    rows = [*listed] if isinstance(listed, list | tuple | np.ndarray) else [listed]
    for row in rows:
        if not isinstance(row, dict):
            raise _misfit(batch.num_samples, f"a {type(row).__name__} in one")
    return rows


def _columns(found: Sequence[tuple[int, int, dict[str, Any]]]) -> dict[str, Array]:
    names = dict.fromkeys(name for _, _, record in found for name in record)
    values = {name: [record.get(name) for _, _, record in found] for name in names}
    plain = plain_columns(values, len(found))
    keys = {
        "sample": np.array([sample for sample, _, _ in found], dtype=np.int32),
        "round": np.array([index for _, index, _ in found], dtype=np.int32),
    }
    others = {
        name: plain.get(name, np.fromiter(items, dtype=object, count=len(items)))
        for name, items in values.items()
        if name not in keys
    }
    return {**keys, **others} if found else {}


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=_HASH_BYTES).hexdigest()


def _picture_bytes(image: Any) -> bytes:  # noqa: ANN401 PIL need not be there
    return image if isinstance(image, bytes) else image.tobytes()


def _misfit(num_samples: int, found: str) -> BatchError:
    return BatchError.build(
        key="round_records",
        expected=f"{num_samples} lists of dictionaries, one list per sample",
        found=found,
        advice="Collect what `rounddiag.capture.round_record` returns.",
    )
