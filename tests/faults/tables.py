"""The tables of the bench."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tests.faults.severity import BANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.faults.bench import Outcome


def report(outcomes: Sequence[Outcome], num_misses: int) -> str:
    """Return all tables as text."""
    kinds = [_kind(one) for one in outcomes]
    single, healthy, pairs, cards = (
        [one for one, kind in zip(outcomes, kinds, strict=True) if kind == name]
        for name in ("single", "healthy", "pair", "card")
    )
    parts = [f"{len(outcomes)} batches"]
    if single:
        parts += [accuracy(single), confusion(single)]
    if single or healthy:
        parts.append(calibration([*single, *healthy]))
    if healthy:
        parts.append(alarms(healthy))
    if pairs:
        parts.append(both(pairs))
    if cards:
        parts.append(card_table(cards))
    parts += [cost(outcomes), misses([*single, *healthy], num_misses)]
    return "\n\n".join(parts)


def _kind(one: Outcome) -> str:
    if "/card." in one.case.name:
        return "card"
    if one.case.causes == ("healthy",):
        return "healthy"
    return "pair" if len(one.case.causes) > 1 else "single"


def _percent(values: Sequence[bool]) -> str:
    return f"{100 * np.mean(values):4.0f} %" if values else "     -"


def accuracy(outcomes: Sequence[Outcome]) -> str:
    """Top-1 and top-3 by severity, and by cause."""
    by_cause: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_cause[one.case.causes[0]].append(one)
    head = f"{'':22}" + "".join(f"{name:>22}" for name in BANDS)
    lines = ["accuracy: top-1, top-3 (batches)", head]
    names: list[tuple[str, Sequence[Outcome]]] = [("all", outcomes)]
    names += sorted(by_cause.items())
    for name, rows in names:
        cells = []
        for severity in BANDS:
            part = [one for one in rows if one.case.severity == severity]
            first = _percent([one.is_top1 for one in part])
            third = _percent([one.is_top3 for one in part])
            cells.append(f"{first} {third} ({len(part):3})")
        lines.append(f"{name:22}" + "".join(f"{cell:>22}" for cell in cells))
    exact = _percent([one.is_exact for one in outcomes])
    lines.append(f"top-1 without equivalences: {exact}")
    for column, test in _SUBSETS.items():
        part = [one for one in outcomes if test(one)]
        first = _percent([one.is_top1 for one in part])
        lines.append(f"top-1, {column}: {first} ({len(part)})")
    return "\n".join(lines)


_SUBSETS: dict[str, Callable[[Outcome], bool]] = {
    "16 or 24 samples": lambda one: len(one.case.rows) <= 24,
    "64 samples or more": lambda one: len(one.case.rows) >= 64,
    "one round": lambda one: one.case.rows.is_one_round,
    "dense": lambda one: one.case.name.startswith("dense"),
    "mixture of experts": lambda one: one.case.name.startswith("moe"),
    "vision": lambda one: one.case.name.startswith("vision"),
    "without entropy": lambda one: "entropy" not in one.case.columns,
    "without any optional column": lambda one: not one.case.columns,
    "with a healthy batch": lambda one: one.case.healthy is not None,
}


def confusion(outcomes: Sequence[Outcome]) -> str:
    """What each cause was taken for; a right alternative counts as itself."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in outcomes:
        truth = one.case.causes[0]
        named = one.causes[0] if one.causes else f"({one.verdict})"
        found[truth]["right" if one.is_top1 else named] += 1
    lines = ["confusion: cause, right, taken for"]
    for truth, counts in sorted(found.items()):
        wrong = ", ".join(
            f"{name} {n}" for name, n in counts.most_common() if name != "right"
        )
        lines.append(f"{truth:22} {counts['right']:4} of {counts.total():4}  {wrong}")
    return "\n".join(lines)


def calibration(outcomes: Sequence[Outcome]) -> str:
    """How often findings of a confidence are right, for first findings and all."""
    edges = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.01)
    lines = ["calibration: confidence of first findings, mean claimed, right"]
    pairs = [
        (one.confidences[0], one.case.causes != ("healthy",) and one.is_right(0))
        for one in outcomes
        if one.confidences
    ]
    for low, high in pairwise(edges):
        part = [pair for pair in pairs if low <= pair[0] < high]
        if part:
            claimed = np.mean([value for value, _ in part])
            right = np.mean([is_right for _, is_right in part])
            lines.append(
                f"{low:.2f} to {min(high, 1):.2f}: {len(part):5} findings,"
                f" {claimed:.2f} claimed, {right:.2f} right"
            )
    return "\n".join(lines)


def alarms(outcomes: Sequence[Outcome]) -> str:
    """Bugs claimed on sound batches."""
    wrong = [one for one in outcomes if one.is_alarm]
    verdicts = Counter(one.verdict for one in outcomes)
    lines = [
        f"healthy: {len(wrong)} false alarms in {len(outcomes)}; verdicts"
        f" {dict(verdicts)}"
    ]
    lines += [_line(one) for one in wrong]
    return "\n".join(lines)


def both(outcomes: Sequence[Outcome]) -> str:
    """Two faults at once."""
    right = sum(one.has_both for one in outcomes)
    lines = [f"pairs: both among the first three in {right} of {len(outcomes)}"]
    for one in outcomes:
        mark = "yes" if one.has_both else "no "
        lines.append(f"{mark} {_line(one)}")
    return "\n".join(lines)


def card_table(outcomes: Sequence[Outcome]) -> str:
    """What is said to each case card."""
    lines = ["case cards"]
    for one in outcomes:
        lines += [f"{one.case.name}: {', '.join(one.case.causes)}", one.text]
    return "\n".join(lines)


def cost(outcomes: Sequence[Outcome]) -> str:
    """Seconds a batch."""
    seconds = [one.seconds for one in outcomes]
    slowest = max(outcomes, key=lambda one: one.seconds)
    return (
        f"cost: median {np.median(seconds):.3f} s, slowest {slowest.seconds:.2f} s"
        f" ({slowest.case.name}, {sum(map(len, slowest.case.rows.ids))} positions)"
    )


def misses(outcomes: Sequence[Outcome], count: int) -> str:
    """The misses, the surest first."""
    wrong = [one for one in outcomes if not one.is_top1]
    wrong.sort(key=lambda one: -max(one.confidences[:1], default=0.0))
    return "\n".join(
        [f"{len(wrong)} misses, the surest first", *map(_line, wrong[:count])]
    )


def _line(one: Outcome) -> str:
    case = one.case
    found = ", ".join(
        f"{name} {value:.2f}"
        for name, value in zip(one.causes[:3], one.confidences, strict=False)
    )
    return (
        f"{case.name} [{' + '.join(case.causes)}, {case.severity}, {case.ratio:.1f} x,"
        f" {len(case.rows)} rows, {one.level:.4f} nat,"
        f" {'one round, ' if case.rows.is_one_round else ''}"
        f"{' '.join(sorted(case.columns))}{' +healthy' if case.healthy else ''}]"
        f" -> {one.verdict}: {found or 'nothing'}"
    )
