"""`load(..., untrusted=True)`: read a file in a child process with limits.

The child reads the file, decodes every screenshot and the text of every token, and
writes the batch as our own Parquet file, which is all that the parent reads. If a
library crashes, only the child ends, and the parent raises a LoadError.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rounddiag.errors import BatchError, LoadError, RounddiagError
from rounddiag.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.batch import Batch
    from rounddiag.vision import EncodedScreenshot, Screenshot


_REQUEST, _ERROR = "request.json", "error.txt"  # names of files in the folder
_BATCH, _TOKENS = "batch.parquet", "tokens.json"
_REFUSED, _NO_MEMORY = 3, 4  # exit codes of the child
_START = 300  # seconds that starting the child may take on a busy machine
_PAUSE = 0.2  # seconds between two checks of the child's memory, on macOS
_MAX_MESSAGE = 4000  # bytes
_GB = 10**9
# A byte of JSON becomes up to 30 bytes of objects and is slow to decode, so it counts
# as this many bytes of memory.
_BYTES_PER_JSON_BYTE = 100
# One thread, because each reserves address space. Arrow's own allocators reserve 1 GB.
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "ARROW_IO_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Messages of libraries that run out of memory, in exceptions or before they abort.
_MEMORY_WORDS = re.compile(
    r"allocat|bad_alloc|out of memory|malloc of size|can't start new thread",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the process that reads a file.

    Attributes
    ----------
    memory : float
        Address space in GB, in addition to that of the libraries.
    time : float
        Seconds, of wall-clock and of processor time each.
    """

    memory: float
    time: float

    @property
    def num_bytes(self) -> int:
        """The memory in bytes."""
        return int(self.memory * _GB)


def load_untrusted(path: object, limits: Limits, options: Mapping[str, Any]) -> Batch:
    """Read a file in a child process.

    Parameters
    ----------
    path : path-like
    limits : Limits
    options : mapping
        The arguments of `load` other than `path` and the limits.

    Returns
    -------
    Batch
        With screenshots as small JPEGs in memory, and a `TokenTable` in place of the
        tokenizer.

    Raises
    ------
    LoadError
        If the file cannot be read, a limit is reached, or a library crashes.
    """
    if not isinstance(path, str | os.PathLike):
        raise LoadError.build(
            key="untrusted",
            expected="the path of a file",
            found=f"a {type(path).__name__}",
            advice="Leave `untrusted` out: data in memory is read already.",
        )
    has_limits = importlib.util.find_spec("resource") is not None
    if sys.platform not in {"linux", "darwin"} or not has_limits:
        raise LoadError.build(
            key="untrusted",
            expected="Linux or macOS, where the limits of a process can be set",
            found=sys.platform if has_limits else f"{sys.platform} without `resource`",
            advice="Open the file on such a machine, or in a virtual machine.",
        )
    with tempfile.TemporaryDirectory(prefix="rounddiag-") as name:
        folder = Path(name)
        request = {
            "path": os.fsdecode(path),
            "folder": str(Path.cwd()),
            "limits": asdict(limits),
            "options": options,
        }
        (folder / _REQUEST).write_text(json.dumps(request, default=_plain))
        code, output = run_child(folder, limits)
        if code == _REFUSED:
            raise LoadError(_read_start(folder / _ERROR))
        if code:
            raise _child_error(code, output, path, limits)
        return _read_answer(folder, path, limits)


