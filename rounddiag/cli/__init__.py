"""The `rounddiag` command: `summary FILE`, `report FILE` and `lab [FILE]`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED, _PIPE_CLOSED = 130, 141  # 128 + the signal, as a shell reports them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        What stands after `rounddiag` on the command line.

    Returns
    -------
    int
        The exit code: 0, or 1 after one line on standard error; 130 after Ctrl-C;
        141 when nobody reads the output any more.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    cut = given.index("--") if "--" in given else len(given)
    options = _parser().parse_args(given[:cut])
    options.jupyter = given[cut + 1 :]
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
    parser = argparse.ArgumentParser(prog="rounddiag", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    summary = commands.add_parser(
        "summary", help="print the mismatch of every round of a saved batch"
    )
    summary.add_argument("file", type=Path, metavar="FILE")
    summary.set_defaults(run=_summary)
    report = commands.add_parser(
        "report", help="write what a saved batch shows as one HTML page"
    )
    report.add_argument("file", type=Path, metavar="FILE")
    report.add_argument(
        "-o",
        dest="page",
        type=Path,
        metavar="PAGE",
        help="where to write; by default FILE's name with .html, in this folder",
    )
    report.set_defaults(run=_report)
    lab = commands.add_parser(
        "lab",
        help="open JupyterLab, at a notebook that loads FILE",
        epilog="What stands after `--` goes to JupyterLab.",
    )
    lab.add_argument("file", type=Path, metavar="FILE", nargs="?")
    lab.add_argument(
        "--remote", action="store_true", help="open no browser; print how to reach it"
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
    instead = ", in the place of an older one" if page.exists() else ""
    report(load(options.file), page)
    print(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB){instead}")


def _lab(options: argparse.Namespace) -> None:
    from rounddiag.cli.lab import notebook_for, start_lab

    notebook = notebook_for(options.file, Path.cwd()) if options.file else None
    if notebook and notebook != options.file.resolve():
        print(f"opens {notebook}: made at the first start, then kept", flush=True)
    announce = (
        (lambda text: print(f"\n{text}\n", flush=True)) if options.remote else None
    )
    start_lab(notebook, options.jupyter, announce=announce)


def _in_one_line(error: RounddiagError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
