"""Step tables: index rows of one step, and the table of a run.

The index keeps a row per round of a step, and a row of the step. Our files have both in
their footers. For another metric than |diff|, of the first such files, and of a
framework's, the columns of masks and log-probs are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.checks.weights import describe_weights
from rounddiag.core.legs import legs
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.open import read_batch
from rounddiag.loaders.parquet import load_columns
from rounddiag.loaders.parquet.columns import BROKEN, SCORE_PREFIX
from rounddiag.loaders.parquet.metadata import PARTIAL_NOTE, Footer
from rounddiag.loaders.parquet.totals import (
    TOTALS,
    fit_columns,
    has_digest,
    read_totals,
    step_means,
    weight_version,
)
from rounddiag.runs.folder import RunFolder, StepFiles
from rounddiag.runs.index import Rows
from rounddiag.schema import METRICS, STEPS, Pair
from rounddiag.stats import round_summary
from rounddiag.stats.summary import summary_from_totals

# The columns of a step file from which summaries are computed; those of a step too;
# and those that `by` can name beside the open ones.
_ROUND_COLUMNS = frozenset(
    {"response_mask", "rollout_log_probs", "old_log_probs", "round_ids", "group_id"}
)
_STEP_COLUMNS = frozenset({"reward", "entropy"})
_BY_COLUMNS = frozenset({"sample_id", "reward"})
_MEANS = ("reward", "entropy", "length")


def load_step(folder: RunFolder, step: StepFiles, **options: Any) -> Batch:  # noqa: ANN401 as `load` has them
    """Read the batch of a step: all of its files, end to end, and its rows joined."""
    paths = [folder.fetch(file) for file in step.files]
    path = paths[0] if len(paths) == 1 else f"{folder.address}, step {step.step}"
    try:
        return read_batch(path, files=paths, **folder.joining, **options)
    except OSError as error:
        raise LoadError.build(
            file=path,
            expected="a file that can be read",
            found=error.strerror or type(error).__name__,
            advice="`run.refresh()` looks for the files again.",
        ) from error


def load_log_probs(
    folder: RunFolder, step: StepFiles, *, more: frozenset[str], open_columns: bool
) -> Batch:
    """Read what summaries of rounds are computed from, and more columns by name."""
    if folder.is_read_whole or len(step.files) > 1:
        return load_step(folder, step)
    file = step.files[0]
    try:
        path = folder.fetch(file)
        return load_columns(path, _ROUND_COLUMNS | more, open_columns=open_columns)
    finally:
        folder.forget(file)


def measure_step(
    folder: RunFolder, step: StepFiles, *, metric: str, by: str | None, pair: Pair
) -> dict[str, Rows]:
    """Return the rows of `RUN` of a step; of the usual ones, its row of `STEPS` too.

    That row lacks the means over tokens, which the rows of rounds have.
    """
    if (metric, by) == ("abs_diff", None) and pair.is_standard:
        stored, is_odd = read_stored_tables(folder, step)
        if stored is not None:
            return stored
        batch = load_log_probs(folder, step, more=_STEP_COLUMNS, open_columns=True)
        return computed_tables(step, batch, is_odd=is_odd)
    more = frozenset({f"{SCORE_PREFIX}{pair.a}", f"{SCORE_PREFIX}{pair.b}"})
    # Metrics of rounds, such as their rewards, are columns too.
    has_columns = by is not None or METRICS[metric].of != "pair"
    if has_columns:
        more |= _BY_COLUMNS | _STEP_COLUMNS
    batch = load_log_probs(folder, step, more=more, open_columns=has_columns)
    rounds = round_summary(batch, metric=metric, by=by, a=pair.a, b=pair.b)
    rounds.insert(0, "step", np.int64(step.step))
    return {"rounds": rounds}


def measure_legs(folder: RunFolder, step: StepFiles) -> dict[str, Rows]:
    """Return the legs of the ratio of a step, a row each."""
    more = frozenset({f"{SCORE_PREFIX}current"})
    batch = load_log_probs(folder, step, more=more, open_columns=True)
    rows = legs(replace(batch, step=step.step), by=None)
    rows.insert(0, "step", np.int64(step.step))
    return {"legs": rows}


_ROUNDING = 1e-5  # of sums of float32, relative
_COUNTED = {"totals": "of the columns, not the footer"}


def computed_tables(step: StepFiles, batch: Batch, *, is_odd: bool) -> dict[str, Rows]:
    """Compute both tables from the columns; with a note where the footer has others."""
    rounds = {str(name): of.to_numpy() for name, of in round_summary(batch).items()}
    means: dict[str, Any] = {"num_samples": len(batch), **step_means(batch)}
    means["weight_version"] = weight_version(batch)
    return _tables(step, rounds, means, batch.meta, _COUNTED if is_odd else {})


def read_stored_tables(
    folder: RunFolder, step: StepFiles
) -> tuple[dict[str, Rows] | None, bool]:
    """Return both tables from the footer of the file, if its totals are its columns'.

    And whether it has totals that are not, or have odd values.
    """
    has_totals = False
    if not folder.is_read_whole and len(step.files) == 1:
        with (
            suppress(RounddiagError, *BROKEN),  # reading the columns says what is wrong
            folder.open_parquet(step.files[0]) as (file, footer),
        ):
            has_totals = TOTALS in (footer.metadata or {})
            totals = read_totals(footer.metadata)
            if (
                totals is not None
                and fit_columns(totals, footer)
                and has_digest(file, footer)
            ):
                rounds = summary_from_totals(totals["rounds"])
                meta = Footer.from_metadata(footer.metadata).meta
                return _tables(step, rounds, totals, meta, {}), False
    return None, has_totals


_SHOWN = ("round", "num_samples", "num_tokens", "num_nonfinite", "mean_abs_diff", "max")


def check_tables(folder: RunFolder, step: StepFiles, batch: Batch) -> dict[str, Rows]:
    """Return both tables of a step whose columns are read: the footer's if they agree.

    A digest tells of a program that kept a footer, not of one that forged it.
    """
    stored, is_odd = read_stored_tables(folder, step)
    counted = computed_tables(step, batch, is_odd=is_odd or stored is not None)
    if stored is None:
        return counted
    was, now = stored["rounds"], counted["rounds"]
    agree = len(was["round"]) == len(now["round"]) and all(
        np.allclose(was[name], now[name], rtol=_ROUNDING, equal_nan=True)
        for name in _SHOWN
    )
    return stored if agree else counted


def _tables(
    step: StepFiles,
    rounds: Mapping[str, Array],
    means: Mapping[str, Any],
    meta: Mapping[str, Any],
    note: Mapping[str, str],
) -> dict[str, Rows]:
    num_rounds = len(rounds["round"])
    names = ("facts", "sampling", "rounds")
    facts = {**{name: meta[name] for name in names if meta.get(name)}, **note}
    capture = meta.get("capture")
    if isinstance(capture, dict) and "num_saved" in capture:
        facts["samples"] = PARTIAL_NOTE
    texts = {
        "weight_version": str(means.get("weight_version", "")),
        "weights": describe_weights(meta),
        "facts": json.dumps(facts, sort_keys=True),
    }
    return {
        "rounds": {"step": np.full(num_rounds, step.step, np.int64), **rounds},
        "steps": {
            "step": np.array([step.step]),
            "num_samples": np.array([int(means["num_samples"])], dtype=np.int64),
            **{name: np.array([float(means[name])]) for name in _MEANS},
            **{name: np.array([text], dtype=object) for name, text in texts.items()},
        },
    }


def step_frame(rounds: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """Add up the rounds of each step: counts, means over tokens, and extremes.

    These are exact; quantiles of rounds do not add up to those of a step.
    """
    means = ["mean_abs_diff", "mean_diff", "k3"]
    finite = rounds["num_tokens"] - rounds["num_nonfinite"]
    sums = rounds[means].multiply(finite, axis=0).where(finite > 0, 0.0)
    tokens = rounds[["step", "num_tokens", "num_nonfinite"]]
    added = sums.join(tokens).assign(finite=finite).groupby("step").sum()
    divisor = added["finite"].where(added["finite"] > 0)
    added[means] = added[means].divide(divisor, axis=0)
    added["num_rounds"] = rounds.groupby("step")["num_samples"].sum()
    added["max_abs_diff"] = rounds.groupby("step")["max"].max()
    frame = facts.set_index("step").join(added).reset_index()
    counts = ["num_rounds", "num_tokens", "num_nonfinite"]
    frame[counts] = frame[counts].fillna(0)
    return frame[[*STEPS.dtypes]].astype(STEPS.dtypes)
