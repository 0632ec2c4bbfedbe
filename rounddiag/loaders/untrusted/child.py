"""The child of `load(untrusted=True)`: load under limits, weigh the batch, save it.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from math import ceil
from numbers import Real
from pathlib import Path

import torch

from rounddiag.batch import Batch
from rounddiag.errors import BatchError, LoadError, RounddiagError
from rounddiag.text.token_table import TokenTable
from rounddiag.vision import EncodedScreenshot, Screenshot

_GB = 10**9
_MOST = 1_000_000  # GB or seconds: a number that every system can represent
_SHARE = 4  # a batch may take one of so many parts of the memory


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the process that reads a file.

    Attributes
    ----------
    memory: Address space in GB, in addition to that of the libraries.
    time: Seconds, of wall-clock and of processor time each.
    """

    memory: float
    time: float

    def __post_init__(self) -> None:
        for name in ("memory", "time"):
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not (is_number and 0 < value <= _MOST):
                raise LoadError.build(
                    key=f"{name}_limit",
                    expected=f"a number above 0 and up to {_MOST:,}",
                    found=f"{value!r:.40}",
                    advice="Pass GB or seconds; the defaults are 4 and 60.",
                )
            object.__setattr__(self, name, float(value))

    @property
    def num_bytes(self) -> int:
        """The memory in bytes."""
        return int(self.memory * _GB)

    @property
    def batch_bytes(self) -> int:
        """What a batch may take, in memory and as a file."""
        return self.num_bytes // _SHARE


def set_limits(limits: Limits) -> None:
    """Limit memory, file sizes and time of this process, beyond what it has used.

    Signals that the parent ignored or blocked work again, those of the limits among
    them. Limits that the system has set already stay where they are lower.
    """
    import resource

    for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    used = resource.getrusage(resource.RUSAGE_SELF)
    with contextlib.suppress(OSError, ValueError):  # macOS has no such limit
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        lower(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.num_bytes)
    # The signal of the lower one says that it was the time; the upper one ends a
    # process that ignores it.
    cpu = ceil(used.ru_utime + used.ru_stime + limits.time)
    lower(resource.RLIMIT_CPU, cpu, more=1)
    lower(resource.RLIMIT_FSIZE, limits.batch_bytes)
    lower(resource.RLIMIT_CORE, 0)
    signal.setitimer(signal.ITIMER_REAL, limits.time)  # its signal ends the process


def lower(kind: int, limit: int, *, more: int = 0) -> None:
    """Set a soft limit, and a hard one that is higher by `more`."""
    import resource

    hard = limit + more
    _, known = resource.getrlimit(kind)
    if known != resource.RLIM_INFINITY:
        hard = min(hard, known)
    resource.setrlimit(kind, (max(hard - more, 0), hard))


REQUEST, ANSWER, BATCH = "request.json", "answer.json", "batch.parquet"
READ, REFUSED, NO_MEMORY, TOO_LARGE = 0, 3, 4, 5  # exit codes, also in the answer
_ORPHANED = 6
_SET_DEATH_SIGNAL = 1  # of `prctl`
_MAX_MESSAGE = 4000  # characters
# Messages of libraries that run out of memory, in exceptions or before they abort.
MEMORY_WORDS = re.compile(
    r"allocat|bad_alloc|out of memory|malloc of size|can't start new thread",
    re.IGNORECASE,
)


def read_in_child(read_batch: Callable[..., Batch]) -> None:
    """Read the file of the request in the working directory, under limits."""
    sys.path[:] = [entry for entry in sys.path if entry]
    folder = Path.cwd()
    end_with(json.loads((folder / REQUEST).read_text())["parent"])
    # Imported before the limits are set; the working directory changes below.
    import rounddiag.loaders.arrow
    import rounddiag.text.token_table  # noqa: F401

    sys.exit(read_request(folder, read_batch))


