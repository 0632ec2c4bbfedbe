"""What runs in the child: read the file of the request, under limits.

The last file that it writes says how it ended: exit codes are lost where the parent
ignores SIGCHLD, and a process can be ended at any time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rounddiag.checks import with_check_results
from rounddiag.errors import BatchError, LoadError, RounddiagError
from rounddiag.loaders.untrusted.answer import (
    TooLargeError,
    room_beside,
    write_answer,
)
from rounddiag.loaders.untrusted.limits import Limits, set_limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rounddiag.batch import Batch
    from rounddiag.text.token_table import TokenTable
    from rounddiag.vision import EncodedScreenshot, Screenshot


REQUEST, STARTED, ERROR, DONE = "request.json", "started", "error.txt", "done"
READ, REFUSED, NO_MEMORY, TOO_LARGE = 0, 3, 4, 5  # exit codes, also in the file `done`
_ORPHANED = 6
_SET_DEATH_SIGNAL = 1  # of `prctl`
# Messages of libraries that run out of memory, in exceptions or before they abort.
MEMORY_WORDS = re.compile(
    r"allocat|bad_alloc|out of memory|malloc of size|can't start new thread",
    re.IGNORECASE,
)


def main() -> None:
    """Read the file of the request in the working directory, under limits."""
    sys.path[:] = [entry for entry in sys.path if entry]
    folder = Path.cwd()
    request = json.loads((folder / REQUEST).read_text())
    _end_with(request["parent"])
    # Imported before the limits are set; the working directory changes below.
    import rounddiag.loaders.arrow
    import rounddiag.text.token_table  # noqa: F401

    sys.exit(read_request(folder))


def _end_with(parent: int) -> None:
    """Let the system end this process with its parent, where it can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_ORPHANED)


def read_request(folder: Path) -> int:
    """Read the requested file under limits, and write its batch."""
    request = json.loads((folder / REQUEST).read_text())
    os.chdir(request["folder"])
    limits = Limits(**request["limits"])
    set_limits(limits)
    (folder / STARTED).touch()
    code = _answer(folder, request, limits)
    (folder / DONE).write_text(str(code))
    return code


def _answer(folder: Path, request: Mapping[str, Any], limits: Limits) -> int:
    """Write the batch, or the error message; return the exit code."""
    try:
        batch = _read_batch(request)
        room = room_beside(request["num_bytes"])
        write_answer(folder, batch, most=limits.batch_bytes, room=room)
    except TooLargeError:
        return TOO_LARGE
    except (RounddiagError, MemoryError, OSError) as error:
        causes = [*_causes(error)]
        if any(map(_is_memory_error, causes)):
            return NO_MEMORY
        if any(_has_number(one, errno.EFBIG) for one in causes):
            return TOO_LARGE
        text = str(error)
        if any(_has_number(one, errno.ENOSPC) for one in causes):
            text = f"{folder.parent}: {os.strerror(errno.ENOSPC)}"
        (folder / ERROR).write_bytes(text.encode(errors="backslashreplace"))
        return REFUSED
    return READ


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_memory_error(error: BaseException) -> bool:
    is_other = isinstance(error, RuntimeError | OSError)
    says_so = is_other and MEMORY_WORDS.search(str(error)) is not None
    return isinstance(error, MemoryError) or says_so


def _has_number(error: BaseException, number: int) -> bool:
    """Return whether it is this error of the system; Arrow has it in its text."""
    is_own = isinstance(error, OSError) and error.errno == number
    return is_own or f"[errno {number}]" in str(error)


def _read_batch(request: Mapping[str, Any]) -> Batch:
    """Return the batch as it leaves this process: checked, with texts and pictures."""
    from rounddiag.loaders.open import read_batch

    batch = read_batch(request["path"], **request["options"])
    table = _token_table(batch, request["path"])
    batch = with_check_results(batch)
    images = batch.images
    if images is not None:
        images = tuple(tuple(map(_as_small_jpeg, row)) for row in images)
    return replace(batch, images=images, tokenizer=table)


def _token_table(batch: Batch, path: str) -> TokenTable | None:
    from rounddiag.text.token_table import TokenTable

    if batch.tokenizer is None:
        return None
    fields = (batch.response_ids, batch.prompt_ids, *(batch.rollout_ids or ()))
    ids = [field.unique() for field in fields if field is not None]
    try:
        return TokenTable.from_tokenizer(
            batch.tokenizer, torch.cat(ids).unique().tolist()
        )
    except BatchError as error:  # it does not name the file
        message = f"{path}: {error}"
        raise LoadError(message) from error


def _as_small_jpeg(shot: Screenshot) -> EncodedScreenshot:
    """Return a screenshot as a small JPEG; without data if it cannot be decoded."""
    from rounddiag.vision import EncodedScreenshot

    seen_size, data = shot.seen_size, b""
    with contextlib.suppress(RounddiagError):
        seen_size, data = seen_size or shot.size, shot.small_jpeg()
    return EncodedScreenshot(
        data=data, round=shot.round, position=shot.position, seen_size=seen_size
    )
