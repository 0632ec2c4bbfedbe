"""Files from strangers, read in a child process with limits."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from rounddiag import Batch
from rounddiag.cli import main
from rounddiag.core import sample_frame, token_frame
from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from rounddiag.loaders.untrusted import Limits, guard
from rounddiag.text import pieces, special_tokens
from rounddiag.text.token_table import TokenTable
from tests.batches import hand_batch
from tests.loaders.hostile_files import KINDS, json_cells, panicking, with_tokenizer

OURS = "sample_data/healthy.parquet"
VERL = "sample_data/image_window_verl.pkl"


def assert_same(read: Batch, expected: Batch) -> None:
    """Compare all but what `untrusted` changes."""
    pd.testing.assert_frame_equal(token_frame(read), token_frame(expected))
    pd.testing.assert_frame_equal(sample_frame(read), sample_frame(expected))
    assert read.meta == {**expected.meta, "opened_with": {"untrusted": True}}
    assert read.group_ids == expected.group_ids


@pytest.mark.slow
def test_a_child_process_returns_the_same_batch() -> None:
    read, expected = load(OURS, untrusted=True, time_limit=600), load(OURS)
    assert_same(read, expected)
    assert isinstance(read.tokenizer, TokenTable)
    ids = expected.require_ids().tolist()
    assert pieces(ids, read.tokenizer) == pieces(ids, expected.tokenizer)
    known = special_tokens(expected.tokenizer).items()
    assert special_tokens(read.tokenizer).items() <= known
    shot, original = read.images[0][0], expected.images[0][0]
    assert (shot.round, shot.position) == (original.round, original.position)
    assert shot.seen_size == original.size
    assert shot.image().format == "JPEG"


@pytest.mark.usefixtures("forked")
def test_a_file_of_a_framework_is_the_same_batch() -> None:
    assert_same(load(VERL, untrusted=True, time_limit=600), load(VERL))


@pytest.mark.usefixtures("forked")
def test_a_tokenizer_that_is_passed_is_used_in_the_parent() -> None:
    read = load(OURS, untrusted=True, tokenizer=lambda ids: "x" * len(ids))
    assert pieces([1, 2], read.tokenizer) == ["x", "x"]


@pytest.mark.usefixtures("forked")
def test_options_reach_the_child(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        load(OURS, untrusted=True, columns={"response_ids": "ids"})
    with pytest.raises(LoadError) as expected:
        load(OURS, columns={"response_ids": "ids"})
    assert str(caught.value) == str(expected.value)
    with pytest.raises(LoadError, match="found nothing"):
        load(tmp_path / "none.pkl", untrusted=True)


@pytest.mark.usefixtures("forked")
def test_a_screenshot_that_cannot_be_decoded_stays_child_errorable(
    tmp_path: Path,
) -> None:
    from rounddiag.vision import EncodedScreenshot

    path = tmp_path / "a.parquet"
    save(replace(hand_batch(), images=((EncodedScreenshot(data=b"x"),), (), ())), path)
    read = load(path, untrusted=True)
    with pytest.raises(LoadError, match="expected a picture"):
        read.images[0][0].image()


def test_data_in_memory_is_not_untrusted() -> None:
    message = (
        "`untrusted`: expected the path of a file; found a dict. Leave `untrusted` out:"
        " data in memory is read already."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load({}, untrusted=True)


def test_other_systems_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(LoadError, match=r"expected Linux or macOS.* found win32"):
        load(OURS, untrusted=True)


def test_a_python_without_limits_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> None:
        assert name == "resource"

    monkeypatch.setattr("importlib.util.find_spec", find)
    with pytest.raises(LoadError, match=r"found \w+ without `resource`\. Open"):
        load(OURS, untrusted=True)


def run_instead(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the child run other code."""
    start = subprocess.Popen

    def started(_: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return start([sys.executable, "-c", code], **options)

    monkeypatch.setattr(subprocess, "Popen", started)


def test_on_macos_a_child_that_holds_too_much_memory_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """macOS has no limit of address space: the parent watches the child's memory."""
    watched = []

    def resident_bytes(pid: int) -> int:
        watched.append(pid)
        return 10**9 if len(watched) == 3 else 10**6

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(guard, "_PAUSE", 0.01)
    monkeypatch.setattr(guard, "resident_bytes", resident_bytes)
    run_instead("import time; time.sleep(600)", monkeypatch)
    code, output = guard.run_child(tmp_path, Limits(memory=0.5, time=60))
    assert (code, output) == (-signal.SIGKILL, "")
    assert len(watched) == 3
    error = guard.end_error(code, output, "a.pkl", Limits(memory=0.5, time=60))
    assert "can be read in 0.5 GB of memory; found one that needs more" in str(error)


def test_on_macos_a_child_that_ends_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(guard, "resident_bytes", lambda _: 0)
    run_instead("import sys; sys.stderr.write('no'); sys.exit(3)", monkeypatch)
    assert guard.run_child(tmp_path, Limits(memory=1, time=9)) == (3, "no")


def test_the_memory_of_a_process_is_found() -> None:
    """`ps` is what macOS has; it ends with nothing for a process that is gone."""
    assert 10**7 < guard.resident_bytes(os.getpid()) < 10**11
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert guard.resident_bytes(gone.pid) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_without_a_limit_of_address_space_the_other_limits_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On macOS `/proc` is missing, and setting the limit fails."""
    set_limit = resource.setrlimit

    def refuse(kind: int, limits: tuple[int, int]) -> None:
        if kind == resource.RLIMIT_AS:
            msg = "current limit exceeds maximum limit"
            raise ValueError(msg)
        set_limit(kind, limits)

    def read(*_: object, **__: object) -> Any:
        resident_bytes = bytearray(10**9)  # more than the limit, which is not set
        assert len(resident_bytes) == 10**9
        assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 5 * 10**8 // 4
        assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
        assert resource.getrlimit(resource.RLIMIT_CPU)[0] <= 2
        signal.pause()

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr("rounddiag.loaders.open.read_batch", read)
    with pytest.raises(LoadError, match=r"in 1 s; found one that takes longer\."):
        load(OURS, untrusted=True, memory_limit=0.5, time_limit=1)


@pytest.mark.hostile
@pytest.mark.usefixtures("forked")
def test_cells_that_would_fill_the_parent_are_refused(tmp_path: Path) -> None:
    """Their text is 1.5 MB; as lists they would take 40."""
    path = tmp_path / "cells.parquet"
    json_cells(path, 0.5 / 30)
    assert load(path, untrusted=True, memory_limit=0.4).num_samples == 2
    with pytest.raises(LoadError, match=r"at most 0\.025 GB, .* found a larger"):
        load(path, untrusted=True, memory_limit=0.1)


def end_by(signal_number: int) -> None:
    os.kill(os.getpid(), signal_number)


def hang() -> None:
    while True:
        pass


def say(text: str) -> None:
    os.write(2, text.encode())
    os.abort()


ENDS: dict[str, tuple[Callable[[], object], str]] = {
    "crash": (
        partial(end_by, signal.SIGSEGV),
        "found one that ended the process that read it: SIGSEGV, no message. ",
    ),
    "abort with a message": (
        partial(say, "noise\npanic: \x1b[31mred\n"),
        r"read it: SIGABRT, panic: \\x1b\[31mred\. ",
    ),
    "abort without memory": (
        partial(say, "memory allocation of 9 bytes failed\n"),
        "can be read in 0.5 GB of memory; found one that needs more. ",
    ),
    "killed by the system": (
        partial(end_by, signal.SIGKILL),
        "can be read in 0.5 GB of memory; found one that needs more. ",
    ),
    "memory": (
        lambda: bytearray(10**9),
        "can be read in 0.5 GB of memory; found one that needs more. ",
    ),
    "tensor": (
        lambda: torch.zeros(10**9),
        "can be read in 0.5 GB of memory; found one that needs more. ",
    ),
    "hang": (hang, "can be read in 1 s; found one that takes longer. "),
    "exit": (lambda: os._exit(9), "read it: exit code 9, no message. "),
}


@pytest.mark.hostile
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("end", ENDS)
def test_the_error_says_how_the_child_ended(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, message = ENDS[end]

    def read(*_: object, **__: object) -> Any:
        try:
            act()
        except RuntimeError as error:  # as loaders do
            raise LoadError(str(error)) from error

    monkeypatch.setattr("rounddiag.loaders.open.read_batch", read)
    with pytest.raises(LoadError, match=message) as caught:
        load(OURS, untrusted=True, memory_limit=0.5, time_limit=1)
    assert str(caught.value).startswith(f"{OURS}: expected a file that can be read")


@pytest.mark.hostile
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_file_is_a_batch_or_a_load_error(kind: str, tmp_path: Path) -> None:
    name, write = KINDS[kind]
    write(tmp_path / name, 0.02)
    try:
        batch = load(tmp_path / name, untrusted=True, memory_limit=0.5, time_limit=1)
    except LoadError as error:
        assert "unexpected error" not in str(error)  # noqa: PT017 both are right
    else:
        assert batch.num_samples > 0


@pytest.mark.usefixtures("forked")
def test_a_tokenizer_that_fails_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with_tokenizer(path, panicking())
    message = f"^{path}: `tokenizer`: expected text for a list of ids; found Panic"
    with pytest.raises(LoadError, match=message):
        load(path, untrusted=True)


def test_the_command_line_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "a.pkl"
    file.write_bytes(b"\x80\x04N.")
    options = []

    def record(*_: object, **chosen: object) -> Any:
        options.append(chosen)
        msg = "refused"
        raise LoadError(msg)

    monkeypatch.setattr("rounddiag.loaders.load", record)
    for command in ("summary", "check", "report"):
        assert main([command, str(file), "--untrusted"]) > 0
    others = dict.fromkeys(("sample_by", "order_by", "tokenizer"))
    assert options == [{**others, "untrusted": True}] * 3
    assert capsys.readouterr().err == "rounddiag: refused\n" * 3


def test_a_character_over_two_tokens_is_whole() -> None:
    """Byte-level tokens: `Ã` and `©` are the two bytes of é."""

    class ByteLevel:
        def id_to_token(self, token_id: int) -> str:
            return "Ã©"[token_id]

        def decode(self, ids: list[int], **_: bool) -> str:
            return bytes(b"\xc3\xa9"[i] for i in ids).decode(errors="replace")

    table = TokenTable.from_tokenizer(ByteLevel(), [0, 1])
    assert table.tokens == {0: b"\xc3", 1: b"\xa9"}
    assert pieces([0, 1, 7], TokenTable.from_json(table.to_json())) == ["é", "", "⟨7⟩"]
