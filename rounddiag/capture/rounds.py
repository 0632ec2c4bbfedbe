"""Per-round records of an agent loop, and the round columns they become."""

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

    # Sample, round and the record itself.
    Row = tuple[int, int, dict[str, Any]]


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
        The input of the call: all tokens before this round.
    token_ids : sequence of int
        The generated tokens. A call that generated none is not a round and is dropped
        when the batch is saved.
    images : iterable of bytes or PIL images
        The screenshots that are new in this round.
    **facts
        Further facts, such as `request_id`, `weight_version`, `cached_tokens` and
        `finish_reason`.

    Returns
    -------
    dict
        `num_tokens`, `prompt_length`, `prompt_hash`, `num_images`, `image_hashes` (64
        bits each, in hexadecimal) and the facts.

    Examples
    --------
    >>> record = round_record([5, 6, 7], [8, 9], finish_reason="stop")
    >>> record["prompt_length"], record["num_tokens"], record["finish_reason"]
    (3, 2, 'stop')
    """
    hashes = [_hash(_image_bytes(image)) for image in images]
    return {
        "num_tokens": len(token_ids),
        "prompt_length": len(prompt_ids),
        "prompt_hash": _hash(np.asarray(prompt_ids, dtype=np.int64).tobytes()),
        "num_images": len(hashes),
        "image_hashes": hashes,
        **facts,
    }


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=_HASH_BYTES).hexdigest()


def _image_bytes(image: Any) -> bytes:  # noqa: ANN401 Pillow may be missing
    return image if isinstance(image, bytes) else image.tobytes()


def with_round_records(batch: Batch, records: Sequence[Any]) -> Batch:
    """Return the batch with the records in its `round_columns`.

    Parameters
    ----------
    batch : Batch
    records : sequence of (list of dict, or None), one per sample

    Raises
    ------
    BatchError
        If `records` is not one list of dictionaries per sample.
    """
    if len(records) != batch.num_samples:
        raise _record_error(batch.num_samples, f"{len(records)}")
    rows: list[Row] = []
    num_without_tokens = 0
    for sample, calls in enumerate(records):
        all_calls = _dictionaries(batch, calls)
        answered = [record for record in all_calls if record.get("num_tokens") != 0]
        num_without_tokens += len(all_calls) - len(answered)
        rows += [(sample, index, record) for index, record in enumerate(answered)]
    meta = dict(batch.meta)
    if num_without_tokens:
        meta["num_records_without_tokens"] = num_without_tokens
    return replace(batch, round_columns=_columns(rows), meta=meta)


def _dictionaries(batch: Batch, calls: Any) -> list[dict[str, Any]]:  # noqa: ANN401 from the trainer
    if calls is None:
        return []
    rows = [*calls] if isinstance(calls, list | tuple | np.ndarray) else [calls]
    for row in rows:
        if not isinstance(row, dict):
            raise _record_error(batch.num_samples, f"a {type(row).__name__} in one")
    return rows


def _columns(rows: Sequence[Row]) -> dict[str, Array]:
    names = dict.fromkeys(name for _, _, record in rows for name in record)
    values = {name: [record.get(name) for _, _, record in rows] for name in names}
    plain = plain_columns(values, len(rows))
    keys = {
        "sample": np.array([sample for sample, _, _ in rows], dtype=np.int32),
        "round": np.array([index for _, index, _ in rows], dtype=np.int32),
    }
    others = {
        name: plain.get(name, np.fromiter(items, dtype=object, count=len(items)))
        for name, items in values.items()
        if name not in keys
    }
    return {**keys, **others} if rows else {}


def _record_error(num_samples: int, found: str) -> BatchError:
    return BatchError.build(
        key="round_records",
        expected=f"{num_samples} lists of dictionaries, one list per sample",
        found=found,
        advice="Collect the return values of `rounddiag.capture.round_record`.",
    )
