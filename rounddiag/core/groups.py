"""`groups`: rewards, advantages and gradient weight of the samples of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.sums import pack_tokens
from rounddiag.wording import percent

if TYPE_CHECKING:
    import pandas as pd

# Columns that together identify a trajectory: of verl-agent, rLLM (whose
# `trajectory_ids` are the same in all rollouts of a task), SkyRL, Agent-Lightning,
# DART-GUI and ROLL. The first that are there are those of the file.
TRAJECTORY_COLUMNS = (
    ("traj_uid",),
    ("episode_ids", "trajectory_ids"),
    ("trajectory_ids",),
    ("rollout_id_list",),
    ("dataset_ids",),
    ("traj_id",),
)
# Of slime and miles: parts of one rollout, such as those before and after a compaction.
_PARTS = ("rollout_ids",)
_HASH_BYTES = 16
_OVER_ROWS = "seq-mean-token-mean"  # of verl's `loss_agg_mode`
_OF_ADVANTAGES = ("low", "high", "mean", "weight")


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedSamples:
    """What an estimator of advantages is given and gives, one value per sample.

    Attributes
    ----------
    names: Of the groups, in the order of their first samples.
    group, trajectory: Numbers of them. Rows that are steps share a trajectory.
    num_rows: Rows of the file that were joined into the sample.
    num_tokens: Tokens that the update uses.
    reward: NaN where it is not known.
    low, high, mean: The smallest, largest and mean advantage of these tokens; NaN
        without any.
    weight: The sum of |advantage| over them.
    """

    names: list[str]
    group: Array
    trajectory: Array
    num_rows: Array
    num_tokens: Array
    reward: Array
    low: Array
    high: Array
    mean: Array
    weight: Array

    @classmethod
    def of(cls, batch: Batch) -> GroupedSamples:
        """Read a batch; without `group_ids`, each sample is a group."""
        of_samples = batch.group_ids or [*map(str, range(len(batch)))]
        names = [*dict.fromkeys(of_samples)]
        number = {name: index for index, name in enumerate(names)}
        group = np.array([number[name] for name in of_samples], dtype=np.int64)
        reward = np.full(len(batch), np.nan)
        if batch.rewards is not None:
            reward = batch.rewards.double().cpu().numpy()
        return cls(
            names=names,
            group=group,
            trajectory=trajectory_numbers(batch.sample_columns, group),
            num_rows=rows_per_sample(batch),
            reward=reward,
            **_advantages(batch),
        )


def groups(batch: Batch, *, by: Literal["group", "num_rows"] = "group") -> pd.DataFrame:
    r"""Return a row per group: its samples, rewards, advantages and gradient weight.

    Parameters
    ----------
    batch : Batch
        With `group_ids`.
    by : {"group", "num_rows"}
        `num_rows` for a row per number of rows and reward of a trajectory, where rows
        are steps.

    Returns
    -------
    DataFrame
        In the order of the first samples: `group_id`; `num_samples`;
        `num_trajectories`, fewer where rows that are steps were not joined; `num_rows`,
        more where they were; `num_prompts`, distinct prompts by their token ids;
        `num_tokens` that the update uses; `mean_reward` and `std_reward` over samples;
        `min_advantage` and `max_advantage` over these tokens; `std_advantage` over the
        mean advantages of samples; `gradient_share`, the part of the batch's
        :math:`\sum |A|`. Standard deviations have n - 1. A column that the batch has
        nothing for is absent.

        By `num_rows`: `num_rows` and `reward` of a trajectory, `num_trajectories`,
        `num_tokens`; `gradient_share`, as of a loss that averages tokens, and
        `row_share`, as of one that averages rows (verl's `seq-mean-token-mean`). The
        latter is the part of :math:`\sum N \overline{|A|}` over trajectories of N rows.

    Raises
    ------
    BatchError
        If the batch has no `group_ids`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rows = rd.groups(rd.load("sample_data/healthy.parquet"))
    >>> rows["num_samples"].unique().tolist(), round(float(rows["std_reward"].max()), 3)
    ([4], 0.577)
    """
    import pandas as pd

    batch.require("group_ids")
    if by == "num_rows":
        return _by_num_rows(batch)
    samples = GroupedSamples.of(batch)
    names = ("trajectory", "num_rows", "num_tokens", "reward")
    values = {name: getattr(samples, name) for name in (*names, *_OF_ADVANTAGES)}
    if batch.prompt_ids is not None:
        values["prompt"] = [*map(prompt_hashes(batch), range(len(batch)))]
    rows = pd.DataFrame(values).groupby(samples.group)
    parts = {
        "num_samples": rows.size(),
        "num_trajectories": rows["trajectory"].nunique(),
        "num_rows": rows["num_rows"].sum(),
    }
    if "prompt" in values:
        parts["num_prompts"] = rows["prompt"].nunique()
    parts["num_tokens"] = rows["num_tokens"].sum()
    if batch.rewards is not None:
        parts["mean_reward"] = rows["reward"].mean()
        parts["std_reward"] = rows["reward"].std()
    if batch.advantages is not None:
        parts["min_advantage"] = rows["low"].min()
        parts["max_advantage"] = rows["high"].max()
        parts["std_advantage"] = rows["mean"].std()
        parts["gradient_share"] = rows["weight"].sum() / np.nansum(samples.weight)
    frame = pd.DataFrame(parts).reset_index(drop=True)
    frame.insert(0, "group_id", samples.names)
    return frame


def _trajectories(batch: Batch) -> pd.DataFrame:
    import pandas as pd

    samples = GroupedSamples.of(batch)
    mean = samples.weight / samples.num_tokens.clip(1)
    names = ("num_rows", "num_tokens", "reward", "mean", "weight")
    values = {name: getattr(samples, name) for name in names}
    values["row_weight"] = samples.num_rows * np.nan_to_num(mean)
    rows = pd.DataFrame(values).groupby(samples.trajectory)
    return rows.sum().assign(reward=rows["reward"].last())


def _by_num_rows(batch: Batch) -> pd.DataFrame:
    rows = _trajectories(batch).groupby(["num_rows", "reward"], dropna=False)
    sums = rows.sum()
    frame = rows.size().rename("num_trajectories").to_frame()
    frame["num_tokens"] = sums["num_tokens"]
    if batch.advantages is not None:
        frame["gradient_share"] = sums["weight"] / sums["weight"].sum()
        frame["row_share"] = sums["row_weight"] / sums["row_weight"].sum()
    return frame.reset_index()


def describe_row_weights(batch: Batch) -> str:
    """Say what trajectories weigh in a loss that averages rows, where rows are steps.

    Empty where the run recorded another loss, and where all have equally many rows.
    """
    facts = batch.meta.get("facts")
    mode = facts.get("loss_agg_mode") if isinstance(facts, Mapping) else None
    if batch.advantages is None or mode not in (None, _OVER_ROWS):
        return ""
    rows = _trajectories(batch)
    rows = rows[rows["row_weight"] > 0]
    num_rows = rows["num_rows"]
    if not len(rows) or num_rows.min() == num_rows.max():
        return ""
    weights = (rows["row_weight"], rows["row_weight"] / num_rows)
    share, even = (float(each[rows["mean"] < 0].sum() / each.sum()) for each in weights)
    does, so = ("The loss averages", "so ") if mode else ("Where a loss averages", "")
    return (
        f"{does} rows (`{_OVER_ROWS}`), {so}a trajectory weighs by its"
        f" number of rows, {num_rows.min()} to {num_rows.max()}: those with a negative"
        f" advantage have {percent(share)} of the gradient weight, and"
        f" {percent(even)} if trajectories weigh alike."
    )


def trajectory_columns(batch: Batch) -> tuple[str, ...]:
    """Return the columns that identify a trajectory of several rows; none if none do.

    Joined rows have a trajectory each.
    """
    columns = batch.sample_columns
    names = next((n for n in TRAJECTORY_COLUMNS if {*n} <= columns.keys()), ())
    values = zip(*(columns[name].tolist() for name in names), strict=True)
    return names if len(set(map(repr, values))) < len(batch) else ()


def rows_per_sample(batch: Batch) -> Array:
    """Return how many rows of the file each sample was joined from."""
    column = batch.sample_columns.get("num_rows")
    if column is None or column.dtype.kind != "i":
        return np.ones(len(batch), dtype=np.int64)
    return column


def prompt_hashes(batch: Batch) -> Callable[[int], bytes]:
    """Return a function that hashes a row's prompt; without prompts all are equal."""
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return lambda _: b""
    data, size = as_bytes(batch.prompt_ids)
    limits = batch.prompt_offsets.tolist()

    def hash_prompt(row: int) -> bytes:
        part = data[limits[row] * size : limits[row + 1] * size]
        return blake2b(part, digest_size=_HASH_BYTES).digest()

    return hash_prompt


def as_bytes(values: Tensor) -> tuple[memoryview, int]:
    """Return the bytes of values, in which NaN is NaN, and how many each has."""
    whole = values.cpu().contiguous().view(torch.uint8)  # numpy has no bfloat16
    return whole.numpy().data, values.dtype.itemsize


def trajectory_numbers(columns: Mapping[str, ArrayLike], group: Array) -> Array:
    """Return the number of each row's trajectory; its own if no column names it.

    Examples
    --------
    >>> trajectory_numbers({"traj_uid": ["b", "a", "b", None]}, np.zeros(4)).tolist()
    [0, 1, 0, 2]
    """
    for names in (*TRAJECTORY_COLUMNS, _PARTS):
        if {*names} <= columns.keys():
            values = (np.asarray(columns[name]).tolist() for name in names)
            named = zip(group, *values, strict=True)
            number: dict[tuple[str, ...], int] = {}
            keys = [
                (f"row {row}",) if None in key else tuple(map(str, key))
                for row, key in enumerate(named)
            ]
            return np.array([number.setdefault(key, len(number)) for key in keys])
    return np.arange(len(group))


def _advantages(batch: Batch) -> dict[str, Array]:
    rounds = batch.rounds
    owner, num = rounds.sample.cpu().numpy(), rounds.num_tokens.cpu().numpy()
    num_tokens = np.bincount(owner, num, len(batch)).astype(np.int64)
    is_used: Array | slice = slice(None)
    if batch.loss_mask is not None:
        is_used = pack_tokens(batch, batch.loss_mask) != 0
        num_tokens = np.bincount(np.repeat(owner, num)[is_used], minlength=len(batch))
    if batch.advantages is None:
        unknown = dict.fromkeys(_OF_ADVANTAGES, np.full(len(batch), np.nan))
        return {"num_tokens": num_tokens, **unknown}
    values = pack_tokens(batch, batch.advantages)[is_used]
    present = np.flatnonzero(num_tokens)
    first = (np.cumsum(num_tokens) - num_tokens)[present]

    def reduce(operation: np.ufunc, values: Array) -> Array:
        of_samples = np.full(len(batch), np.nan)
        if len(present):
            of_samples[present] = operation.reduceat(values, first, dtype=np.float64)
        return of_samples

    with np.errstate(invalid="ignore"):
        return {
            "num_tokens": num_tokens,
            "low": reduce(np.minimum, values),
            "high": reduce(np.maximum, values),
            "mean": reduce(np.add, values) / np.maximum(num_tokens, 1),
            "weight": reduce(np.add, np.abs(values)),
        }
