"""`load_untrusted`: the request, the child and its answer, from the parent's side."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.paths import resolve_paths
from rounddiag.loaders.untrusted import child, process
from rounddiag.loaders.untrusted.answer import TooLargeError, read_answer, room_beside
from rounddiag.loaders.untrusted.folder import read_start, shared_folder
from rounddiag.wording import printable

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.untrusted.limits import Limits


_MAX_MESSAGE = 4000  # bytes


def load_untrusted(
    path: object,
    limits: Limits,
    options: Mapping[str, Any],
    tokenizer: object | None = None,
) -> Batch:
    """Read a file in a child process."""
    _require_path(path)
    _require_system()
    name = os.fsdecode(path)  # type: ignore[arg-type]
    try:
        with shared_folder() as folder:
            num_bytes = _size_of(name)
            request = {
                "path": name,
                "num_bytes": num_bytes,
                "folder": str(Path.cwd()),
                "parent": os.getpid(),
                "limits": asdict(limits),
                "options": options,
            }
            (folder / child.REQUEST).write_text(json.dumps(request, default=_plain))
            code, output = process.run_child(folder, limits)
            _require_answer(folder, name, code, output, limits)
            most, room = limits.batch_bytes, room_beside(num_bytes)
            return _read_answer(folder, name, limits, most, room, tokenizer)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise LoadError.build(
            file=name,
            expected="a process that reads it, and a temporary folder for its answer",
            found=f"{error.strerror or error}{where}",
            advice="Free what is missing, or set TMPDIR to another folder.",
        ) from error


def _require_path(path: object) -> None:
    if not isinstance(path, str | os.PathLike):
        raise LoadError.build(
            key="untrusted",
            expected="the path of a file",
            found=f"a {type(path).__name__}",
            advice="Leave `untrusted` out: data in memory is read already.",
        )


def _require_system() -> None:
    has_limits = importlib.util.find_spec("resource") is not None
    if sys.platform not in {"linux", "darwin"} or not has_limits:
        raise LoadError.build(
            key="untrusted",
            expected="Linux or macOS, where the limits of a process can be set",
            found=sys.platform if has_limits else f"{sys.platform} without `resource`",
            advice="Open the file on such a machine, or in a virtual machine.",
        )
    if not sys.executable:
        raise LoadError.build(
            key="untrusted",
            expected="a Python to start in `sys.executable`",
            found="nothing",
            advice="Set it to the path of the Python that has rounddiag.",
        )


def _size_of(name: str) -> int:
    """Return the bytes of the files of a path; 0 where the child will refuse it."""
    try:
        return sum(file.stat().st_size for file in resolve_paths(name))
    except (LoadError, OSError, ValueError):
        return 0


def _plain(value: Any) -> Any:  # noqa: ANN401 of numpy, a mapping or a path
    """Return an option as a value that JSON can represent."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else list(value)


def _require_answer(
    folder: Path, name: str, code: int | None, output: str, limits: Limits
) -> None:
    """Raise the error that ended the child, or that it wrote; else it has answered."""
    done = read_start(folder / child.DONE, _MAX_MESSAGE)
    if done == str(child.REFUSED).encode():
        message = read_start(folder / child.ERROR, _MAX_MESSAGE)
        if message:
            raise LoadError(message.decode(errors="replace"))
        raise end_error(child.REFUSED, output, name, limits)
    if done in {str(code).encode() for code in (child.NO_MEMORY, child.TOO_LARGE)}:
        raise end_error(int(done), output, name, limits)
    if done != str(child.READ).encode():
        if code == 0 and _has_run(folder, limits):
            code = None  # where SIGCHLD is ignored, the system does not tell
        if code is None and not (folder / child.STARTED).exists():
            raise _start_error(name)
        raise end_error(code, output, name, limits)


def _has_run(folder: Path, limits: Limits) -> bool:
    """Return whether the child has begun to read, and used up its time."""
    try:
        began = (folder / child.STARTED).stat().st_mtime
    except OSError:
        return False
    return time.time() - began >= limits.time


def _start_error(name: str) -> LoadError:
    return LoadError.build(
        file=name,
        expected="a process that starts within the time limit",
        found="one that is still starting",
        advice="The machine is busy: try again, or pass a larger `time_limit`.",
    )


def end_error(code: int | None, output: str, name: str, limits: Limits) -> LoadError:
    """Return the error for a limit that the child reached, or for its crash.

    `code` is the exit code, or minus the signal; None for the time limit.
    """
    signals = {item.value: item.name for item in signal.Signals}
    ended = signals.get(-(code or 0), f"exit code {code}")
    last = printable((output.strip().splitlines() or ["no message"])[-1])
    expected = "a file that can be read"
    found = f"one that ended the process that read it: {ended}, {last:.200}"
    advice = "It is damaged, or made to make a library crash."
    if code is None or ended in {"SIGXCPU", "SIGALRM"}:
        expected = f"a file that can be read in {limits.time:g} s"
        found = "one that takes longer"
        advice = "If you trust it, pass a larger `time_limit`."
    elif code == child.TOO_LARGE:
        expected = (
            f"a batch of at most {limits.memory / 4:g} GB, a quarter of `memory_limit`"
        )
        found = "a larger one, or one that takes far more memory than its file to read"
        advice = "If you trust it, pass a larger `memory_limit`, or load it without"
        advice += " `untrusted`."
    elif (
        code == child.NO_MEMORY or ended == "SIGKILL" or child.MEMORY_WORDS.search(last)
    ):
        expected = f"a file that can be read in {limits.memory:g} GB of memory"
        found = "one that needs more"
        advice = "If you trust it, pass a larger `memory_limit`."
    return LoadError.build(file=name, expected=expected, found=found, advice=advice)


def _read_answer(
    folder: Path, name: str, limits: Limits, most: int, room: int, tokenizer: object
) -> Batch:
    try:
        return read_answer(folder, most=most, room=room, tokenizer=tokenizer)
    except TooLargeError as error:
        raise end_error(child.TOO_LARGE, "", name, limits) from error
    except LoadError as error:
        message = f"{name}: {error}"
        raise LoadError(message) from error
