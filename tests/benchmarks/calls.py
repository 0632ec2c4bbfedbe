"""Print what a plain call runs: calls of our functions, files, and the deepest stack.

    python -m tests.benchmarks.calls

A first call imports what it needs; the second is counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import rounddiag as rd

ROOT = Path(rd.__file__).parent
FILE = "sample_data/image_window.parquet"
CALLS: dict[str, Callable[[rd.Batch], object]] = {
    "load": lambda _: rd.load("sample_data/image_window_verl.pkl"),
    "token_frame": rd.token_frame,
    "plot_rounds": rd.plot_rounds,
    "plot_heatmap": rd.plot_heatmap,
    "diagnose": rd.diagnose,
}


class Counted:
    """Counts the calls of our functions while it is the profile function."""

    def __init__(self) -> None:
        self.files: Counter[Path] = Counter()
        self.depth = 0
        self.deepest = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if ROOT not in path.parents or event not in {"call", "return"}:
            return
        is_call = event == "call"
        self.files[path] += is_call
        self.depth += 1 if is_call else -1
        self.deepest = max(self.deepest, self.depth)


def count(call: Callable[[rd.Batch], object]) -> Counted:
    call(rd.load(FILE))
    batch = rd.load(FILE)
    counted = Counted()
    sys.setprofile(counted)
    try:
        call(batch)
    finally:
        sys.setprofile(None)
    return counted


def main() -> int:
    print(f"{'call':<26}{'calls':>8}{'files':>7}{'depth':>7}  calls by package")
    for name, call in CALLS.items():
        counted = count(call)
        packages: Counter[str] = Counter()
        for path, number in counted.files.items():
            packages[path.relative_to(ROOT).parts[0].removesuffix(".py")] += number
        most = ", ".join(f"{one} {n}" for one, n in packages.most_common(5))
        total, files = counted.files.total(), len(counted.files)
        print(f"{name:<26}{total:>8}{files:>7}{counted.deepest:>7}  {most}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