def _plain(value: Any) -> Any:  # noqa: ANN401 of numpy, a mapping or a path
    """Return an option as a value that JSON can represent."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else list(value)


def run_child(folder: Path, limits: Limits) -> tuple[int, str]:
    """Run `main` in a new process.

    Returns
    -------
    code : int
        The exit code; negative for the signal that ended it.
    output : str
        The end of what it wrote on standard error.
    """
    # Neither the file's folder nor the working directory is searched for modules.
    search = [*filter(None, sys.path), str(Path(__file__).parents[2])]
    with subprocess.Popen(  # noqa: S603 our own code
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(search)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            output = _wait_for_output(process, limits)
        finally:
            process.kill()
    return process.returncode, output.decode(errors="replace")[-_MAX_MESSAGE:]


def _wait_for_output(process: subprocess.Popen[bytes], limits: Limits) -> bytes:
    """Wait for the child. On macOS, which has no memory limit, watch its memory."""
    is_watched = sys.platform == "darwin"
    waited, end = 0.0, _START + 2 * limits.time
    while waited < end:
        pause = _PAUSE if is_watched else end
        try:
            return process.communicate(timeout=pause)[1]
        except subprocess.TimeoutExpired:
            waited += pause
        if is_watched and _resident_bytes(process.pid) > limits.num_bytes:
            break
    return b""


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 our own
    return 1024 * int(done.stdout.strip() or 0)


def _read_start(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(_MAX_MESSAGE).decode(errors="replace")


def _child_error(code: int, output: str, path: object, limits: Limits) -> LoadError:
    """Return the error for a limit that the child reached, or for its crash."""
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    last = printable((output.strip().splitlines() or ["no message"])[-1])
    expected = "a file that can be read"
    found = f"one that ended the process that read it: {name}, {last:.200}"
    advice = "It is damaged, or made to make a library crash."
    if name in {"SIGXCPU", "SIGALRM"}:
        expected = f"a file that can be read in {limits.time:g} s"
        found = "one that takes longer"
        advice = "If you trust it, pass a larger `time_limit`."
    elif code == _NO_MEMORY or name == "SIGKILL" or _MEMORY_WORDS.search(last):
        expected = f"a file that can be read in {limits.memory:g} GB of memory"
        found = "one that needs more"
        advice = "If you trust it, pass a larger `memory_limit`."
    return LoadError.build(file=path, expected=expected, found=found, advice=advice)


def _read_answer(folder: Path, path: object, limits: Limits) -> Batch:
    """Check the size of what the child wrote, and read it."""
    import pyarrow.parquet as pq

    from rounddiag.loaders.parquet import load_parquet
    from rounddiag.loaders.parquet.columns import json_size
    from rounddiag.loaders.parquet.screenshots import COLUMN
    from rounddiag.text.token_table import TokenTable

    file, tokens = folder / _BATCH, folder / _TOKENS
    metadata = pq.read_metadata(file)
    sizes = [
        metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)
    ]
    json_bytes = json_size(file) + metadata.serialized_size
    if max(sum(sizes), _BYTES_PER_JSON_BYTE * json_bytes) > limits.num_bytes:
        raise _child_error(_NO_MEMORY, "", path, limits)
    batch = load_parquet(file)
    images = batch.images
    if images is not None:
        rows = pq.read_table(file, columns=[COLUMN])[COLUMN].to_pylist()
        images = tuple(
            tuple(
                _encode(shot, cell["bytes"]) for shot, cell in zip(*pair, strict=True)
            )
            for pair in zip(images, rows, strict=True)
        )
    table = TokenTable.from_json(tokens.read_text()) if tokens.exists() else None
    return replace(batch, images=images, tokenizer=table, meta=batch.meta["meta"])


def _encode(shot: Screenshot, data: bytes) -> EncodedScreenshot:
    from rounddiag.vision import EncodedScreenshot

    return EncodedScreenshot(
        data=data, round=shot.round, position=shot.position, seen_size=shot.seen_size
    )


def main() -> None:
    """Read the file of the request in the working directory, under limits."""
    # Imported before the limits are set; the working directory changes below.
    sys.path[:] = [entry for entry in sys.path if entry]
    import rounddiag.loaders.tabular.arrow
    import rounddiag.text.token_table  # noqa: F401

    sys.exit(read_request(Path.cwd()))


def read_request(folder: Path) -> int:
    """Read the requested file under limits and write its batch; runs in the child.

    Parameters
    ----------
    folder : Path
        Holds the request; the answer is written there.

    Returns
    -------
    int
        The exit code.
    """
    request = json.loads((folder / _REQUEST).read_text())
    os.chdir(request["folder"])
    _set_limits(Limits(**request["limits"]))
    return _answer(folder, request)


def _set_limits(limits: Limits) -> None:
    """Limit memory, file sizes and time of this process, beyond what it has used."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    with contextlib.suppress(OSError, ValueError):  # macOS has no such limit
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + limits.num_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    cpu = ceil(used.ru_utime + used.ru_stime + limits.time)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.num_bytes, limits.num_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, limits.time)  # its signal ends the process


def _answer(folder: Path, request: Mapping[str, Any]) -> int:
    """Write the batch, or the error message; return the exit code."""
    try:
        _write_batch(folder, request)
    except (RounddiagError, MemoryError, OSError) as error:
        if any(map(_is_memory_error, _causes(error))):
            return _NO_MEMORY
        (folder / _ERROR).write_bytes(str(error).encode(errors="backslashreplace"))
        return _REFUSED
    return 0


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_memory_error(error: BaseException) -> bool:
    is_other = isinstance(error, RuntimeError | OSError)
    says_so = is_other and _MEMORY_WORDS.search(str(error)) is not None
    return isinstance(error, MemoryError) or says_so


def _write_batch(folder: Path, request: Mapping[str, Any]) -> None:
    from rounddiag.loaders.open import read_batch
    from rounddiag.loaders.parquet import save
    from rounddiag.text.token_table import TokenTable

    batch = read_batch(request["path"], **request["options"])
    if batch.tokenizer is not None:
        fields = (batch.response_ids, batch.prompt_ids, *(batch.rollout_ids or ()))
        ids = {i for field in fields if field is not None for i in field.tolist()}
        try:
            table = TokenTable.from_tokenizer(batch.tokenizer, ids)
        except BatchError as error:  # it does not name the file
            message = f"{request['path']}: {error}"
            raise LoadError(message) from error
        (folder / _TOKENS).write_text(table.to_json(), encoding="ascii")
    images = batch.images
    if images is not None:
        images = tuple(tuple(map(_as_small_jpeg, row)) for row in images)
    # Nested, because saving and loading change `meta["source"]`.
    nested = {"meta": dict(batch.meta)}
    plain = replace(batch, images=images, tokenizer=None, meta=nested)
    save(plain, folder / _BATCH)


def _as_small_jpeg(shot: Screenshot) -> EncodedScreenshot:
    """Return a screenshot as a small JPEG; without data if it cannot be decoded."""
    try:
        sized = replace(shot, seen_size=shot.seen_size or shot.size)
        return _encode(sized, shot.small_jpeg())
    except RounddiagError:
        return _encode(shot, b"")
