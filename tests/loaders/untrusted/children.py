"""Children that stand in for the one that reads a file."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from rounddiag.loaders.untrusted import guard


def answer_with(
    folder: Path, forge: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the child answer with copies of files, of which some are then changed."""

    def run_child(answer: Path, *_: object) -> tuple[int, str]:
        for file in folder.iterdir():
            shutil.copy(file, answer / file.name)
        forge(answer)
        return 0, ""

    monkeypatch.setattr(guard, "run_child", run_child)


def run_code(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the child run other code, in the folder with its request."""
    monkeypatch.setattr(guard, "_CODE", code)


def fork(act: Callable[[], object]) -> int:
    """Do it in a fork, which ends with 0 if it raises nothing; return its process."""
    with warnings.catch_warnings():  # Python 3.12 warns where there are threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return child


def end_of(child: int) -> int:
    """Wait for a process and return its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
