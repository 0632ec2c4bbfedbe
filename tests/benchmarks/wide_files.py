"""Seconds for honest files with many columns, entries, keys or rounds.

Twice as many should take about twice as long. Usage:

    python -m tests.benchmarks.wide_files [COUNT]
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import rounddiag as rd
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.session import Session
from tests.loaders.wide_files import WRITERS, of_rounds

if TYPE_CHECKING:
    from collections.abc import Callable

VIEWS: dict[str, Callable[[Any], object]] = {
    "round_summary": rd.round_summary,
    "plot_rounds": rd.plot_rounds,
    "plot_heatmap": rd.plot_heatmap,
    "explore, first page": lambda batch: RequestHandler(
        Session({"batch": batch}, {}), lambda: None
    )("overview", {"theme": "light"}),
}


def seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def main(count: int) -> None:
    """Print a table of both sizes, and the views of 100,000 rounds."""
    counts = (count, 2 * count)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'load':20}", *(f"{number:>10,}" for number in counts))
        for name, write in WRITERS.items():
            path = Path(folder) / name
            print(f"{name:20}", end="", flush=True)
            for number in counts:
                write(number, path)
                print(f"{seconds(partial(rd.load, path)):10.2f}", end=" ")
            print(flush=True)
    batch = of_rounds(100_000)
    for name, view in VIEWS.items():
        took = seconds(partial(view, batch))
        print(f"100,000 rounds: {name:20} {took:6.2f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
