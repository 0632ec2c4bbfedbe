"""The parent of `load(untrusted=True)`: start the child, end it, read its answer.

What lies in the folder that both share counts as written by a stranger.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders.source import inside
from rounddiag.loaders.untrusted import child
from rounddiag.loaders.untrusted.child import Limits
from rounddiag.text.json_text import JsonError, parse_json
from rounddiag.text.token_table import TokenTable
from rounddiag.wording import printable

if TYPE_CHECKING:
    from rounddiag.loaders.parquet.reader import TableReader

# Seconds beyond the time limit: the child starts, and ends if it does not end itself.
_GRACE = 12
_PAUSE = 0.2  # seconds between two checks of the child's memory, on macOS
_CODE = (
    "from rounddiag.loaders.open import read_batch;"
    "from rounddiag.loaders.untrusted.child import read_in_child;"
    "read_in_child(read_batch)"
)
_MAX_TEXT = 1 << 16  # bytes of an answer without its batch, and of standard error
# One thread, because each reserves address space. Arrow's own allocators reserve 1 GB.
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "ARROW_IO_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    **dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


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
    request = {
        "path": name,
        "folder": str(Path.cwd()),
        "parent": os.getpid(),
        "limits": asdict(limits),
        "options": options,
    }
    try:
        with tempfile.TemporaryDirectory(
            prefix="rounddiag-untrusted-", ignore_cleanup_errors=True
        ) as place:
            folder = Path(place)
            (folder / child.REQUEST).write_text(json.dumps(request, default=_plain))
            code, output = run_child(folder, limits)
            _require_answer(folder, name, code, output, limits)
            return _read_answer(folder, name, limits, tokenizer)
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


def _plain(value: Any) -> Any:  # noqa: ANN401 of numpy, a mapping or a path
    if hasattr(value, "tolist"):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else list(value)


def run_child(folder: Path, limits: Limits) -> tuple[int | None, str]:
    """Run `child.read_in_child` in a new process, in the folder with its request.

    Returns its exit code, None at the time limit, and the end of its standard error.
    """
    # Neither the file's folder nor the working directory is searched for modules.
    search = [*filter(None, sys.path), str(Path(__file__).parents[3])]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 our own code
            [sys.executable, "-c", _CODE],
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(search)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
        try:
            code = _wait(process, limits)
        finally:
            process.kill()
            # With a timeout, it asks again and again. Without one, and where SIGCHLD is
            # ignored, the system waits until every child of this process has ended.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE)
        output.seek(max(output.seek(0, os.SEEK_END) - _MAX_TEXT, 0))
        return code, output.read(_MAX_TEXT).decode(errors="replace")


def _wait(process: subprocess.Popen[bytes], limits: Limits) -> int | None:
    """Wait for the child. On macOS, which has no memory limit, watch its memory."""
    is_watched = sys.platform == "darwin"
    end = monotonic() + limits.time + _GRACE
    while (left := end - monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=min(left, _PAUSE) if is_watched else left)
        if is_watched and resident_bytes(process.pid) > limits.num_bytes:
            return -signal.SIGKILL
    return None


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 our own
    return 1024 * int(done.stdout.strip() or 0)


def _require_answer(
    folder: Path, name: str, code: int | None, output: str, limits: Limits
) -> None:
    """Raise the error that ended the child, or that it wrote; else it has answered."""
    try:
        text = inside(folder, child.ANSWER, most_bytes=_MAX_TEXT).read_bytes()
        answer = parse_json(text, {"code": int, "message": str})
    except (LoadError, JsonError):
        # Where SIGCHLD is ignored, the system tells no exit code but 0.
        raise end_error(code or None, output, name, limits) from None
    if answer["code"] == child.REFUSED and answer["message"]:
        raise LoadError(*answer["message"].split("\n"))
    if answer["code"] != child.READ:
        raise end_error(answer["code"], output, name, limits)


def end_error(code: int | None, output: str, name: str, limits: Limits) -> LoadError:
    """Return the error for a limit that the child reached, or for its crash.

    `code` is the exit code, or minus the signal; None for the time limit.
    """
    signals = {item.value: item.name for item in signal.Signals}
    ended = signals.get(-(code or 0), f"exit code {code}")
    last = printable((output.strip().splitlines() or ["no message"])[-1])
    expected = "a file that can be read"
    fault = f"one that ended the process that read it: {ended}, {last:.200}"
    advice = "It is damaged, or made to make a library crash."
    if code is None or ended in {"SIGXCPU", "SIGALRM"}:
        expected = f"a file that can be read in {limits.time:g} s"
        fault = "one that takes longer"
        advice = "If you trust it, pass a larger `time_limit`."
    elif code == child.TOO_LARGE:
        expected = (
            f"a batch of at most {limits.memory / 4:g} GB, a quarter of `memory_limit`"
        )
        fault = "a larger one, or one that takes far more memory than its file to read"
        advice = "If you trust it, pass a larger `memory_limit`, or load it without"
        advice += " `untrusted`."
    elif (
        code == child.NO_MEMORY or ended == "SIGKILL" or child.MEMORY_WORDS.search(last)
    ):
        expected = f"a file that can be read in {limits.memory:g} GB of memory"
        fault = "one that needs more"
        advice = "If you trust it, pass a larger `memory_limit`."
    return LoadError.build(file=name, expected=expected, found=fault, advice=advice)


_PER_JSON_BYTE = 40  # bytes of objects that a byte of JSON becomes, at most


def _read_answer(
    folder: Path, name: str, limits: Limits, tokenizer: object | None
) -> Batch:
    from rounddiag.loaders.parquet.columns import BROKEN, TooLargeError, open_parquet

    limit = limits.batch_bytes
    try:
        file = inside(folder, child.BATCH, most_bytes=limit)
        with open_parquet(file, most_bytes=limit) as source:
            return _read_batch(source, limit, tokenizer)
    except TooLargeError as error:
        raise end_error(child.TOO_LARGE, "", name, limits) from error
    except (*BROKEN, RecursionError) as error:
        text = str(error).replace(str(folder), "its answer")
        raise LoadError.build(
            file=name,
            expected="the answer of the process that read it",
            found=f"{type(error).__name__}: {text[:200].rstrip('.')}",
            advice="It is damaged, or made to make a library write something else.",
        ) from error


def _read_batch(source: Any, limit: int, tokenizer: object | None) -> Batch:  # noqa: ANN401 pyarrow is imported late
    from rounddiag.batch import Batch
    from rounddiag.loaders.parquet.columns import TooLargeError
    from rounddiag.loaders.parquet.metadata import KEY, Footer
    from rounddiag.loaders.parquet.reader import TableReader, read_fields
    from rounddiag.loaders.parquet.screenshots import COLUMN, read_screenshots

    table, metadata = TableReader(source), source.schema_arrow.metadata
    if (
        _PER_JSON_BYTE * (len((metadata or {}).get(KEY, b"")) + _json_bytes(table))
        > limit
    ):
        raise TooLargeError
    footer = Footer.from_metadata(metadata)
    meta, tokens = footer.meta["meta"], footer.meta["tokens"]
    if not isinstance(meta, dict):
        raise TypeError(f"`meta` is a {type(meta).__name__}")
    return Batch(
        **read_fields(table),
        images=read_screenshots(table.parts) if COLUMN in table else None,
        step=footer.step,
        meta=meta,
        tokenizer=_token_table(tokens) if tokenizer is None else tokenizer,
    )


def _json_bytes(table: TableReader) -> int:
    from rounddiag.loaders.parquet.columns import is_json

    names = [name for name in table.names if is_json(table.field(name))]
    return sum(part.nbytes for part in table.parts(names))


def _token_table(tokens: str | None) -> TokenTable | None:
    from rounddiag.text.token_table import TokenTable

    return None if tokens is None else TokenTable.from_json(tokens)
