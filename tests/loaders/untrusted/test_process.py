"""How the child is started, limited, waited for and ended, whatever its parent does."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from rounddiag.loaders.untrusted import Limits, child, guard
from tests.batches import hand_batch
from tests.fuzz.forked import run_forked
from tests.loaders.untrusted.children import end_of, fork, run_code

OURS = "sample_data/healthy.parquet"
LIMITS = Limits(memory=0.5, time=1)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, of this test alone."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@contextmanager
def ignoring(number: int) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


HANG = "import time; time.sleep(600)"
ENDS = {
    "hangs": (HANG, "in 1 s; found one that takes longer. "),
    "is ended by its alarm": (
        "import signal; signal.alarm(1); signal.pause()",
        "in 1 s; found one that takes longer. ",
    ),
    "crashes": (
        "import os; os.abort()",
        "(ended the process that read it: SIGABRT, no message|takes longer). ",
    ),
    "saves nothing": (
        """open('answer.json', 'w').write('{"code": 0, "message": ""}')""",
        "the answer of the process that read it; found LoadError: its answer: ",
    ),
    "refuses": (
        """open('answer.json', 'w').write('{"code": 3, "message": "expected it"}')""",
        "^expected it$",
    ),
    "needs memory": (
        """open('answer.json', 'w').write('{"code": 4, "message": ""}')""",
        "0.5 GB of memory; found one that needs more. ",
    ),
}


@pytest.mark.parametrize("hears", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_the_error_is_the_true_one_where_sigchld_is_ignored(
    end: str, *, hears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system then tells no exit code: the answer does, or it was the time."""
    code, message = ENDS[end]
    run_code(code, monkeypatch)
    monkeypatch.setattr(guard, "_GRACE", 0.5 if code == HANG else 6)
    with subprocess.Popen(["sleep", "600"]) as other:  # that no wait may wait for
        before = signal.getsignal(signal.SIGCHLD)
        signal.signal(signal.SIGCHLD, before if hears else signal.SIG_IGN)
        try:
            with pytest.raises(LoadError, match=message):
                load(OURS, untrusted=True, memory_limit=0.5, time_limit=1)
        finally:
            signal.signal(signal.SIGCHLD, before)
            other.kill()


def test_the_parent_waits_for_the_limit_and_a_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guard._GRACE < 15
    run_code(HANG, monkeypatch)
    monkeypatch.setattr(guard, "_GRACE", 0.5)
    start = time.monotonic()
    assert guard.run_child(tmp_path, Limits(memory=1, time=0.5)) == (None, "")
    assert 1 <= time.monotonic() - start < 30


def test_of_long_output_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_code("import os; os.write(2, b'x' * 10**7); os.write(2, b'end')", monkeypatch)
    code, output = guard.run_child(tmp_path, Limits(memory=1, time=60))
    assert (code, output) == (0, "x" * ((1 << 16) - 3) + "end")


def act_in_child(act: Callable[[], object]) -> Any:
    """Return what stands in for reading, and acts instead."""

    def read(*_: object, **__: object) -> Any:
        act()
        msg = "as expected"
        raise LoadError(msg)

    return read


