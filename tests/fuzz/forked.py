"""Stands in for the child process of `load(untrusted=True)`: a fork of this one.

Starting Python and importing torch takes seconds; a fork takes milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import TYPE_CHECKING

from rounddiag.loaders import untrusted

if TYPE_CHECKING:
    from pathlib import Path

_CRASHED = 70


def run_forked(folder: Path, limits: untrusted.Limits) -> tuple[int, str]:
    """Do what `untrusted.run_child` does, in a fork."""
    sys.stdout.flush()
    log = folder / "stderr"
    with warnings.catch_warnings():  # Python 3.12 warns where there are threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = _CRASHED
        try:
            stream = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(stream, 2)
            request = json.loads((folder / untrusted.REQUEST).read_text())
            untrusted.set_limits(limits)
            code = untrusted.answer(folder, request)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")
