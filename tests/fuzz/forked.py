"""Stands in for the process that `load(untrusted=True)` starts: a fork of this one.

The fork runs what the process runs, `child.read_request`. Starting Python and
importing torch takes seconds; a fork takes milliseconds.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import rounddiag.loaders.open as opening
from rounddiag.loaders.untrusted.child import read_request

ESCAPED = 70  # exit code of an exception that `read_request` should have caught


@dataclass(frozen=True, kw_only=True)
class Forked:
    """How a fork ended: its exit code, its standard error, the most memory it held."""

    code: int
    output: str
    num_bytes: int


def run_forked(folder: Path, *_: object) -> tuple[int, str]:
    """Do what `process.run_child` does, in a fork."""
    forked = fork(folder)
    return forked.code, forked.output


def fork(folder: Path, around: AbstractContextManager[Any] | None = None) -> Forked:
    """Answer the request in a folder, inside a context."""
    sys.stdout.flush()
    log = folder / "stderr"
    with warnings.catch_warnings():  # Python 3.12 warns where there are threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _answer(folder, log, around or nullcontext())
    _, status, used = os.wait4(child, 0)
    return Forked(
        code=os.waitstatus_to_exitcode(status),
        output=log.read_text(errors="replace"),
        num_bytes=1024 * used.ru_maxrss,
    )


def _answer(folder: Path, log: Path, around: AbstractContextManager[Any]) -> None:
    code = ESCAPED
    try:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
        faulthandler.disable()  # its dump would stand among the results of the tests
        torch.set_num_threads(1)  # the threads of the parent are not in the fork
        with around:
            code = read_request(folder, opening.read_batch)
    except BaseException:  # noqa: BLE001 nothing may go on as if it were the parent
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)
