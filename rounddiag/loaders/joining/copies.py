"""Samples that several files have alike, as tensor-parallel ranks write them."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch


def without_copies(parts: Sequence[Batch]) -> list[Batch]:
    """Leave out samples that an earlier batch has too, bit for bit."""
    times = Counter(name for part in parts for name in {*(part.sample_ids or ())})
    owner: dict[tuple[str, bytes], int] = {}
    kept = []
    for number, part in enumerate(parts):
        keep = [
            times[name] == 1
            or owner.setdefault((name, _digest(part, sample)), number) == number
            for sample, name in enumerate(part.sample_ids or ())
        ]
        kept.append(part if all(keep) else part.where(keep))
    return kept


def _digest(part: Batch, sample: int) -> bytes:
    """Return a number that is another one where any token or log-prob is."""
    start = int(part.offsets[sample])
    stop = start + int(part.lengths[sample])
    tokens = {**part.per_token, **part.scores}
    digest = hashlib.sha256(repr([*tokens]).encode())
    for values in tokens.values():
        digest.update(
            values[start:stop].contiguous().view(torch.uint8).numpy().tobytes()
        )
    if part.prompt_ids is not None and part.prompt_offsets is not None:
        prompt = part.prompt_ids[slice(*part.prompt_offsets[sample : sample + 2])]
        digest.update(prompt.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.digest()
