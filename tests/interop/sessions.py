"""Write a V1 payload of released verl in which one session has two outputs.

The context was reset between them: the second output has its own prompt and the next
key. The queue returned the rows in another order, with a padding row among them.
Runs in the environment that `run` creates for `make_fixtures.py`.
Usage: `python sessions.py FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tensordict
import torch
import verl
from make_fixtures import (  # type: ignore[import-not-found] # beside this file
    PICTURE,
    padding_row,
    payload,
    row,
)


def main(folder: Path) -> None:
    """Write the payload."""
    items = [
        row([1, *PICTURE, 7], [2], pictures=1, uid="g0"),
        padding_row(),
        row([1, *PICTURE, 2], [3, 2], pictures=2, uid="g0"),
        row([3, 4, 5], [2], pictures=0, uid="g1"),
    ]
    found = payload(items)
    found["keys"] = ["g0_0_1", "pad0a1b_0_0", "g0_0_0", "g1_0_0"]
    stem = f"verl-{verl.__version__}_tensordict-{tensordict.__version__}"
    torch.save(found, folder / f"{stem}_v1-sessions.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
