"""The diagnosis of a run: a verdict per step, and what changed between steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from types import CodeType
from typing import Any

import numpy as np
import pandas as pd

from rounddiag.findings import DETECTORS, REFERENCE, Finding, diagnose
from rounddiag.findings.verdict import Verdict, hold
from rounddiag.runs.change_points import Break
from rounddiag.runs.folder import RunFolder, StepFiles
from rounddiag.runs.index import Rows
from rounddiag.runs.step_tables import check_tables, load_step
from rounddiag.wording import pluralize, printable

# More steps take minutes: they are chosen.
MAX_STEPS = 40
# More phases, or events, are only counted.
_MOST = 6
_COLUMNS = ("step", "verdict", "mean_abs_diff", "causes", "places", "updates", "text")
# A weight version that has not changed for so many steps is not expected to.
_CONSTANT = 3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunDiagnosis:
    """A verdict per step of a run, and what changed between steps.

    Attributes
    ----------
    frame: One row per diagnosed step: `step, verdict, mean_abs_diff, causes, places,
        updates, text`: causes that facts and reversals name, places without a name, and
        wrong updates, the largest share first. A verdict holds until a step is far
        below its limits.
    num_steps: Steps of the run.
    breaks: Steps at which rounds change together.
    changes: One row per round that changes or grows, as `Run.changes` returns it.
    events: Changes of facts of the run, and of how its weights change.
    growth: Whether the mismatch goes with the updates or with the recorded lag.
    """

    frame: pd.DataFrame
    num_steps: int
    breaks: tuple[Break, ...]
    changes: pd.DataFrame
    events: tuple[Event, ...]
    growth: str = ""

    @property
    def text(self) -> str:
        """The verdicts over the run, in a sentence."""
        rows = zip(self.frame["verdict"], self.frame["step"], strict=True)
        phases = [
            (verdict, [step for _, step in part])
            for verdict, part in groupby(rows, key=lambda row: row[0])
        ]
        if len(phases) <= _MOST:
            parts = [f"{verdict} {_name_steps(steps)}" for verdict, steps in phases]
        else:
            parts = [
                f"{verdict} in {pluralize(len(steps), 'step')}, {_name_steps(steps)}"
                for verdict, steps in self._steps_by_verdict().items()
            ]
        count = f"{len(self.frame):,} of {pluralize(self.num_steps, 'step')} diagnosed"
        return f"{'; '.join(parts) or 'no verdict'} ({count})"

    @property
    def lines(self) -> list[str]:
        """What changed between steps, a line each."""
        lines = [str(item) for item in self.breaks]
        for _, row in self.changes[self.changes["change"] == "growth"].iterrows():
            lines.append(
                f"round {row['round']} drifts from {row['before']:.3g} to"
                f" {row['after']:.3g}, from step {row['step']:,} on"
            )
        events = [str(event) for event in self.events[:_MOST]]
        if len(self.events) > _MOST:
            events.append(pluralize(len(self.events) - _MOST, "more change"))
        growth = [self.growth] if self.growth else []
        return [*lines, *growth, *self._findings(), *events]

    def _findings(self) -> Iterator[str]:
        """Say in which of the diagnosed steps each cause, or place, is found."""
        for name in ("causes", "updates", "places"):
            rows = self.frame.explode(name).dropna(subset=name)
            groups = [
                (value, part["step"].tolist())
                for value, part in rows.groupby(name, sort=False)
            ]
            groups.sort(key=lambda group: -len(group[1]))
            for value, steps in groups[:_MOST]:
                count = f"{len(steps):,} of {len(self.frame):,} diagnosed steps"
                join = ": in" if name == "places" else " in"
                yield f"{value}{join} {count}, {_name_steps(steps)}"

    def _steps_by_verdict(self) -> dict[str, list[int]]:
        groups = self.frame.groupby("verdict", sort=False)["step"]
        return {str(verdict): steps.tolist() for verdict, steps in groups}

    def __len__(self) -> int:
        return len(self.frame)

    def __str__(self) -> str:
        return "\n".join(map(printable, [self.text, *(f"  {x}" for x in self.lines)]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *lines = (escape(printable(line)) for line in (self.text, *self.lines))
        items = "".join(f"<li>{line}</li>" for line in lines)
        # JupyterLab would typeset `$...$` in names of the file.
        return f'<div class="mathjax_ignore"><p>{head}</p><ul>{items}</ul></div>'


def _name_steps(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"at step {steps[0]:,}"
    return f"from step {steps[0]:,} to {steps[-1]:,}"


def diagnose_step(
    folder: RunFolder, step: StepFiles, *, kind: str | None
) -> dict[str, Rows]:
    """Return the row of a step, as `diagnoses`, and its tables as its columns are."""
    batch = load_step(folder, step)
    diagnosis = diagnose(batch, kind=kind)
    bugs = [finding for finding in diagnosis if finding.is_bug]
    causes = [bug.cause for bug in bugs if bug.kind != "place"]
    places = [_place(bug) for bug in bugs if bug.kind == "place"]
    row = {
        "step": step.step,
        "verdict": diagnosis.verdict,
        "strict": diagnosis.at_limits(0.5),
        "mean_abs_diff": diagnosis.level.mean_abs_diff,
        "causes": list(dict.fromkeys(causes)),
        "places": list(dict.fromkeys(places)),
        "updates": [update.cause for update in diagnosis.updates],
        "text": diagnosis.text,
    }
    return {"diagnoses": pd.DataFrame([row]), **check_tables(folder, step, batch)}


def _place(finding: Finding) -> str:
    """Return where a finding is, in words that are the same at other steps."""
    onset = finding.where.get("onset")
    if onset is not None:
        return f"from round {onset.round} on"
    return str(finding.where["place"].text)


def hold_verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of steps, each verdict held as long as its limits allow."""
    if not len(rows):
        return pd.DataFrame(columns=[*_COLUMNS])
    rows = rows.sort_values("step", ignore_index=True)
    held: list[Verdict] = []
    for now, strict in zip(rows["verdict"], rows["strict"], strict=True):
        held.append(hold(held[-1] if held else None, now, strict))
    return rows.assign(verdict=held).drop(columns="strict")


