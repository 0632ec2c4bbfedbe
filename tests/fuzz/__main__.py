"""Damages files of every format and opens them.

    python -m tests.fuzz                    ten minutes
    python -m tests.fuzz --minutes 60 --run 2
    python -m tests.fuzz --case 1234        one case again, its files kept

Each is opened with `load(untrusted=True)` and must end in a Batch that is right or in a
LoadError that was foreseen, without doing anything but reading it. Files that reach a
limit or crash a library are counted; that is what the child process is for. Ends with 1
if there was a fault.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic
from typing import Any

from tests.fuzz.cases import case
from tests.fuzz.corpus import corpus
from tests.fuzz.running import outcomes


def main() -> int:
    """Run cases for some minutes and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--run", type=int, default=0, help="another run, other cases")
    parser.add_argument("--case", type=int, help="write the files of one case")
    options = parser.parse_args()
    if options.case is not None:
        return keep(options.case, options.run)
    end = monotonic() + 60 * options.minutes
    facts = list(outcomes(options.run, lambda: monotonic() < end))
    return report(facts)


def keep(number: int, run: int) -> int:
    """Write the files of one case and say where."""
    folder = Path(mkdtemp(prefix=f"case-{number}-"))
    seed, damage, _ = case(number, corpus(), run)
    for name, content in seed.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    print(f"{damage}: {folder / seed.opened}")
    return 0


def report(facts: list[dict[str, Any]]) -> int:
    """Print the figures, and each fault."""
    faults = [fact for fact in facts if fact["kind"] == "fault"]
    counts = Counter(fact["kind"] for fact in facts)
    print(
        f"{len(facts)} files:", ", ".join(f"{n} {kind}" for kind, n in counts.items())
    )
    print(f"slowest {max(fact['seconds'] for fact in facts):.2f} s", end=", ")
    print(f"most memory {max(fact['extra_bytes'] for fact in facts) / 1e6:.0f} MB")
    for name, count in sorted(Counter(fact["seed"] for fact in facts).items()):
        print(f"  {count:7} {name}")
    for kind, alike in groupby(sorted(faults, key=_kind), key=_kind):
        fact, *others = alike
        print(f"case {fact['case']} and {len(others)} more, {kind}: {fact['message']}")
    for fact in facts:
        if fact["kind"] in {"limit", "crash"}:
            case = f"case {fact['case']}, {fact['seed']}, {fact['damage']}"
            print(f"{case}: {fact['message']}")
    return 1 if faults else 0


def _kind(fact: dict[str, Any]) -> str:
    """Say what faults have in common: the file, and the fault without its numbers."""
    fault = fact["message"].rpartition("/")[2]
    return f"{fact['seed']}, {re.sub('[0-9]+', '#', fault):.60}"


if __name__ == "__main__":
    sys.exit(main())
