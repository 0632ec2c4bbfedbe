"""Runs `rd.diagnose` on every batch of the bench and prints how often it is right.

    python -m tests.faults.bench --split tune
    python -m tests.faults.bench --split test
    python -m tests.faults.bench --only temperature  or healthy, pairs, cards

Needs the cache that `python -m tests.faults.make` writes, and no transformers.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

import rounddiag as rd
from rounddiag.findings.verdict import NOISE
from tests.faults import tables
from tests.faults.cases import Case, cases
from tests.faults.truth import NOISE_LIKE, alike

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Outcome:
    """What `rd.diagnose` said to a case. `causes` are those found, best first."""

    case: Case
    verdict: str
    level: float
    causes: tuple[str, ...]
    confidences: tuple[float, ...]
    alternatives: tuple[tuple[str, ...], ...]
    seconds: float
    text: str

    @property
    def fault(self) -> str:
        """The fault that was injected, as the cache names it."""
        return self.case.name.split("/")[-1].split(".")[0]

    def is_right(self, index: int) -> bool:
        """Tell whether a finding names the cause, or one that looks the same."""
        (truth,) = self.case.causes
        if index >= len(self.causes):
            return False
        if self.causes[index] == truth:
            return True
        named = truth in self.alternatives[index]
        return named and alike(truth, self.causes[index], self.fault, self.case.columns)

    @property
    def is_top1(self) -> bool:
        """Whether the first finding is right."""
        (truth,) = self.case.causes
        if truth == "healthy":
            return not self.is_alarm
        return self.is_right(0) or self.is_taken_for_noise

    @property
    def is_exact(self) -> bool:
        """Whether the first finding names the cause itself."""
        return bool(self.causes) and self.causes[0] == self.case.causes[0]

    @property
    def is_top3(self) -> bool:
        """Whether one of the first three findings is right."""
        return any(map(self.is_right, range(3))) or self.is_top1

    @property
    def is_taken_for_noise(self) -> bool:
        """Whether no cause is named where the level of the noise is not known."""
        return (
            self.case.causes[0] in NOISE_LIKE
            and self.case.severity == "just_visible"
            and self.case.healthy is None
            and not self.causes
            and self.verdict in ("healthy", "noisy")
        )

    @property
    def is_alarm(self) -> bool:
        """Whether a bug is claimed."""
        bugs = zip(self.causes[:1], self.confidences, strict=False)
        is_claimed = any(name not in NOISE and sure >= 0.5 for name, sure in bugs)
        return self.verdict in ("suspicious", "broken") or is_claimed

    @property
    def has_both(self) -> bool:
        """Whether all causes are among the first three findings."""
        found = self.causes[:3]
        return all(
            any(
                name == truth
                or (
                    truth in self.alternatives[i]
                    and any(
                        alike(truth, name, fault, self.case.columns)
                        for fault in self.fault.split("+")
                    )
                )
                for i, name in enumerate(found)
            )
            for truth in self.case.causes
        )


def run(case: Case) -> Outcome:
    """Diagnose one case."""
    batch, arguments = case.batch(), case.arguments()
    start = perf_counter()
    found = rd.diagnose(batch, **arguments)
    seconds = perf_counter() - start
    return Outcome(
        case,
        found.verdict,
        found.level.mean_abs_diff,
        tuple(one.cause for one in found),
        tuple(one.confidence for one in found),
        tuple(tuple(other.cause for other in one.alternatives) for one in found),
        seconds,
        repr(found),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=("tune", "test"), default="tune")
    parser.add_argument("--only", help="a cause, or healthy, pairs, cards")
    parser.add_argument("--every", type=int, default=1, help="every n-th batch")
    parser.add_argument("--misses", type=int, default=40, help="how many to print")
    options = parser.parse_args(arguments)
    chosen = list(cases(options.split, options.only))[:: options.every]
    outcomes = [run(case) for case in tqdm(chosen, "diagnose", disable=None)]
    print(tables.report(outcomes, options.misses))
    return 0


if __name__ == "__main__":
    sys.exit(main())
