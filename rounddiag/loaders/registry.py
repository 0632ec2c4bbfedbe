"""Every format that `load` opens, in the order in which they are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.nemo_rl import NEMO_RL
from rounddiag.loaders.frameworks.prime_rl import PRIME_RL
from rounddiag.loaders.frameworks.skyrl import SKYRL, SKYRL_0_1
from rounddiag.loaders.frameworks.slime import RANK, RANK_COLUMNS, ROLLOUTS, SAMPLES
from rounddiag.loaders.frameworks.trainer_fields import AREAL, OPENRLHF, TRL
from rounddiag.loaders.frameworks.verl import DATA_PROTO, DATA_PROTO_OF_OTHERS, PAYLOAD
from rounddiag.loaders.tabular.arrays import DATASET, TENSORS

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

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


UNVERIFIED = "unverified: laid out from its source"
# Those with more keys of their own come first: the first whose keys are all there wins.
FORMATS: tuple[Format, ...] = (
    OWN,
    OWN_OF_RANKS,
    RANK,
    RANK_COLUMNS,
    SAMPLES,
    ROLLOUTS,
    DATA_PROTO,
    DATA_PROTO_OF_OTHERS,
    PAYLOAD,
    NEMO_RL,
    PRIME_RL,
    SKYRL,
    SKYRL_0_1,
    TRL,
    OPENRLHF,
    AREAL,
    TENSORS,
    DATASET,
)


def find_format(names: Collection[str]) -> Format | None:
    """Return the first format whose keys are all among `names`."""
    return next((form for form in FORMATS if not form.missing(names)), None)


def closest(names: Collection[str]) -> list[tuple[Format, list[str]]]:
    """Return the formats that `names` come close to, with the keys that are missing.

    A format is close if at least half of its keys are there. The closest come first,
    three at most.
    """
    pairs = [(form, form.missing(names)) for form in FORMATS]
    near = [(form, gone) for form, gone in pairs if 2 * len(gone) <= len(form.keys)]
    return sorted(near, key=lambda pair: len(pair[1]) / len(pair[0].keys))[:3]


def formats() -> pd.DataFrame:
    """List what `rounddiag.load` opens.

    Returns
    -------
    DataFrame
        One row a format: its name, what writes it, the files to look for, and on what
        reading it was checked. *unverified* says that the file was laid out from the
        writer's source, as the writer could not be run.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.formats().columns.tolist()
    ['format', 'framework', 'files', 'checked on']
    """
    import pandas as pd

    rows = [
        (form.name, form.framework, ", ".join(form.files), form.verified or UNVERIFIED)
        for form in FORMATS
    ]
    return pd.DataFrame(rows, columns=["format", "framework", "files", "checked on"])
