"""The text of `rounddiag summary`: the diagnosis of a batch or a run, and its rounds.

`rounddiag check` begins with the same diagnosis and failed checks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.batch.html import describe_sources
from rounddiag.checks import Checks
from rounddiag.core import token_frame
from rounddiag.core.scores import has_pair, pair_of
from rounddiag.findings import Diagnosis, diagnose
from rounddiag.runs import Run
from rounddiag.schema import METRICS
from rounddiag.stats import FEW_SAMPLES, few_rows, round_summary, worst_round
from rounddiag.stats.tail import overall
from rounddiag.wording import percent, pluralize, printable


def describe_diagnosis(diagnosis: Diagnosis) -> str:
    """Return the verdict in a sentence, the level with its range, and the findings."""
    lines = [*map(printable, diagnosis.text.splitlines()), _level(diagnosis)]
    head = f"{diagnosis.verdict}: " + "\n".join(filter(None, lines))
    address = diagnosis.address
    look = f"look at: {printable(address)} (`rounddiag show` prints it)"
    parts = [head, _findings(diagnosis), look if address else ""]
    return "\n\n".join(filter(None, parts))


def describe_failed_checks(checks: Checks) -> str:
    """Return one line per failed check, with what it means."""
    failed = [
        f"failed check ({check.kind}): {check.name}: {check.detail}"
        for check in checks.failed
    ]
    return "\n".join(failed)


def _level(diagnosis: Diagnosis) -> str:
    level, usual = diagnosis.level, diagnosis.reference
    counts = (
        f"{pluralize(level.num_tokens, 'token')} of "
        f"{pluralize(level.num_samples, 'sample')}"
    )
    if isnan(level.mean_abs_diff):
        return (
            "" if not level.num_tokens else f"level: none; {counts} with a finite diff"
        )
    interval = f"95 % interval {level.low:.4g} to {level.high:.4g}"
    if isnan(level.low):
        interval = "too few samples for an interval"
    assumed = ", assumed" if diagnosis.kind_is_assumed else ""
    basis = f"; {usual.basis}" if usual.basis else ""
    return (
        f"level: mean |diff| {level.mean_abs_diff:.4g} nat ({interval}; {counts})\n"
        f"range: up to {usual.usual:.4g} nat is usual, above {usual.limit:.4g} nat is "
        f"not noise ({printable(usual.meaning)}{assumed}{basis})"
    )


def _findings(diagnosis: Diagnosis) -> str:
    if not len(diagnosis):
        return ""
    causes = diagnosis.causes
    rows = [("share", "kind", "cause" if any(causes) else "", "where")]
    rows += [
        (percent(finding.share), finding.kind, cause, printable(finding.location))
        for finding, cause in zip(diagnosis, causes, strict=True)
    ]
    width = max(len(cause) for _, _, cause, _ in rows)
    return "\n".join(
        f"{share:>6}  {kind:<8}  {f'{cause:<{width}}  ' if width else ''}{place}"
        for share, kind, cause, place in rows
    )


_COLUMNS = [
    *("round", "num_samples", "num_tokens", "mean_abs_diff"),
    *("ci_low", "ci_high", "p99", "max"),
]


def describe(batch: Batch) -> str:
    """Describe the mismatch of each round and where the numbers come from."""
    diagnosis = diagnose(batch)
    checks = diagnosis.checks
    if not has_pair(batch):
        return _describe_one_engine(batch, diagnosis)
    summary = round_summary(batch)
    num_nonfinite = int(summary["num_nonfinite"].sum())
    place = _onset(diagnosis) or _worst(summary, diagnosis)
    paragraphs = [
        describe_diagnosis(diagnosis),
        describe_failed_checks(checks),
        *(_counts(batch), _table(summary, _unit(batch))),
        "\n".join(filter(None, [place, _overall(batch)])),
        *(_sources(batch, num_nonfinite), _check_counts(checks)),
    ]
    return "\n\n".join(filter(None, paragraphs))


def _describe_one_engine(batch: Batch, diagnosis: Diagnosis) -> str:
    """Describe the rounds of a batch without a difference: surprise, or lengths."""
    has_none = batch.lacks("old") and batch.lacks("rollout")
    metric = METRICS["round_length" if has_none else "surprise"]
    summary = round_summary(batch, metric=metric.name)
    paragraphs = [
        describe_diagnosis(diagnosis),
        describe_failed_checks(diagnosis.checks),
        _counts(batch).partition("\n")[0],
        f"mean: {metric.meaning}, in {pair_of(batch).unit(metric)}s",
        _table(summary, _unit(batch)),
        _sources(batch, 0).rpartition("\n")[0],
        _check_counts(diagnosis.checks),
    ]
    return "\n\n".join(filter(None, paragraphs))


def _counts(batch: Batch) -> str:
    return (
        f"{pluralize(batch.num_samples, 'sample')}, "
        f"{pluralize(batch.num_rounds, 'round')}, "
        f"{pluralize(batch.num_tokens, f'generated {batch.token_noun}')}\n"
        "diff = old_log_prob - rollout_log_prob, in nat; "
        f"95 % intervals by {_unit(batch)}"
    )


def _unit(batch: Batch) -> str:
    """Name the independent unit: samples of one prompt are not independent."""
    return "sample" if batch.group_ids is None else "group"


def _table(summary: pd.DataFrame, unit: str) -> str:
    is_few = few_rows(summary)
    marks = np.where(is_few, "*", " " if is_few.any() else "")
    columns = [name if name in summary else "mean" for name in _COLUMNS]
    table = summary[columns].assign(round=summary["round"].astype(str) + marks)
    lines = table.to_string(index=False, float_format="{:.4g}".format, na_rep="-")
    if not is_few.any():
        return lines
    note = "; samples of one group are not independent" if unit == "group" else ""
    return f"{lines}\n* reached by fewer than {FEW_SAMPLES} {unit}s{note}"


def _onset(diagnosis: Diagnosis) -> str:
    """Name the round from which on the batch differs, by a confident finding."""
    onset = diagnosis.onset
    if onset is None:
        return ""
    return (
        f"onset: round {onset.round} (95 % interval: {onset.interval}), mean |diff| "
        f"{onset.before:.4g} nat before and {onset.after:.4g} nat from there on"
    )


def _worst(summary: pd.DataFrame, diagnosis: Diagnosis) -> str:
    """Name the worst round, if something differs: one of sound rounds is the worst."""
    worst = worst_round(summary)
    if worst is None:
        return "worst round: none; no generated token has a finite diff"
    if not any(finding.is_bug for finding in diagnosis):
        return ""
    interval = f"95 % interval {worst['ci_low']:.4g} to {worst['ci_high']:.4g}"
    if isnan(worst["ci_low"]):
        interval = "too few independent samples for an interval"
    is_few = few_rows(summary)
    title = "worst round"
    if is_few.any() and not is_few.all():
        title = "worst round not marked *"
    return (
        f"{title}: {worst['round']:.0f}, mean |diff| {worst['mean_abs_diff']:.4g} "
        f"nat ({interval}; {pluralize(int(worst['num_samples']), 'sample')}, "
        f"{pluralize(int(worst['num_tokens']), 'token')})"
    )


def _overall(batch: Batch) -> str:
    mismatch = overall(token_frame(batch)["diff"].to_numpy())
    return mismatch and f"all tokens of the file: {mismatch}"


def _sources(batch: Batch, num_nonfinite: int) -> str:
    file = batch.meta.get("source")
    sources = {**({"file": str(file)} if file else {}), **describe_sources(batch.meta)}
    lines = [f"{name}: {printable(fact)}" for name, fact in sources.items()]
    lines.append(f"tokens left out because diff is not finite: {num_nonfinite:,}")
    return "\n".join(lines)


def _check_counts(checks: Checks) -> str:
    counts = f"{len(checks.passed)} passed, {len(checks.failed)} failed"
    lines = [f"Data checks: {counts} (integrity only, independent of the mismatch)."]
    if count := len(checks.not_testable):
        lines.append(f"Not testable: {count}; `rd.check(batch)` lists them.")
    return "\n".join(lines)


_MOST_FAILED = 5  # files in the text of a run


def describe_run(run: Run) -> str:
    """Describe the verdicts over a run, what changed, and the levels of its rounds."""
    with silence_failed_steps():
        diagnosis = run.diagnose()
    steps = run.step_summary()
    counts = (
        f"{pluralize(len(run), 'step')}, from {run.steps[0]:,} to {run.steps[-1]:,}; "
        f"{pluralize(int(steps['num_samples'].sum()), 'sample')}, "
        f"{pluralize(int(steps['num_tokens'].sum()), 'generated token')}\n"
        "diff = old_log_prob - rollout_log_prob, in nat; medians of the steps' means of"
        " |diff|"
    )
    paragraphs = [str(diagnosis), counts, _levels(run), describe_failed_steps(run)]
    return "\n\n".join(filter(None, paragraphs))


@contextmanager
def silence_failed_steps() -> Iterator[None]:
    """Silence the warning about steps that cannot be read: the command prints them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def describe_failed_steps(run: Run) -> str:
    """Return a line for each of the first steps that cannot be read."""
    failed = [*run.failed.items()]
    lines = [
        f"step {step} cannot be read: {printable(error)}"
        for step, error in failed[:_MOST_FAILED]
    ]
    if more := len(failed) - len(lines):
        lines.append(f"nor can {pluralize(more, 'other step')}")
    return "\n".join(lines)


def _levels(run: Run) -> str:
    summary = run.summary()
    if not len(summary):
        return "no step has a generated token"
    size = max(1, len(run) // 4)
    first, last = (
        summary[summary["step"].isin(steps)].groupby("round")["mean"].median()
        for steps in (run.steps[:size], run.steps[-size:])
    )
    known = summary.dropna(subset="mean")
    worst = known.loc[known.groupby("round")["mean"].idxmax()].set_index("round")
    table = worst[["step", "mean"]].rename(
        columns={"step": "worst step", "mean": "mean there"}
    )
    table.insert(0, "first quarter", first)
    table.insert(1, "last quarter", last)
    return table.reset_index().to_string(
        index=False, float_format="{:.4g}".format, na_rep="-"
    )