def end_with(parent: int) -> None:
    """Let the system end this process with its parent, where it can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_ORPHANED)


def read_request(folder: Path, read_batch: Callable[..., Batch]) -> int:
    """Read the requested file under limits, save its batch, and say how it ended."""
    request = json.loads((folder / REQUEST).read_text())
    os.chdir(request["folder"])
    limits = Limits(**request["limits"])
    set_limits(limits)
    code, message = READ, ""
    try:
        batch = read_batch(request["path"], **request["options"])
        save_answer(folder, _self_contained(batch, request["path"]), limits.batch_bytes)
    except (RounddiagError, MemoryError, OSError) as error:
        code, message = _failure(error, folder)
    answer = {"code": code, "message": message[:_MAX_MESSAGE]}
    (folder / ANSWER).write_text(json.dumps(answer), encoding="ascii")
    return code


def _failure(error: BaseException, folder: Path) -> tuple[int, str]:
    causes = [*_causes(error)]
    if any(map(_is_memory_error, causes)):
        return NO_MEMORY, ""
    if any(_has_number(cause, errno.EFBIG) for cause in causes):
        return TOO_LARGE, ""
    if any(_has_number(cause, errno.ENOSPC) for cause in causes):
        return REFUSED, f"{folder.parent}: {os.strerror(errno.ENOSPC)}"
    return REFUSED, str(error).encode(errors="backslashreplace").decode()


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


def _self_contained(batch: Batch, path: str) -> Batch:
    """Return a batch without what must not leave this process.

    Its tokenizer becomes the texts of its tokens, its screenshots small JPEGs.
    """
    table = _token_table(batch, path)
    images = batch.images
    if images is not None:
        images = tuple(tuple(map(_as_small_jpeg, row)) for row in images)
    tokens = None if table is None else table.to_json()
    # Nested, because saving and loading change `meta["source"]`.
    meta = {"meta": dict(batch.meta), "tokens": tokens}
    return replace(batch, images=images, tokenizer=None, meta=meta)


def _token_table(batch: Batch, path: str) -> TokenTable | None:
    from rounddiag.text.token_table import TokenTable

    if batch.tokenizer is None:
        return None
    rows = (batch.response_ids, batch.prompt_ids, *(batch.rollout_ids or ()))
    ids = torch.cat([row.unique() for row in rows if row is not None]).unique()
    try:
        return TokenTable.from_tokenizer(batch.tokenizer, ids.tolist())
    except BatchError as error:  # it does not name the file
        message = f"{path}: {error}"
        raise LoadError(message) from error


def _as_small_jpeg(shot: Screenshot) -> EncodedScreenshot:
    seen_size, data = shot.seen_size, b""
    with contextlib.suppress(RounddiagError):
        seen_size, data = seen_size or shot.size, shot.small_jpeg()
    return EncodedScreenshot(
        data=data, round=shot.round, position=shot.position, seen_size=seen_size
    )


def save_answer(folder: Path, batch: Batch, limit: int) -> None:
    """Save a batch that takes at most so many bytes."""
    from rounddiag.loaders.parquet import save

    if batch_bytes(batch) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    save(batch, folder / BATCH)


# Bytes of objects, measured on CPython 3.11: a tensor of a row or a screenshot, the
# four numbers of a round, and a list of one value, while Arrow reads its column.
_OBJECT, _ROUND, _LIST = 400, 32, 58


def batch_bytes(batch: Batch) -> int:
    """Return about how many bytes a batch takes, without objects that become JSON."""
    rows = [*(batch.position_ids or ()), *(batch.rollout_ids or ())]
    flat = [getattr(batch, entry.name) for entry in fields(batch)]
    tensors = [value for value in flat if isinstance(value, torch.Tensor)]
    tables = [*batch.scores.values(), *batch.token_columns.values()]
    arrays = [*batch.sample_columns.values(), *batch.round_columns.values()]
    texts = [*(batch.sample_ids or ()), *(batch.group_ids or ())]
    texts += [
        v for array in arrays if array.dtype == object for v in array.ravel().tolist()
    ]
    shots = [shot for row in batch.images or () for shot in row]
    return (
        sum(values.nbytes for values in (*tensors, *tables, *rows))
        + sum(array.nbytes for array in arrays)
        + sum(map(sys.getsizeof, texts))
        + sum(len(shot.data) for shot in shots if isinstance(shot, EncodedScreenshot))
        + _OBJECT * (len(rows) + len(shots))
        + _ROUND * batch.num_rounds
        + _LIST * len(batch)
    )
