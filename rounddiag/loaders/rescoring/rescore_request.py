"""Write a batch's exact token ids and screenshots, for another engine to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from rounddiag.errors import BatchError, RounddiagError
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.loaders.parquet.writer import write_atomically
from rounddiag.loaders.rescoring.attach_scores import require_ids

if TYPE_CHECKING:
    import os

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot


def _record(batch: Batch, sample: int, folder: Path) -> dict[str, Any]:
    """Write the screenshots of a sample, and return its record."""
    start = int(batch.offsets[sample])
    real = slice(start, start + int(batch.lengths[sample]))
    shots = () if batch.images is None else batch.images[sample]
    pictures = [
        _write_screenshot(shot, folder, f"images/{sample:05}-{index:03}.png")
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
    prompt: list[int] = ids[offsets[sample] : offsets[sample + 1]].tolist()
    return prompt


def _write_screenshot(
    shot: Screenshot, folder: Path, name: str
) -> tuple[str | None, str | None]:
    """Write a screenshot; return its name, or why there is none."""
    try:
        shot.image()  # `png` passes stored PNG bytes on without decoding them
        data = shot.png()
    except (RounddiagError, *BROKEN) as error:
        return None, f"{error!s:.300}"
    (folder / name).write_bytes(data)
    return name, None


def export_rescore(batch: Batch, folder: str | os.PathLike[str]) -> None:
    """Write exact token ids and screenshots, for another engine to score.

    Only a third score of identical tokens shows which of two engines is wrong. Ids are
    written as numbers and never pass through text, so they stay the same.

    `samples.jsonl` has one record per sample:

    ===================  =========================================================
    `sample`             index in the batch
    `sample_id`          null if the batch has none
    `prompt_ids`         null if the batch has none
    `response_ids`
    `response_mask`
    `images`             names of PNG files under `images/`, one per screenshot;
                         null for a screenshot that could not be written
    `image_positions`    of the first image token in the response; negative in the
                         prompt (-1 is its last token), null if unknown
    `image_errors`       why a screenshot could not be written, else null
    ===================  =========================================================

    Screenshots are written as the batch has them: `capture.save_batch` stores them
    smaller than the model saw them.

    Parameters
    ----------
    batch : Batch
        All of a batch, or a selection such as `batch[:8]`.
    folder : path-like
        A new or empty folder.

    Raises
    ------
    BatchError
        If the folder is not empty, or the batch was redacted.

    See Also
    --------
    attach : Adds the scores. README.md, "Which engine is wrong", has complete scripts
        for vLLM and transformers.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_rescore(batch[:2], folder)
    ...     print(*sorted(file.name for file in Path(folder).iterdir()))
    images samples.jsonl
    """
    path = Path(folder)
    _check(batch, path)
    (path / "images").mkdir(parents=True)
    numbers = tqdm(range(batch.num_samples), unit="sample", leave=False, delay=1)
    with (
        write_atomically(path / "samples.jsonl") as partial,
        partial.open("w", encoding="utf-8") as lines,
    ):
        for number in numbers:
            lines.write(f"{json.dumps(_record(batch, number, path))}\n")


def _check(batch: Batch, folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BatchError.build(
            file=folder,
            expected="a folder that is new or empty",
            found="one with files" if folder.is_dir() else "a file",
            advice="Pass another folder: nothing is overwritten.",
        )
    require_ids(batch, "Export from the batch that it was made of.")
