"""`rounddiag watch RUN`: a line for each step of a run, while training goes on.

With `--json` each line is a JSON object: `step`, `verdict`, `mean_abs_diff` in nats
(null where it is not finite), `causes` (of facts and reversals), `places`, `updates`
(wrong ones), `text`, `events` (the facts of the run that changed since the step before,
and weights that stopped changing), `fail_on`, `failed`; or `step` and `error` for a
step that cannot be read. `rounddiag check FOLDER --last 5` prints the same lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from rounddiag.cli.row_note import print_row_note
from rounddiag.cli.summary import silence_failed_steps
from rounddiag.cli.terminal import json_line, print_text
from rounddiag.errors import LoadError
from rounddiag.findings.verdict import Verdict, is_at_least
from rounddiag.loaders.assembly.join_hint import check_order
from rounddiag.runs import Run, open_run

PASSED, FAILED, CANNOT_READ = 0, 1, 2  # exit codes


def watch_run(
    path: str,
    *,
    fail_on: Verdict,
    once: bool,
    every: float,
    as_json: bool,
    sample_by: Sequence[str] | None = None,
    order_by: str | None = None,
) -> int:
    """Judge each step that there is and that comes; return the exit code.

    It ends at the first verdict that fails; with `once`, after the steps that exist.
    """
    open_it = partial(open_run, path, sample_by=sample_by, order_by=order_by)
    if once:
        run = open_it()
        print_row_note(run, sample_by, as_json=as_json)
        return judge_steps(run, run.steps, fail_on, as_json=as_json)
    check_order(sample_by, order_by)  # waiting would not mend it
    run = _wait_for_run(path, every, open_it)
    print_row_note(run, sample_by, as_json=as_json)
    steps = chain(run.steps, run.watch(every=every))
    return judge_steps(run, steps, fail_on, as_json=as_json, every=every)


def judge_steps(
    run: Run,
    steps: Iterable[int],
    fail_on: Verdict,
    *,
    as_json: bool,
    every: float | None = None,
) -> int:
    """Write a line for each step and each event; return the exit code for all.

    It ends with the last step; of a run that is watched, at the first that fails.
    `every` seconds are then between two tries to open a folder that is away.
    """
    codes = {PASSED}
    seen: dict[int, None] = {}
    for step in steps:
        seen[step] = None
        row = _judge_step(run, [*seen], fail_on)
        if every is not None and "error" in row:  # the folder may have been away
            while run.is_away:
                time.sleep(every)
            run.refresh()
            row = _judge_step(run, [*seen], fail_on)
        codes.add(CANNOT_READ if "error" in row else int(row["failed"]))
        print_text(json_line(row) if as_json else _describe(row))
        if FAILED in codes and every is not None:
            break
    return FAILED if FAILED in codes else max(codes)


def _wait_for_run(path: str, every: float, open_it: Callable[[], Run]) -> Run:
    is_told = False
    while True:
        # Asked before: a step may be written while the run is opened.
        was_empty = Path(path).is_dir() and not any(Path(path).glob("*.*"))
        try:
            return open_it()
        except LoadError:
            if not was_empty:
                raise
        if not is_told:
            print_text(f"waiting for the first step in {path}")
            is_told = True
        time.sleep(every)


def _judge_step(run: Run, steps: Sequence[int], fail_on: Verdict) -> dict[str, Any]:
    """Judge the last of some steps: a verdict holds from one to the next."""
    step = steps[-1]
    present = {*run.steps}  # others were deleted since
    try:
        with silence_failed_steps():
            frame = run.diagnose([s for s in steps if s in present or s == step]).frame
    except LoadError as error:  # no file of the run can be read
        return {"step": step, "error": str(error)}
    if not (frame["step"] == step).any():
        return {"step": step, "error": run.failed.get(step, "unknown")}
    (judged,) = frame[frame["step"] == step].to_dict("records")
    mean = float(judged["mean_abs_diff"])
    return {
        "step": step,
        "verdict": judged["verdict"],
        "mean_abs_diff": mean if isfinite(mean) else None,
        **{name: [*judged[name]] for name in ("causes", "places", "updates")},
        "text": judged["text"],
        "events": [event.text for event in run.events() if event.step == step],
        "fail_on": fail_on,
        "failed": is_at_least(judged["verdict"], fail_on) or len(judged["updates"]) > 0,
    }


def _describe(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"step {row['step']:>6,}  cannot be read: {row['error']}"
    mean = row["mean_abs_diff"]
    level = "" if mean is None else f"{mean:.4f} nat  "
    headline, _, advice = row["text"].partition("\n")
    lines = [f"step {row['step']:>6,}  {text}" for text in row["events"]]
    lines.append(f"step {row['step']:>6,}  {row['verdict']:<10}  {level}{headline}")
    if row["causes"] or row["places"]:
        lines.append(f"{'':13}{advice}")
    return "\n".join(lines)