def judged_by() -> str:
    """Return a name of what others have added or changed: detectors, and ranges.

    The index knows our own code.
    """
    parts = [repr(sorted(REFERENCE.items()))]
    for name, detector in sorted(DETECTORS.items()):
        code = getattr(detector.detect, "__code__", type(detector.detect))
        parts += [name, detector.kind, _describe(code)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _describe(value: object) -> str:
    """Return a text of code, with that inside of it; of constants, their values."""
    if isinstance(value, CodeType):
        inner = [*map(_describe, value.co_consts)]
        return f"{value.co_code.hex()} {value.co_names} {inner}"
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def choose_steps(steps: Sequence[int], breaks: Sequence[Break]) -> tuple[int, ...]:
    """Choose at most `MAX_STEPS` steps: both sides of each break, the others evenly."""
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    sides = {step for change in breaks for step in (change.previous, change.step)}
    sides = {*sorted(sides)[: MAX_STEPS // 2]}
    places = np.linspace(0, len(steps) - 1, MAX_STEPS - len(sides)).round().astype(int)
    return tuple(sorted(sides | {steps[place] for place in places}))


@dataclass(frozen=True)
class Event:
    """A fact of the run, such as an engine's version, that changed between two steps.

    Also a weight version that stops changing, changes again, or goes back.

    Attributes
    ----------
    previous, step: The steps before and after the change.
    text: The fact, and both of its values.
    """

    previous: int
    step: int
    text: str

    def __str__(self) -> str:
        return f"from step {self.step:,}: {self.text}"


def find_events(steps: pd.DataFrame) -> list[Event]:
    """Return what changes from one step to the next: facts, and how weights change."""
    events = [*_find_weight_events(steps), *_find_fact_events(steps)]
    events += _find_arrival_events(steps)
    return sorted(events, key=lambda event: event.step)


def _find_weight_events(steps: pd.DataFrame) -> Iterator[Event]:
    """Yield the steps at which weight versions stop changing, or change against habit.

    Training changes them, at each step or every few steps. So they stop changing when
    more steps than ever before have the same one, once they have changed twice.
    """
    known = steps[steps["weight_version"] != ""]
    rows = list(zip(known["step"].tolist(), known["weight_version"], strict=True))
    num_alike, longest, num_changes, has_stopped = 1, 1, 0, False
    for (before, old), (after, new) in pairwise(rows):
        was, now = (version.rpartition(" to ")[2] for version in (old, new))
        name = "weight version"
        if was == now:
            num_alike += 1
            if num_alike > longest and num_changes > 1 and not has_stopped:
                has_stopped = True
                yield Event(before, after, f"{name} stops changing: still {now}")
            continue
        text = f"from {printable(was)} to {printable(now)}"
        if _is_lower(now, was):
            yield Event(before, after, f"{name} goes back {text}")
        elif has_stopped:
            yield Event(before, after, f"{name} changes again {text}")
        elif num_changes == 0 and num_alike >= _CONSTANT:
            yield Event(before, after, f"{name} changes {text}")
        longest = longest if has_stopped else max(longest, num_alike)
        num_alike, has_stopped = 1, False
        num_changes += 1


def _find_arrival_events(steps: pd.DataFrame) -> Iterator[Event]:
    known = steps[steps["weights"] != ""]
    rows = list(zip(known["step"].tolist(), known["weights"], strict=True))
    for (before, was), (after, now) in pairwise(rows):
        if (was == "as sent") != (now == "as sent"):
            yield Event(before, after, f"weights {now}" if now == "as sent" else now)


def _is_lower(now: str, was: str) -> bool:
    try:
        return float(now) < float(was)
    except ValueError:
        return False


def _find_fact_events(steps: pd.DataFrame) -> list[Event]:
    events = []
    rows = list(zip(steps["step"].tolist(), steps["facts"], strict=True))
    for (before, old), (after, new) in pairwise(rows):
        if old == new:
            continue
        was, now = _flat(json.loads(old)), _flat(json.loads(new))
        for name in sorted(was.keys() | now.keys()):
            if was.get(name) != now.get(name):
                earlier, later = (_value(facts.get(name)) for facts in (was, now))
                text = f"{printable(name)} changes from {earlier} to {later}"
                events.append(Event(before, after, text))
    return events


def _flat(facts: Any, prefix: str = "") -> dict[str, Any]:  # noqa: ANN401 any JSON
    if not isinstance(facts, dict):
        return {prefix: facts}
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        is_outer = not prefix and name in ("facts", "sampling")
        inner = "" if is_outer else f"{prefix}.{name}" if prefix else str(name)
        flat |= _flat(value, inner)
    return flat


def _value(value: object) -> str:
    return "unknown" if value is None else printable(f"{value!s:.40}")
