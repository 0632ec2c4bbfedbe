"""What the product answers about a batch, as JSON that a reviewer can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import rounddiag as rd
from rounddiag import Batch
from rounddiag.errors import RounddiagError
from rounddiag.runs import Run
from rounddiag.schema.corrections import CORRECTIONS, weight_column
from rounddiag.schema.tables import TOKENS
from tests.figures.plots import PLOTS, plot
from tests.snapshot.cases import Make

Description = dict[str, Any]
DIGITS = 9  # of a number; what is compared is 1e-6 of it
_WEIGHTS = {weight_column(correction) for correction in CORRECTIONS.values()}
COLUMNS = [  # of tokens, on request
    column.name
    for column in TOKENS.columns
    if column.name not in {*TOKENS.keys, "diff", *_WEIGHTS}
]


def describe(name: str, make: Make, folder: Path) -> Description:
    """Make a batch and say what the product answers about it, or why it refuses.

    Files of the case lie in `folder`, whose name an answer leaves out.
    """
    try:
        batch = make()
    except RounddiagError as error:
        words = words_of(error).replace(f"{folder}/", "")
        return {"refused": words.replace(f"{Path.cwd()}/", "")}
    if isinstance(batch, Run):
        return {
            "verdict": str(batch.diagnose()),
            "summary": columns_of(batch.summary()),
            "figures": figure_of("plot_run", batch),
        }
    described: Description = {
        "counts": f"{batch.num_samples} samples, {batch.num_rounds} rounds,"
        f" {batch.num_tokens} tokens, {sum(map(len, batch.images or ()))} pictures",
        "failed": [check.name for check in rd.check(batch).failed],
        **diagnosis_of(batch),
    }
    if name.startswith("fault"):  # which differ in log-probs alone
        return described
    described |= {
        "mask": str(batch.meta.get("mask_source")),
        "left_out": batch.meta.get("left_out", {}),
        "tokens": answer(lambda: columns_of(token_frame(batch))),
        "rounds": answer(lambda: columns_of(rd.round_frame(batch))),
        "samples": answer(lambda: columns_of(rd.sample_frame(batch))),
        "contexts": answer(lambda: contexts_of(batch)),
        **figures_of(batch),
    }
    if name.startswith("demo"):
        described["metrics"] = answer(lambda: numbers_of(rd.metrics(batch)))
        for ask in (rd.round_summary, rd.places, rd.groups, rd.legs, rd.corrections):
            described[ask.__name__] = answer(partial(frame_of, ask, batch))
    return described


def words_of(error: RounddiagError) -> str:
    return f"{type(error).__name__}: {error}"


def answer(ask: Callable[[], Any]) -> Any:
    """Return an answer, or why there is none."""
    try:
        return ask()
    except RounddiagError as error:
        return words_of(error)


def token_frame(batch: Batch) -> pd.DataFrame:
    """Return every column of tokens that the batch has."""
    columns = []
    for column in COLUMNS:
        try:
            rd.token_frame(batch, columns=[column])
        except RounddiagError:
            continue
        columns.append(column)
    return rd.token_frame(batch, columns=columns)


def frame_of(ask: Callable[[Batch], pd.DataFrame], batch: Batch) -> Description:
    return columns_of(ask(batch))


def columns_of(frame: pd.DataFrame) -> Description:
    """Return the sum of each numeric column; of others, values and letters."""
    return {str(name): column_of(frame[name]) for name in frame}


def numbers_of(metrics: Mapping[str, float]) -> Description:
    return {name: column_of(pd.Series([value])) for name, value in metrics.items()}


def column_of(column: pd.Series[Any]) -> object:
    known = column.dropna()
    if column.dtype.kind in "iufb":
        values = known.to_numpy(float)
        finite = values[np.isfinite(values)]
        return rounded(finite.sum()) if len(finite) else None
    texts = known.map(str)
    return f"{len(known)} known, {texts.nunique()} kinds, {texts.str.len().sum()} long"


def rounded(value: float) -> float:
    """Round to the digits that are written; whole numbers become int."""
    value = float(f"{value:.{DIGITS}g}")
    return int(value) if value.is_integer() and abs(value) < 10**DIGITS else value


def contexts_of(batch: Batch) -> str:
    """Return what the model read before the rounds of the first three samples."""
    rounds = batch[:3].rounds
    places = zip(rounds.sample.tolist(), rounds.round.tolist(), strict=True)
    contexts = [batch.context(*place) for place in places]
    tokens = sum(context.num_tokens for context in contexts)
    letters = sum(len(context.text or "") for context in contexts)
    pictures = sum(len(context.images) for context in contexts)
    rewritten = sum(context.follows == "rewritten" for context in contexts)
    return (
        f"{len(contexts)} contexts, {rewritten} rewritten: {tokens} tokens,"
        f" {letters} letters, {pictures} pictures"
    )


def diagnosis_of(batch: Batch) -> Description:
    """Return the verdict, and of each finding its place, cause and families."""
    diagnosis = rd.diagnose(batch)
    onset = diagnosis.onset
    findings = [
        f"{finding.kind} {finding.cause}, {finding.num_tokens} tokens,"
        f" {finding.share:.4f}: {finding.location}"
        f" | {', '.join(map(str, finding.candidates))}"
        for finding in diagnosis
    ]
    drawn = [figure_of("plot_finding", finding) for finding in diagnosis[:1]]
    return {
        "verdict": diagnosis.verdict,
        "onset": None if onset is None else f"round {onset.round}, {onset.interval}",
        "findings": findings,
        "first finding drawn": drawn,
    }


def figures_of(batch: Batch) -> Description:
    """Return each figure, and those that the batch does not allow by the reason."""
    drawn: Description = {}
    refused: dict[str, list[str]] = {}
    for name in PLOTS:
        figure = figure_of(name, batch)
        if isinstance(figure, str):
            refused.setdefault(figure, []).append(name)
        else:
            drawn[name] = figure
    return {"figures": drawn, "not drawn": refused}


def figure_of(name: str, data: object) -> Any:
    """Return the kinds of traces, the titles of axes and the sum of all data."""
    try:
        figure = plot(name, data)
    except RounddiagError as error:
        return words_of(error)
    kinds = [trace.type for trace in figure.data]
    drawn = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    titles = [axis.title.text for axis in axes if axis.title.text]
    marks = len(figure.layout.annotations) + len(figure.layout.shapes)
    total = sum(map(total_of, figure.data))
    return [f"{drawn}; {marks} marks; {' / '.join(titles)}", rounded(total)]


def total_of(trace: Any) -> float:
    """Return the sum of |values| of a trace's data; texts and what is missing are 0."""
    values = [
        np.ravel(trace[key])
        for key in ("x", "y", "z", "base", "customdata")
        if key in trace and trace[key] is not None
    ]
    numbers = pd.to_numeric(pd.Series(np.concatenate([*values, []])), errors="coerce")
    return float(np.nan_to_num(np.abs(numbers), posinf=0).sum())
