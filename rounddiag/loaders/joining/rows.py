"""Rows that are steps, as samples: the rows of one trajectory, one after the other.

=========================  =========================================================
of a later row             it becomes
=========================  =========================================================
prompt                     an observation: mask and log-probs 0, entropy and
                           advantages NaN, as nobody computed any
response                   the next rounds, never one with the round before
images                     the same, with their rounds and positions counted on
one value a row            a column of samples where all rows of each trajectory
                           agree, else a column of rounds; `rewards` are those of
                           the last row
`position_ids`             left out: they start anew in each row
=========================  =========================================================
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.selection import select
from rounddiag.checks.words import count
from rounddiag.core.open_columns import round_values
from rounddiag.loaders.joining.dividing import division_ids
from rounddiag.loaders.joining.trajectories import find_trajectories
from rounddiag.loaders.joining.weaving import Weave
from rounddiag.loaders.left_out import left_out_of, told_left_out
from rounddiag.schema import ORIGINAL_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

_KEYS = ("sample", "round", "row")  # of the round columns of what was joined


def join_rows(
    batch: Batch, sample_by: str | Sequence[str], order_by: str | None = None
) -> Batch:
    """Join the rows of each trajectory into one sample.

    Parameters
    ----------
    batch : Batch
        One row a step.
    sample_by : str or sequence of str
        The columns that name a trajectory: of `sample_columns`, or `uid`.
    order_by : str, optional
        The column that counts the steps of a trajectory; see `find_trajectories`.

    Returns
    -------
    Batch
        One sample a trajectory, without padding. The round column `row` says which row
        of the file a round was in, the sample column `num_rows` how many there were.

    Raises
    ------
    LoadError
        If a column is not there or cannot be put in order.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> kinds = join_rows(batch, "task_kind")
    >>> kinds.num_samples, kinds.num_tokens == batch.num_tokens
    (3, True)
    """
    names = (sample_by,) if isinstance(sample_by, str) else tuple(sample_by)
    found = find_trajectories(batch, names, order_by)
    rows = select(batch, torch.from_numpy(found.rows))
    weave = Weave(rows, found.sizes)
    heads = select(rows, torch.from_numpy(weave.first))
    differing = {k: v for k, v in _columns(rows).items() if not _agree(v, weave)}
    joined = replace(
        heads,
        **weave.fields(),
        rewards=None if rows.rewards is None else rows.rewards[weave.last],
        group_ids=None if "row_group_id" in differing else heads.group_ids,
        sample_ids=found.names,
        position_ids=None,
        sample_columns={
            **{k: v for k, v in heads.sample_columns.items() if k not in differing},
            "num_rows": found.sizes,
        },
        round_columns=_round_columns(rows, weave, differing),
        meta=_meta(batch, differing, f"{_told(names, found.sizes)}, {found.order}"),
    )
    return replace(joined, round_ids=division_ids(joined, weave.breaks))


def _columns(rows: Batch) -> dict[str, Array]:
    """Return what there is one value a row of, the number of the row excepted."""
    known = {
        "row_id": rows.sample_ids,
        "row_group_id": rows.group_ids,
        "row_reward": None if rows.rewards is None else rows.rewards.tolist(),
    }
    arrays = {k: np.array(v) for k, v in known.items() if v is not None}
    return {**arrays, **rows.sample_columns}


def _agree(column: Array, weave: Weave) -> bool:
    """Tell whether all rows of each trajectory have the same value."""
    pairs = zip(
        column.tolist(), column[weave.first][weave.sample].tolist(), strict=True
    )
    return all(a == b or (a != a and b != b) for a, b in pairs)  # noqa: PLR0124 NaN


def _round_columns(
    rows: Batch, weave: Weave, differing: dict[str, Array]
) -> dict[str, Array]:
    row = rows.rounds.sample.numpy()
    others = {
        **{name: column[row] for name, column in differing.items()},
        **{name: round_values(rows, name) for name in rows.round_columns},
    }
    return {
        "sample": weave.sample[row],
        "round": rows.rounds.round.numpy() + weave.rounds_before[row],
        "row": rows.sample_columns[ORIGINAL_SAMPLE.name][row],
        **{k: v for k, v in others.items() if k not in {*_KEYS, ORIGINAL_SAMPLE.name}},
    }


def _told(names: tuple[str, ...], sizes: Array) -> str:
    columns = ", ".join(f"`{name}`" for name in names)
    return f"{sizes.sum()} rows joined into {len(sizes)} samples by {columns}"


def _num_lost(batch: Batch) -> int:
    """Count the rows of `round_columns` that no round of the mask has taken over."""
    if not batch.round_columns:
        return 0
    taken = round_values(batch, "sample") == batch.rounds.sample.numpy()
    return len(batch.round_columns["sample"]) - int(np.count_nonzero(taken))


def _meta(batch: Batch, differing: dict[str, Array], told: str) -> dict[str, Any]:
    lost = [name for name in _KEYS if name in differing]
    lost += ["position_ids"] * (batch.position_ids is not None)
    if num_lost := _num_lost(batch):
        lost.append(f"{count(num_lost, 'row')} of `round_columns`")
    left_out = told_left_out([*left_out_of(batch), *lost])
    meta = {**batch.meta, "rows": told, **left_out}
    if isinstance(facts := meta.get("screenshots"), list):
        meta["screenshots"] = [re.sub("^sample ", "row ", str(f)) for f in facts]
    return meta
