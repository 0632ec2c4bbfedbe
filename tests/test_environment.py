"""`notebooks/open` and `tests/run`: their messages, exit codes and side effects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout that has the scripts, and no environment."""
    made = tmp_path / "checkout"
    for name in ("notebooks/open", "tests/environment", "tests/run"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, made / name)
    return made


def run_open(checkout: Path, *arguments: str) -> tuple[int, str, str]:
    """Run `notebooks/open`, and return its exit code and what it printed."""
    done = subprocess.run(
        [checkout / "notebooks" / "open", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "/theirs"},
    )
    return done.returncode, done.stdout, done.stderr


def environment_at(folder: Path) -> None:
    """Make what looks like an environment: its `rounddiag` tells how it was run."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    command = folder / "bin" / "rounddiag"
    command.write_text('#!/bin/sh\necho "$PYTHONPATH"\necho "$@"\n')
    command.chmod(0o755)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["a.parquet", "--help"]])
def test_help_is_printed_and_nothing_is_made(
    checkout: Path, arguments: list[str]
) -> None:
    assert run_open(checkout, *arguments) == (
        0,
        "Opens JupyterLab at the first notebook, or at a notebook that loads FILE:\n"
        "\n"
        "  ./notebooks/open [FILE] [--tokenizer PATH] [--remote]"
        " [-- JUPYTER ARGUMENTS]\n"
        "\n"
        "The first start creates .venv; later ones install nothing. --remote opens no\n"
        "browser and prints how to connect. PYTHON=... selects the interpreter.\n",
        "",
    )
    assert not (checkout / ".venv").exists()


def test_an_environment_elsewhere_is_used_as_it_is(
    checkout: Path, tmp_path: Path
) -> None:
    theirs, venv = tmp_path / "theirs", checkout / ".venv"
    environment_at(theirs)
    venv.symlink_to(theirs)
    before = sorted(theirs.rglob("*"))
    assert run_open(checkout, "a.parquet", "--", "--help") == (
        0,
        f"{checkout}:/theirs\nlab a.parquet -- --help\n",
        f"rounddiag: uses {theirs} as it is: {venv} is a link. Nothing is installed.\n",
    )
    assert sorted(theirs.rglob("*")) == before


def test_a_link_to_no_environment_is_refused_in_one_line(
    checkout: Path, tmp_path: Path
) -> None:
    theirs, venv = tmp_path / "theirs", checkout / ".venv"
    venv.symlink_to(theirs)
    assert run_open(checkout) == (
        1,
        "",
        f"rounddiag: {venv} is a link to {theirs}, where no rounddiag is installed."
        " Remove the link and start again.\n",
    )
    assert not theirs.exists()


@pytest.mark.parametrize(
    ("failing", "code"), [("", 0), ("ruff", 1), ("tsc", 1), ("mypy", 1), ("pytest", 1)]
)
def test_the_checks_fail_exactly_when_one_of_them_fails(
    checkout: Path, tmp_path: Path, failing: str, code: int
) -> None:
    theirs = tmp_path / "theirs"
    environment_at(theirs)
    python = theirs / "bin" / "python"
    python.unlink()
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] || echo "$2"\n[ "$2" != "{failing}" ]\n'
    )
    compiler = theirs / "typescript" / "node_modules" / ".bin" / "tsc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(f'#!/bin/sh\necho tsc\n[ tsc != "{failing}" ]\n')
    npm = tmp_path / "npm"  # where there is one, the compiler is used
    npm.touch()
    for file in (python, compiler, npm):
        file.chmod(0o755)
    (checkout / ".venv").symlink_to(theirs)
    done = subprocess.run(
        [checkout / "tests" / "run", "--quick"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == code
    # mypy runs beside the others; its output comes last.
    assert done.stdout.split() == ["ruff", "ruff", "tsc", "pytest", "mypy"]