def test_signals_that_the_parent_ignores_or_blocks_work_in_the_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = (signal.SIGALRM, signal.SIGXCPU)

    def check() -> None:
        assert all(signal.getsignal(number) == signal.SIG_DFL for number in numbers)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        assert hard == soft + 1

    monkeypatch.setattr("rounddiag.loaders.open.read_batch", act_in_child(check))
    monkeypatch.setattr(guard, "run_child", run_forked)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        with (
            ignoring(numbers[0]),
            ignoring(numbers[1]),
            pytest.raises(LoadError, match=r"^as expected$"),
        ):
            load(OURS, untrusted=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def test_a_file_may_be_as_large_as_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        assert resource.getrlimit(resource.RLIMIT_FSIZE) == (10**8, 10**8)
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr("rounddiag.loaders.open.read_batch", act_in_child(check))
    monkeypatch.setattr(guard, "run_child", run_forked)
    with pytest.raises(LoadError, match=r"of at most 0\.1 GB, .* found a larger one"):
        load(OURS, untrusted=True, memory_limit=0.4)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("Error writing bytes. Detail: [errno 28] No space left on device"),
    ],
)
def test_a_full_disk_is_named(
    error: OSError, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(child, "save_answer", fill)
    monkeypatch.setattr(guard, "run_child", run_forked)
    save(hand_batch(), temporary.parent / "a.parquet")
    with pytest.raises(LoadError) as caught:
        load(temporary.parent / "a.parquet", untrusted=True)
    assert str(caught.value) == f"{temporary}: No space left on device"


MISSING: dict[str, tuple[OSError, str]] = {
    "descriptors": (
        OSError(errno.EMFILE, "Too many open files"),
        "Too many open files",
    ),
    "processes": (BlockingIOError(errno.EAGAIN, "Try again"), "Try again"),
    "Python": (FileNotFoundError(errno.ENOENT, "No such", "/py"), r"No such \(/py\)"),
}


@pytest.mark.parametrize("kind", MISSING)
def test_what_keeps_the_child_from_starting_is_named(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, message = MISSING[kind]

    def start(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(LoadError, match=f"^{OURS}: expected a process .* {message}. "):
        load(OURS, untrusted=True)


def test_where_no_folder_can_be_made_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(LoadError, match=r"found No such file or directory \(.*/gone/"):
        load(OURS, untrusted=True)


def test_a_python_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(LoadError, match=r"expected a Python to start in `sys\.exec"):
        load(OURS, untrusted=True)


@pytest.mark.parametrize("name", ["memory", "time"])
@pytest.mark.parametrize(
    "value", [0, -1, float("inf"), float("nan"), None, "4", True, 1e300]
)
def test_limits_are_checked_before_anything_is_started(name: str, value: Any) -> None:
    message = f"`{name}_limit`: expected a number above 0 and up to 1,000,000; found "
    with pytest.raises(LoadError, match=f"^{re.escape(f'{message}{value!r}')}"):
        load("no such file", untrusted=True, **{f"{name}_limit": value})


def test_hard_limits_of_the_system_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may not raise them: trying would be an error."""
    known = {resource.RLIMIT_AS: 1000, resource.RLIMIT_CPU: 10}
    found: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (0, known[kind]))
    monkeypatch.setattr(resource, "setrlimit", found.__setitem__)
    child.lower(resource.RLIMIT_AS, 2000)
    child.lower(resource.RLIMIT_CPU, 60, more=1)
    assert found == {resource.RLIMIT_AS: (1000, 1000), resource.RLIMIT_CPU: (9, 10)}
    child.lower(resource.RLIMIT_CPU, 5, more=1)
    assert found[resource.RLIMIT_CPU] == (5, 6)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("suffix", [".parquet", ".pkl"])
def test_a_name_that_is_no_utf8(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff" + suffix.encode())
    if suffix == ".parquet":
        save(hand_batch(), tmp_path / "a.parquet")
        (tmp_path / "a.parquet").rename(path)
    else:
        path.write_bytes(Path("sample_data/image_window_verl.pkl").read_bytes())
    expected = load(path)
    assert load(path, untrusted=True).num_tokens == expected.num_tokens > 0


def test_the_folder_is_gone_whatever_happens(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(folder: Path, *_: object) -> None:
        (folder / "a").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(guard, "run_child", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(OURS, untrusted=True)
    assert [*temporary.iterdir()] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it")
def test_the_child_ends_with_its_parent() -> None:
    ours, theirs = os.pipe()

    def parent() -> None:
        own = os.getpid()

        def wait() -> None:
            child.end_with(own)
            os.write(theirs, b"ready")
            time.sleep(600)

        fork(wait)
        time.sleep(600)

    process_id = fork(parent)
    os.close(theirs)
    assert os.read(ours, 5) == b"ready"
    os.kill(process_id, signal.SIGKILL)
    assert os.read(ours, 1) == b""  # the child held the other end, too
    os.close(ours)
    assert end_of(process_id) == -signal.SIGKILL


def test_a_child_whose_parent_is_gone_already_ends() -> None:
    assert end_of(fork(lambda: child.end_with(os.getpid()))) == 6
