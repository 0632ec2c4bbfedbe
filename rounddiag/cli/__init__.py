"""The `rounddiag` command: `summary`, `check`, `report` and `lab`.

============  ======================================================================
`summary`     the text that `rounddiag summary` prints
`check`       `rounddiag check`: the diagnosis with an exit code, as text or JSON
`diagnosis`   verdict, level and findings, which both print first
`lab`         `rounddiag lab`: the notebook of a file, and JupyterLab at it
============  ======================================================================
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION = "Show where the sampling and the training engine of an RL run disagree."
_ERROR, _CANNOT_CHECK = 1, 2
_INTERRUPTED, _PIPE_CLOSED = 130, 141  # 128 + the signal, as a shell reports them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line after `rounddiag`; by default that of this process.

    Returns
    -------
    int
        The exit code: 0; 1 after an error, which is one line on standard error; 130
        after Ctrl-C; 141 when the reader of the output has closed it. `check` returns 1
        for a verdict at or above the level of `--fail-on`, and 2 after an error.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:end])
    options.jupyter = words[end + 1 :]
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (RounddiagError, OSError) as error:
        print(f"rounddiag: {_in_one_line(error)}", file=sys.stderr)
        return _CANNOT_CHECK if options.run is _check else _ERROR
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rounddiag", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    summary = commands.add_parser(
        "summary",
        help="print the verdict on a saved batch, and the mismatch of each round",
    )
    summary.add_argument("file", type=Path, metavar="FILE")
    summary.set_defaults(run=_summary)
    check = commands.add_parser(
        "check",
        help="exit with 1 if the mismatch of a saved batch is a bug",
        epilog="Verdicts in order: identical and healthy, noisy, stale, suspicious,"
        " broken; not_measurable always fails. Exit codes: 0 passed, 1 failed, 2 the"
        " file cannot be read.",
    )
    check.add_argument("file", type=Path, metavar="FILE")
    check.add_argument(
        "--fail-on",
        choices=("noisy", "stale", "suspicious", "broken"),
        default="suspicious",
        help="the least verdict that fails; default: suspicious",
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)
    report = commands.add_parser(
        "report", help="write a report on a saved batch as one HTML page"
    )
    report.add_argument("file", type=Path, metavar="FILE")
    report.add_argument(
        "-o",
        dest="page",
        type=Path,
        metavar="PAGE",
        help="output path; default: FILE's name with .html, in the current folder",
    )
    report.set_defaults(run=_report)
    lab = commands.add_parser(
        "lab",
        help="open JupyterLab at a notebook that loads FILE",
        epilog="Arguments after `--` are passed to JupyterLab.",
    )
    lab.add_argument("file", type=Path, metavar="FILE", nargs="?")
    lab.add_argument(
        "--remote",
        action="store_true",
        help="do not open a browser; print how to connect",
    )
    lab.set_defaults(run=_lab)
    return parser


def _summary(options: argparse.Namespace) -> int:
    from rounddiag.cli.summary import describe
    from rounddiag.loaders import load

    print(describe(load(options.file)))
    return 0


def _check(options: argparse.Namespace) -> int:
    from rounddiag.cli.check import run_check
    from rounddiag.loaders import load

    batch = load(options.file)
    text, failed = run_check(
        batch, str(options.file), fail_on=options.fail_on, as_json=options.json
    )
    print(text)
    return int(failed)


def _report(options: argparse.Namespace) -> int:
    from rounddiag.export import report
    from rounddiag.loaders import load

    page = options.page or Path(f"{options.file.resolve().stem}.html")
    suffix = ", replacing an existing file" if page.exists() else ""
    report(load(options.file), page)
    print(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB){suffix}")
    return 0


def _lab(options: argparse.Namespace) -> int:
    from rounddiag.cli.lab import prepare_notebook, start_lab

    notebook = prepare_notebook(options.file, Path.cwd()) if options.file else None
    if notebook and notebook != options.file.resolve():
        print(f"notebook: {notebook} (created once, never overwritten)", flush=True)
    announce = (
        (lambda text: print(f"\n{text}\n", flush=True)) if options.remote else None
    )
    start_lab(notebook, options.jupyter, announce=announce)
    return 0


def _in_one_line(error: RounddiagError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
