from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rounddiag.capture.writer import Writer
from tests.capture.conftest import SUPPRESSED


class Gate:
    """A job that has begun, and ends when the test is over or opens it."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.begun.set()
        self.opened.wait(timeout=60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def test_jobs_run_in_their_order_before_closing_returns() -> None:
    writer, done = Writer(), []
    writer.put("first", lambda: done.append(1))
    writer.put("second", lambda: done.append(2))
    writer.close()
    assert done == [1, 2]


def test_a_full_queue_drops_and_counts(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    writer, done = Writer(), []
    writer.put("step 0", gate.wait)
    gate.begun.wait(timeout=60)
    for step in range(1, 6):
        writer.put(f"step {step}", lambda step=step: done.append(step))  # type: ignore[misc]
    gate.opened.set()
    writer.close()
    assert done == [1, 2]
    assert writer.dropped == 3
    assert caplog.messages == [
        "step 3 was not saved: 2 other steps are waiting; further warnings are"
        " suppressed"
    ]


def test_a_job_takes_the_place_of_one_of_its_name_that_waits(gate: Gate) -> None:
    writer, done = Writer(), []
    writer.put("step 0", gate.wait)
    gate.begun.wait(timeout=60)
    for name, number in (("step 0", 1), ("step 1", 2), ("step 0", 3), ("step 1", 4)):
        writer.put(name, lambda number=number: done.append(number))  # type: ignore[misc]
    gate.opened.set()
    writer.close()
    assert done == [3, 4]
    assert writer.dropped == 0


def test_the_first_error_of_a_kind_is_logged_and_all_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = Writer()

    def fail(error: Exception) -> None:
        raise error

    full = OSError(28, "No space left on device")
    for error in (full, full, MemoryError("17 GB")):
        writer.put("step 7", lambda error=error: fail(error))  # type: ignore[misc]
        writer.close()
    assert writer.errors == 3
    assert caplog.record_tuples == [
        (
            "rounddiag.capture",
            logging.WARNING,
            f"step 7 was not saved: {text} {SUPPRESSED}",
        )
        for text in (
            "OSError: [Errno 28] No space left on device",
            "MemoryError: 17 GB",
        )
    ]


@pytest.mark.parametrize("num_waiting", [0, 2])
def test_closing_waits_no_longer_than_it_may(
    num_waiting: int, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer()
    writer.put("step 0", gate.wait)
    gate.begun.wait(timeout=60)
    for step in range(num_waiting):
        writer.put(f"step {step}", gate.wait)
    writer.close(timeout=0.01)
    assert caplog.messages == ["gave up on the pending steps after 0.01 s"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_a_thread_of_its_own(gate: Gate, tmp_path: Path) -> None:
    writer = Writer()

    def note(name: str) -> None:
        (tmp_path / f"{name} {os.getpid()}").touch()

    def child() -> None:
        writer.close()  # nothing here is the child's to wait for
        writer.put("child", lambda: note("child"))
        writer.close()

    writer.put("parent", gate.wait)
    gate.begun.wait(timeout=60)
    writer.put("waiting", lambda: note("parent"))
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(timeout=60)
    assert process.exitcode == 0
    gate.opened.set()
    writer.close()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"child {process.pid}", f"parent {os.getpid()}"}


def test_a_name_is_left_out_once_and_no_more_when_it_is_taken(gate: Gate) -> None:
    writer = Writer()
    writer.put("step 0", gate.wait)
    gate.begun.wait(timeout=60)
    for name in ("step 1", "step 2", "step 3", "step 3", "step 4"):
        writer.put(name, lambda: None)
    assert writer.dropped == 2
    gate.opened.set()
    writer.close()
    writer.put("step 3", lambda: None)
    writer.close()
    assert writer.dropped == 1


def test_where_no_thread_starts_closing_is_quiet_and_later_jobs_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    writer, done = Writer(), []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with writer.guard("step 0"):
            writer.put("step 0", lambda: done.append(0))
        writer.close()
    with writer.guard("step 10"):
        writer.put("step 10", lambda: done.append(10))
    writer.close()
    assert done == [10]
    assert (writer.errors, writer.num_done) == (1, 1)
    assert caplog.messages == [
        f"step 0 was not saved: RuntimeError: can't start new thread {SUPPRESSED}"
    ]


def test_an_error_whose_text_cannot_be_made_is_not_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            msg = "no text"
            raise ValueError(msg)

    writer = Writer()
    with writer.guard("step 0"):
        raise MuteError
    assert writer.errors == 1
    assert caplog.messages == [
        f"step 0 was not saved: MuteError, whose message cannot be read {SUPPRESSED}"
    ]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_job_that_would_end_the_thread_is_an_error_and_later_jobs_run(
    end: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    writer, done = Writer(), []

    def leave() -> None:
        raise end(2)

    writer.put("step 0", leave)
    writer.put("step 10", lambda: done.append(10))
    writer.close()
    assert done == [10]
    assert (writer.errors, writer.num_done) == (1, 1)
    assert caplog.messages == [f"step 0 was not saved: {end.__name__}: 2 {SUPPRESSED}"]


def test_a_guard_lets_the_trainer_be_interrupted() -> None:
    writer = Writer()
    with pytest.raises(KeyboardInterrupt), writer.guard("step", 0):
        raise KeyboardInterrupt
    assert writer.errors == 0
