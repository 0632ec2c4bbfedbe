"""What a training that was killed left half written."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from rounddiag.capture.options import is_url

_AGE = 3600.0  # seconds: what is younger may still be written by another process


def remove_leftovers(folder: str) -> None:
    """Remove the partial files of steps that nobody writes any more.

    Parameters
    ----------
    folder : str
        As in `Options`; in object storage nothing is removed.
    """
    if is_url(folder):
        return
    with suppress(OSError):
        for file in Path(folder).glob(".step_*.parquet.*.partial"):
            if file.stat().st_mtime < time.time() - _AGE:
                file.unlink()
