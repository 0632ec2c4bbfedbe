"""Writes the snapshot anew: `python -m tests.snapshot`, then read `git diff`.

A commit that changes it says why.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.snapshot import answers
from tests.snapshot.cases import cases
from tests.snapshot.description import describe


def main() -> int:
    """Describe every case."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["ROUNDDIAG_CACHE"] = name  # the index of the run
        folder = Path(name)
        found = {name: describe(name, make, folder) for name, make in cases(folder)}
    answers.write(found)
    print(f"{len(found)} cases, {answers.FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
