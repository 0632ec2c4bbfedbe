"""Runs `rd.diagnose` on our own batches and prints what it claims, and what is true.

    python -m tests.faults.bench                  the batches that are in the repository
    python -m tests.faults.bench --split tune     those of the cache, `test`, `fresh`
    python -m tests.faults.bench --only temperature
    python -m tests.faults.bench --set place.SURE=50   another value of a constant

Counted per batch, not by hit rates of names: wrong claims; faults seen; sound batches
called a fault or given a name; the truth among the claim and the first eight
candidates. A claim is the cause of a fact or a reversal. A fault of all tokens whose
mean |diff| is within the usual range is seen only with `healthy=`: faults that are
missed run again with a sound batch of the same model, and so do the sound batches.

The cache is what `python -m tests.faults.make` writes. The other batches are the fixed
ones and those that a real vLLM sampled (`vllm/`). Nothing is fitted on any of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

import rounddiag as rd
from rounddiag.findings.causes import FORMULAS
from tests.faults import fixed, vllm_bench
from tests.faults.cases import Case, cases
from tests.faults.truth import CAUSES, alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Noise, whatever makes it: no bug, so no claim against anybody.
QUIET = frozenset({"moe_routing", "low_precision", "batch_shape"})
NO_NAMES = frozenset({"unknown", "outlier_tokens"}) | QUIET
SEEN = frozenset({"stale", "suspicious", "broken", "identical", "not_measurable"})
# Causes that values, ids, rows or a lag show.
EXACT = frozenset(
    {"shifted_log_probs", "filled_log_probs", "swapped_rows", "padding_rows"}
    | {"mask_too_wide", "mask_punched", "identical_log_probs"}
)
SURE = ("clear", "gross")
LISTED = 8
_SAME_ENGINES = "healthy.bf16"  # those with which the faults of a pass were made


@dataclass(frozen=True)
class Outcome:
    """What `rd.diagnose` said to a case: what it claims, and what it holds possible."""

    case: Case
    verdict: str
    claims: tuple[str, ...]
    candidates: tuple[str, ...]
    seconds: float
    text: str

    @property
    def truth(self) -> frozenset[str]:
        """The causes that were injected; none in a sound batch."""
        return frozenset(self.case.causes) - {"healthy"}

    @property
    def fault(self) -> str:
        """The fault that was injected, as the cache names it."""
        return self.case.name.split("/")[-1].split(".")[0]

    def is_right(self, name: str) -> bool:
        """Return whether a cause was injected, or one that no record tells from it."""
        return any(
            name == truth or alike(truth, name, fault, self.case.columns)
            for truth in self.truth
            for fault in self.fault.split("+")
        )

    @property
    def is_wrong(self) -> bool:
        """Whether something is claimed that was not injected."""
        return not all(map(self.is_right, self.claims))

    @property
    def is_claimed(self) -> bool:
        """Whether every injected cause is claimed."""
        return bool(self.truth) and self.truth <= {*self.claims}

    @property
    def is_seen(self) -> bool:
        """Whether the verdict says that noise does not explain the batch."""
        noisy = self.truth <= QUIET and self.verdict == "noisy"
        return self.verdict in SEEN or noisy

    @property
    def is_listed(self) -> bool:
        """Whether the truth is claimed, or one of the first candidates."""
        return any(map(self.is_right, (*self.claims, *self.candidates[:LISTED])))

    @property
    def is_alarm(self) -> bool:
        """Whether a fault or a name is found in a sound batch."""
        return not self.truth and (self.verdict in SEEN or bool(self.claims))


def run(case: Case, healthy: Case | None = None) -> Outcome:
    """Diagnose one case, with the batch of another one as `healthy` if it is given."""
    batch, arguments = case.batch(), case.arguments()
    if healthy is not None:
        arguments = {**arguments, "healthy": healthy.batch()}
    start = perf_counter()
    found = rd.diagnose(batch, **arguments)
    seconds = perf_counter() - start
    claims = [one.cause for one in found if one.cause not in NO_NAMES]
    if found.verdict == "identical":
        claims = ["identical_log_probs"]
    listed = [str(name) for one in found for name in (one.cause, *one.candidates)]
    return Outcome(
        case=case,
        verdict=found.verdict,
        claims=tuple(dict.fromkeys(claims)),
        candidates=tuple(dict.fromkeys(n for n in listed if n != "unknown")),
        seconds=seconds,
        text=repr(found),
    )


def sound_batch(case: Case, others: Iterable[Case]) -> Case | None:
    """Return another, sound batch of the model of a case; None if there is none.

    Its engines are those of a fault in a pass; of faults in the arrays no name tells.
    """
    agent, _, name = case.name.partition("/")
    if name.split(".")[0] not in CAUSES and not name.startswith(_SAME_ENGINES):
        return None
    sound = f"{agent}/{_SAME_ENGINES}"
    same = (one for one in others if one is not case and one.name.startswith(sound))
    return next(same, None)


def run_with_healthy(
    outcomes: Iterable[Outcome], cases_of_split: Sequence[Case]
) -> list[Outcome]:
    """Diagnose cases again with a sound batch of their model, where there is one."""
    again = []
    for outcome in outcomes:
        sound = sound_batch(outcome.case, cases_of_split)
        if sound is not None:
            again.append(run(outcome.case, sound))
    return again


def report_with_healthy(
    outcomes: Sequence[Outcome], cases_of_split: Sequence[Case]
) -> str:
    """Return what `healthy=` adds: to the faults that are missed, and to alarms."""
    sure = [one for one in outcomes if one.truth and one.case.severity in SURE]
    missed = run_with_healthy((o for o in sure if not o.is_seen), cases_of_split)
    seen = {one.case.name for one in (*sure, *missed) if one.is_seen}
    sound = run_with_healthy((o for o in outcomes if not o.truth), cases_of_split)
    rows = [
        ("missed ones seen with `healthy=`", [one.is_seen for one in missed]),
        ("seen, or with `healthy=`", [one.case.name in seen for one in sure]),
        ("sound ones called a fault with `healthy=`", [one.is_alarm for one in sound]),
    ]
    return "\n".join(_line(name, flags) for name, flags in rows)


def report(outcomes: Sequence[Outcome], misses: int) -> str:
    """Return the table, and the batches that are wrong."""
    sound = [one for one in outcomes if not one.truth]
    faults = [one for one in outcomes if one.truth]
    sure = [one for one in faults if one.case.severity in SURE]
    exact = [one for one in sure if one.truth <= EXACT]
    formulas = [one for one in sure if one.truth <= FORMULAS]
    rows = [
        ("wrong claims, of all", [one.is_wrong for one in outcomes]),
        ("clear and gross faults seen", [one.is_seen for one in sure]),
        ("sound ones called a fault or named", [one.is_alarm for one in sound]),
        ("facts and reversals claimed", [one.is_claimed for one in exact]),
        ("sampling formulas claimed", [one.is_claimed for one in formulas]),
        ("truth claimed or among eight", [one.is_listed for one in sure]),
    ]
    lines = [_line(name, flags) for name, flags in rows]
    num = sum(len(one.candidates) for one in sure) / max(len(sure), 1)
    lines.append(f"{num:.1f} candidates a batch")
    wrong = Counter(c for one in outcomes for c in one.claims if not one.is_right(c))
    lines.append(f"wrong claims by cause: {dict(wrong)}")
    shown = [*_misses(outcomes)][:misses]
    lines += [f"{one.case.name}: {one.text}" for one in shown]
    return "\n".join(lines)


def _line(name: str, flags: Sequence[bool]) -> str:
    """Return a share with its Clopper-Pearson interval."""
    num, total = sum(flags), len(flags)
    if not total:
        return f"{name}: none"
    from scipy import stats  # slow to import, for all that import this file

    found = stats.binomtest(num, total).proportion_ci(method="exact")
    interval = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
    return f"{name}: {num} of {total} = {100 * num / total:.1f} % ({interval})"


def _misses(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    for one in outcomes:
        is_sure = one.case.severity in SURE
        if one.is_wrong or one.is_alarm or (is_sure and not one.is_listed):
            yield one


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=("tune", "test", "fresh"))
    parser.add_argument("--only", help="a cause, or healthy")
    parser.add_argument("--every", type=int, default=1, help="every n-th batch")
    parser.add_argument("--misses", type=int, default=40, help="how many to print")
    parser.add_argument("--set", help="a constant of findings: module.NAME=number")
    options = parser.parse_args(arguments)
    if options.set:
        path, _, value = options.set.partition("=")
        module, _, name = path.rpartition(".")
        setattr(import_module(f"rounddiag.findings.{module}"), name, float(value))
    if options.split:
        groups = {options.split: list(cases(options.split, options.only))}
    else:
        groups = {"fixed": fixed.load(), "vllm": vllm_bench.load()}
    for name, found in groups.items():
        chosen = found[:: options.every]
        outcomes = [run(one) for one in tqdm(chosen, name, disable=None)]
        print(f"== {name}\n{report_with_healthy(outcomes, found)}")
        print(f"{report(outcomes, options.misses)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
