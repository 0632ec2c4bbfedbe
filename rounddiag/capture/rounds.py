"""`round_record`: what an agent loop knows of each call of the sampling engine."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
