"""Our own Parquet among the formats; pyarrow is imported when such a file is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.loaders.format import Format

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source


_WRITTEN = "written by rounddiag"


def _read(_: object, source: Source) -> Batch:
    from rounddiag.loaders.parquet import load_parquet

    return load_parquet(source.path)


OWN = Format(
    name="rounddiag's Parquet",
    framework="rounddiag",
    files=("*.parquet",),
    keys=("rounddiag",),
    read=_read,
    verified=_WRITTEN,
)
OWN_OF_RANKS = Format(
    name="rounddiag's Parquet, one file a rank",
    framework="rounddiag",
    files=("*_rank_*.parquet",),
    keys=OWN.keys,
    read=_read,
    verified=_WRITTEN,
    in_parts=True,
)
