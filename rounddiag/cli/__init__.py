"""The `rounddiag` command: `summary FILE`, `report FILE` and `lab [FILE]`.

============  ======================================================================
`summary`     the text that `rounddiag summary` prints
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
        after Ctrl-C; 141 when the reader of the output has closed it.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:end])
    options.jupyter = words[end + 1 :]
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (RounddiagError, OSError) as error:
        print(f"rounddiag: {_in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rounddiag", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    summary = commands.add_parser(
        "summary", help="print the mismatch of each round of a saved batch"
    )
    summary.add_argument("file", type=Path, metavar="FILE")
    summary.set_defaults(run=_summary)
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


def _summary(options: argparse.Namespace) -> None:
    from rounddiag.cli.summary import describe
    from rounddiag.loaders import load

    print(describe(load(options.file)))


def _report(options: argparse.Namespace) -> None:
    from rounddiag.export import report
    from rounddiag.loaders import load

    page = options.page or Path(f"{options.file.resolve().stem}.html")
    suffix = ", replacing an existing file" if page.exists() else ""
    report(load(options.file), page)
    print(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB){suffix}")


def _lab(options: argparse.Namespace) -> None:
    from rounddiag.cli.lab import prepare_notebook, start_lab

    notebook = prepare_notebook(options.file, Path.cwd()) if options.file else None
    if notebook and notebook != options.file.resolve():
        print(f"notebook: {notebook} (created once, never overwritten)", flush=True)
    announce = (
        (lambda text: print(f"\n{text}\n", flush=True)) if options.remote else None
    )
    start_lab(notebook, options.jupyter, announce=announce)


def _in_one_line(error: RounddiagError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
