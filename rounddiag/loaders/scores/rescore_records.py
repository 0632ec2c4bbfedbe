"""One sample as `export_rescore` writes it: a record, and pictures beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.errors import RounddiagError
from rounddiag.loaders.parquet.columns import BROKEN

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot


def record_of(batch: Batch, sample: int, place: Path) -> dict[str, Any]:
    """Write the screenshots of a sample below `place`, and return its record."""
    start = int(batch.offsets[sample])
    real = slice(start, start + int(batch.lengths[sample]))
    shots = () if batch.images is None else batch.images[sample]
    pictures = [
        _write(shot, place, f"images/{sample:05}-{index:03}.png")
        for index, shot in enumerate(shots)
    ]
    return {
        "sample": sample,
        "sample_id": None if batch.sample_ids is None else batch.sample_ids[sample],
        "prompt_ids": _prompt(batch, sample),
        "response_ids": batch.response_ids[real].tolist(),
        "response_mask": (batch.response_mask[real] != 0).int().tolist(),
        "images": [name for name, _ in pictures],
        "image_positions": [shot.position for shot in shots],
        "image_errors": [error for _, error in pictures],
    }


def _prompt(batch: Batch, sample: int) -> list[int] | None:
    ids, offsets = batch.prompt_ids, batch.prompt_offsets
    if ids is None or offsets is None:
        return None
    part: Tensor = ids[offsets[sample] : offsets[sample + 1]]
    found: list[int] = part.tolist()
    return found


def _write(shot: Screenshot, place: Path, name: str) -> tuple[str | None, str | None]:
    """Write a screenshot; return its name, or why there is none."""
    try:
        shot.image()  # what is stored as PNG would be passed on without a look at it
        data = shot.png()
    except (RounddiagError, *BROKEN) as error:
        return None, f"{error!s:.300}"
    (place / name).write_bytes(data)
    return name, None
