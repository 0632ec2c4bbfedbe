"""What miles saves with `--dump-details`: slime's columns, one file a rank.

With context parallelism, a rank's per-token columns are slices of each sample, whose
places the file does not have; tensor-parallel ranks write the same samples again. The
same sample has the same `sample_id` in all files, so that copies can be dropped.
"""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING

from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.slime import read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source


def read_rank(root: Mapping[str, object], source: Source) -> Batch:
    """Build a batch from what one rank trained on, if it held whole samples."""
    size = root["cp_size"]
    if size != 1:
        raise source.error(
            expected="`cp_size` 1, samples that one rank holds whole",
            found=f"{reprlib.repr(size):.40}: each rank has slices of its samples",
            advice="Dump a step with `--context-parallel-size 1`; miles' own dashboard"
            " joins slices.",
        )
    return read_columns(root, source)


RANK = Format(
    name="train data of a rank, `cp_size` 1",
    framework="miles",
    files=("train_data/*_*.pt",),
    keys=("rollout_id", "rank", "rollout_data", "cp_size"),
    read=read_rank,
    verified="written by miles' own functions, on rollouts made by hand",
    in_parts=True,
)
