"""What the index keeps of one step: a row per round, and a row of the step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.loaders.open import read_batch
from rounddiag.loaders.parquet import load_columns
from rounddiag.schema import STEPS
from rounddiag.stats import round_summary
from rounddiag.stats.inputs import drop_worst_picks

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.runs.folder import RunFolder, StepFiles


# The columns of a step file from which summaries are computed.
_COLUMNS = frozenset(
    {
        *("response_mask", "rollout_log_probs", "old_log_probs", "round_ids"),
        *("sample_id", "group_id", "reward", "entropy", "sample:picked"),
    }
)


def load_step(folder: RunFolder, step: StepFiles, **options: Any) -> Batch:  # noqa: ANN401 as `load` has them
    """Read the batch of a step: all of its files, joined end to end.

    Parameters
    ----------
    folder : RunFolder
    step : StepFiles
    **options
        Of `rounddiag.load`.

    Raises
    ------
    LoadError
        If a file cannot be read.
    """
    paths = [folder.fetch(file) for file in step.files]
    path = paths[0] if len(paths) == 1 else f"{folder.address}, step {step.step}"
    return read_batch(path, files=paths, **options)


def load_log_probs(folder: RunFolder, step: StepFiles, *, by: str | None) -> Batch:
    """Read what summaries are computed from; other columns only for `by`."""
    if folder.is_raw or len(step.files) > 1:
        return load_step(folder, step)
    file = step.files[0]
    try:
        return load_columns(folder.fetch(file), _COLUMNS, open_columns=by is not None)
    finally:
        folder.forget(file)


def measure_step(
    folder: RunFolder, step: StepFiles, *, metric: str, by: str | None
) -> dict[str, pd.DataFrame]:
    """Return the rows of `RUN` of a step, and its row of `STEPS` without means.

    Parameters
    ----------
    folder : RunFolder
    step : StepFiles
    metric, by : str
        As in `round_summary`.

    Returns
    -------
    dict of str to DataFrame
        `rounds` and `steps`.
    """
    batch = load_log_probs(folder, step, by=by)
    rounds = round_summary(batch, metric=metric, by=by)
    rounds.insert(0, "step", np.int64(step.step))
    facts = pd.DataFrame([{"step": step.step, **_step_facts(batch)}])
    return {"rounds": rounds, "steps": facts}


def _step_facts(batch: Batch) -> dict[str, Any]:
    """Return the columns of `STEPS` that are no aggregates of rounds.

    Of a partial capture, means are over the samples that were drawn at random.
    """
    drawn = drop_worst_picks(batch)
    capture = batch.meta.get("capture")
    num_samples = len(batch)
    if isinstance(capture, dict) and capture.get("num_saved") == num_samples:
        num_samples = int(capture.get("num_samples", num_samples))
    nan = float("nan")
    is_known = drawn.rewards is not None and len(drawn) > 0
    reward = float(np.nanmean(drawn.rewards.numpy())) if is_known else nan  # type: ignore[union-attr]
    entropy = nan
    if drawn.entropy is not None and drawn.num_tokens:
        values = drawn.entropy[drawn.response_mask != 0]
        entropy = float(values.double().nanmean())
    names = ("facts", "sampling", "rounds")
    facts = {name: batch.meta[name] for name in names if batch.meta.get(name)}
    return {
        "num_samples": num_samples,
        "reward": reward,
        "entropy": entropy,
        "length": drawn.num_tokens / len(drawn) if len(drawn) else nan,
        "facts": json.dumps(facts, sort_keys=True),
    }


def step_frame(rounds: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """Add up the rounds of each step: counts, means over tokens, and extremes.

    These are exact; quantiles of rounds do not add up to those of a step.
    """
    finite = rounds["num_tokens"] - rounds["num_nonfinite"]
    names = ["mean_abs_diff", "mean_diff", "k3"]
    sums = rounds[names].multiply(finite, axis=0).where(finite > 0, 0.0)
    sums = sums.assign(
        step=rounds["step"],
        finite=finite,
        num_rounds=rounds["num_samples"],
        num_tokens=rounds["num_tokens"],
        num_nonfinite=rounds["num_nonfinite"],
    )
    added = sums.groupby("step").sum()
    means = added[names].divide(added["finite"].where(added["finite"] > 0), axis=0)
    added[names] = means
    added["max_abs_diff"] = rounds.groupby("step")["max"].max()
    frame = facts.set_index("step").join(added).reset_index()
    counts = ["num_rounds", "num_tokens", "num_nonfinite"]
    frame[counts] = frame[counts].fillna(0)
    columns = [column.name for column in STEPS.columns]
    dtypes = {column.name: column.dtype for column in STEPS.columns}
    return frame[columns].astype(dtypes)
