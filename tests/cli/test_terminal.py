"""On a terminal, lines wrap and verdicts have a colour and a sign; not in a pipe."""

from __future__ import annotations

import io
from typing import get_args

import pytest

from rounddiag.cli.terminal import _WORDS, announced, print_text
from rounddiag.findings.verdict import Verdict

TEXT = (
    "broken: 74 tokens differ.\n"
    "      0.93   98 %  image_window: from round 2 on, in 26 of 64 samples\n"
    "failed: a\x1b[1mb"
)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what `print_text` writes to a terminal of 44 columns."""
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", terminal)
        patch.setenv("COLUMNS", "44")
        patch.setenv("TERM", "xterm-256color")
        print_text(text)
    return terminal.getvalue()


def test_a_pipe_gets_the_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    print_text(TEXT)
    assert capsys.readouterr().out == TEXT.replace("\x1b", r"\x1b") + "\n"


def test_a_terminal_gets_signs_and_wrapped_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert printed(TEXT, monkeypatch) == (
        "\x1b[1;31m✗ broken\x1b[0m: 74 tokens differ.\n"
        "      0.93   98 %  image_window: from round\n"
        "                   2 on, in 26 of 64 samples\n"
        "\x1b[1;31m✗ failed\x1b[0m: a\\x1b[1mb\n"
    )


def test_a_line_is_there_while_something_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with announced("judging a\x1bb ..."):
        pass
    assert capsys.readouterr().err == ""  # a pipe gets nothing
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with announced("judging a\x1bb ..."):
        assert terminal.getvalue() == r"judging a\x1bb ..."
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_signs_need_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = "healthy: noise\nhealthy.parquet is its file"
    assert printed(text, monkeypatch) == f"✓ {text}\n"


def test_markup_of_a_file_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[bold]a[/bold] :smile: \U0001f600"
    assert printed(text, monkeypatch) == f"{text}\n"


def test_every_verdict_has_a_sign() -> None:
    assert {*get_args(Verdict)} <= {*_WORDS}
