"""What a statistic is given: a batch, of which a fair part counts, or a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag import schema
from rounddiag.batch import Batch
from rounddiag.errors import FrameError
from rounddiag.stats.grouping import numbered
from rounddiag.stats.intervals import Resampling, is_few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag._typing import Array
    from rounddiag.core.measures import Measure


_BROKEN = (AttributeError, IndexError, KeyError, TypeError, ValueError)
# What the first files with `max_samples` do not have, and what the others tell.
_LATER, _DERIVED = ("share_zero", "p90"), ("share_nonfinite",)


def rows_of_all(
    batch: Batch, *, cluster: str | None = None, ci: float = 0.95
) -> list[dict[str, Any]] | None:
    """Return the summary's rows over all samples that the trainer had.

    A file of a Recorder with `max_samples` has them in its metadata.

    Parameters
    ----------
    batch : Batch
    cluster : {"sample", "group"}, optional
        As in `round_summary`.
    ci : float
        How often intervals should cover.

    Returns
    -------
    list of dict, or None
        None where every sample is there, for some of the file's samples only, and for
        samples as clusters where there are groups, and for another pair of scores.
    """
    facts = _facts(batch)
    known = "sample" if batch.group_ids is None else "group"
    is_whole = facts.get("num_saved") == batch.num_samples
    if not is_whole or not facts.get("rounds") or cluster not in (None, known):
        return None
    try:
        return _with_intervals(facts["rounds"], ci)
    except _BROKEN:
        return None


def fair_part(batch: Batch) -> Batch:
    """Leave out the samples that a file holds because they were the worst of theirs.

    Of these alone nothing is left out.
    """
    picked = batch.sample_columns.get("picked")
    if "rounds" not in _facts(batch) or picked is None:
        return batch
    is_drawn = picked == "random"
    return batch.where(is_drawn) if np.any(is_drawn) else batch


def num_picked(batch: Batch) -> int:
    """Count the samples that `fair_part` leaves out."""
    return batch.num_samples - fair_part(batch).num_samples


def _facts(batch: Batch) -> dict[str, Any]:
    facts = batch.meta.get("capture")
    return facts if isinstance(facts, dict) else {}


def _with_intervals(rounds: list[dict[str, Any]], ci: float) -> list[dict[str, Any]]:
    sums = [
        [
            np.array(entry[name], dtype=np.float64)
            for name in ("cluster_abs_diff", "cluster_tokens")
        ]
        for entry in rounds
    ]
    used = np.any([counts > 0 for _, counts in sums], axis=0)
    draws = Resampling(int(used.sum()))
    return [
        _row(
            {**entry, "is_few": is_few(counts)},
            draws.ratio_interval(totals[used], counts[used], ci),
        )
        for entry, (totals, counts) in zip(rounds, sums, strict=True)
    ]


def _row(entry: dict[str, Any], interval: tuple[float, float]) -> dict[str, Any]:
    known = {**dict.fromkeys(_LATER, float("nan")), **entry}
    known |= {"mean": entry["mean_abs_diff"]}
    known |= dict(zip(("ci_low", "ci_high"), interval, strict=True))
    return {
        column.name: (int if "int" in column.dtype else float)(known[column.name])
        for column in schema.SUMMARY.columns
        if column.name not in _DERIVED
    }


def fair(data: Batch | pd.DataFrame, kind: str = "token") -> Batch | pd.DataFrame:
    """Return the fair part of a batch, and a frame as it is.

    Raises
    ------
    FrameError
        If it is neither; `kind` is what the frame should be of.

    Examples
    --------
    >>> fair(pd.DataFrame({"diff": [0.5]}))
       diff
    0   0.5
    """
    if isinstance(data, Batch):
        return fair_part(data)
    need_frame(data, kind)
    return data


def need_frame(data: object, kind: str = "token") -> None:
    """Raise a FrameError for what is no frame, where it is no batch either."""
    if not isinstance(data, pd.DataFrame):
        raise FrameError.build(
            expected=f"a Batch or a {kind} frame",
            found=f"a {type(data).__name__}",
            advice="Open a file with `rounddiag.load(path)` first.",
        )


def measured(tokens: Mapping[str, Array] | pd.DataFrame, measure: Measure) -> Array:
    """Return what a metric is of every token; NaN where its diff is not finite.

    Parameters
    ----------
    tokens : mapping or DataFrame
        Columns, `diff` among them.
    measure : Measure

    Raises
    ------
    FrameError
        If the column that the metric takes is not there.

    Examples
    --------
    >>> from rounddiag.core.measures import measure_of
    >>> measured({"diff": np.array([-1.0, np.inf])}, measure_of("k2"))
    array([0.5, nan])
    """
    need_column(tokens, measure.source_column)
    diff, column = (
        np.asarray(tokens[name]) for name in ("diff", measure.source_column)
    )
    finite = np.isfinite(diff)
    if finite.all():
        return measure.values(column)
    values = np.full(len(diff), np.nan)
    values[finite] = measure.values(column[finite])
    return values


def need_column(tokens: Mapping[str, Array] | pd.DataFrame, column: str) -> None:
    """Raise a FrameError unless the tokens have this column, which a metric takes."""
    if column not in tokens:
        raise FrameError.build(
            expected=f"a token frame with `{column}`",
            found="one without it and without `rollout_log_prob`",
            advice=f'Build it with `rounddiag.token_frame(batch, ["{column}"])`.',
        )


def clusters_of(data: Batch | pd.DataFrame) -> Array:
    """Return the cluster of each sample, counted from 0: its group, or itself alone.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame, which can have `group_id`.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sample": [0, 0, 1, 2], "group_id": ["y", "y", "x", "y"]})
    >>> clusters_of(frame)
    array([1, 0, 1])
    """
    if isinstance(data, Batch):
        names = np.asarray(data.group_ids or range(data.num_samples))
        return numbered("group_id", names)[0]
    if "group_id" not in data:
        return np.arange(data["sample"].to_numpy().max(initial=-1) + 1)
    known = data.drop_duplicates("sample")
    sample = known["sample"].to_numpy()
    found = np.zeros(sample.max(initial=-1) + 1, dtype=np.int64)
    found[sample] = numbered("group_id", known["group_id"].to_numpy())[0]
    return found


def quantiles(values: Array, probabilities: Sequence[float]) -> list[float]:
    """Give exact quantiles, interpolated between neighbours as numpy does.

    Parameters
    ----------
    values : ndarray of float, shape (n,)
        Left partly ordered.
    probabilities : sequence of float, ascending

    Returns
    -------
    list of float
        NaN where there are no values.

    Examples
    --------
    >>> import numpy as np
    >>> quantiles(np.array([4.0, 1.0, 3.0, 2.0]), [0.5, 0.9])
    [2.5, 3.7]
    """
    if len(values) == 0:
        return [float("nan")] * len(probabilities)
    done = []
    rest, skipped = values, 0
    for probability in probabilities:
        place = probability * (len(values) - 1)
        low = int(place)
        # One place at a time: numpy selects several at once many times slower.
        rest.partition(low - skipped)
        rest, skipped = rest[low - skipped :], low
        below = float(rest[0])
        above = float(rest[1:].min()) if low < place else below
        # Of infinity and itself the difference is NaN.
        rise = (above - below) * (place - low) if below < above else 0
        done.append(below + rise)
    return done
