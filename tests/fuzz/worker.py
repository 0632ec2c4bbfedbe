"""Opens cases one after the other and writes a line of JSON about each.

Started by `tests.fuzz`; a case that ends the process ends only this one.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

from tests.fuzz.cases import case
from tests.fuzz.corpus import corpus
from tests.fuzz.guard import Guard


def main(first: int, run: int) -> None:
    """Open a case for each line of the input, from `first` on, until it ends."""
    warnings.simplefilter("error")
    folder = Path(mkdtemp(prefix="fuzz-"))
    guard, seeds = Guard(folder), corpus()
    warm_up(guard, folder, seeds[0].files[seeds[0].opened])
    gc.freeze()  # a collection in a fork would copy all that it looks at
    number = first
    while sys.stdin.readline():
        place = folder / str(number)
        seed, damage, _ = case(number, seeds, run)
        for name, content in seed.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        outcome = guard.open(place / seed.opened, seed.columns)
        facts = {"case": number, "seed": seed.name, "damage": damage}
        print(json.dumps({**facts, **asdict(outcome)}), flush=True)
        shutil.rmtree(place)
        number += 1
    shutil.rmtree(folder)


def warm_up(guard: Guard, folder: Path, data: bytes) -> None:
    """Import what opening imports, before anything is measured."""
    path = folder / "warm"
    path.write_bytes(data)
    guard.open(path)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
