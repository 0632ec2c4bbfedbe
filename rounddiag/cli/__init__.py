"""The `rounddiag` command: what it prints of a batch, a run or a trainer.

============  ======================================================================
`summary`     the text that `rounddiag summary` prints, of a batch or of a run
`check`       `rounddiag check`: the diagnosis with an exit code, as text or JSON
`show`        `rounddiag show`: the tokens of a place, as text or JSON
`watch`       `rounddiag watch`: a line for each step of a run that goes on
`lab`         `rounddiag lab`: the notebook of a file or run, and JupyterLab at it
`recipe`      `rounddiag recipe`: the lines that save a batch in a trainer
`terminal`    printing: colours, signs and wrapped lines on a terminal, plain in a pipe
============  ======================================================================
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from rounddiag._version import __version__
from rounddiag.cli.terminal import announced, json_line, print_text
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.wording import printable

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.runs import Run

    Commands = argparse._SubParsersAction["_Parser"]  # noqa: SLF001 has no public name

_DESCRIPTION = "Show where the sampling and the training engine of an RL run disagree."
# What `rounddiag prove --json` prints of a Proof, with `file`, `text` and `hypotheses`,
# the rows of its frame.
_PROOF = ("verdict", "side", "cause", "causes", "next_step", "not_tested", "seconds")
_ERROR, _CANNOT_CHECK, _NO_COMMAND = 1, 2, 2
_INTERRUPTED, _PIPE_CLOSED = 130, 141  # 128 + the signal, as a shell reports them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    if not words:
        _parser().print_help()
        return _NO_COMMAND
    options = _parser().parse_args(words[:end])
    options.jupyter = words[end + 1 :]
    try:
        file = getattr(options, "file", None)
        for path in [file] if file else getattr(options, "paths", []):
            _require_path(path)
        if file:
            _require_content(Path(file))
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (RounddiagError, OSError) as error:
        print(f"rounddiag: {printable(_in_one_line(error))}", file=sys.stderr)
        return _CANNOT_CHECK if options.run in (_check, _watch) else _ERROR
    return code


def _in_one_line(error: RounddiagError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


class _Parser(argparse.ArgumentParser):
    """Writes errors in printable text, since a glob may name hostile files."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rounddiag", description=_DESCRIPTION)
    parser.add_argument(
        "--version", action="version", version=f"rounddiag {__version__}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        *(_add_demo, _add_summary, _add_check, _add_show, _add_watch, _add_prove),
        *(_add_report, _add_lab, _add_ingest, _add_recipe),
    ):
        add(commands)
    return parser


def _require_path(path: str) -> None:
    """Report a path that does not exist before torch and pandas are imported."""
    # A name may have the characters of a glob.
    if not (Path(path).exists() or glob(path) or "://" in path):  # noqa: PTH207 any folder
        raise LoadError.build(
            file=path,
            expected="a file, a folder or a glob",
            found="nothing",
            advice="Check the path.",
        )


def _require_content(path: Path) -> None:
    """Refuse a file whose first bytes no loader reads, before torch is imported."""
    from rounddiag.loaders.signatures import refuse_unknown
    from rounddiag.loaders.source import Source

    if path.is_file():
        refuse_unknown(Source.of_file(path))


def _add_file(
    command: argparse.ArgumentParser, nargs: Literal["?"] | None = None
) -> None:
    command.add_argument("file", metavar="FILE|FOLDER", nargs=nargs)
    command.add_argument(
        "--untrusted",
        action="store_true",
        help="read FILE in a child process with little memory and time; a FOLDER must"
        " hold one step",
    )
    command.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="a tokenizer.json, its folder or a model name: shows text for ids",
    )


def _load(options: argparse.Namespace) -> Batch:
    from rounddiag.loaders import load

    return load(options.file, tokenizer=options.tokenizer, untrusted=options.untrusted)


def _open_run(options: argparse.Namespace) -> Run | None:
    """Open a folder, a glob or a URL as a run.

    None if it has the files of one step, trajectories without both engines'
    log-probs, which are one batch, or is untrusted: a run has no guard.
    """
    path = options.file
    if options.untrusted or Path(path).is_file():
        return None
    from rounddiag.loaders.paths import is_url
    from rounddiag.runs import open_run

    if not (Path(path).is_dir() or has_magic(path) or is_url(path)):
        return None
    try:
        run = open_run(path, tokenizer=options.tokenizer)
    except LoadError:
        if is_url(path):
            raise
        return None  # `load` reports what is wrong with it
    if run.is_raw and _has_no_pair(run):
        return None
    return run if len(run) > 1 or is_url(path) else None


def _has_no_pair(run: Run) -> bool:
    try:
        return run.batch(run.steps[0]).lacks("old", "rollout") is not None
    except LoadError:  # `run.failed` names it
        return False


def _add_demo(commands: Commands) -> None:
    command = commands.add_parser(
        "demo", help="print the verdict on the sample batch that is installed"
    )
    command.set_defaults(run=_demo)


def _demo(_: argparse.Namespace) -> int:
    from rounddiag.cli.summary import describe
    from rounddiag.loaders.open import demo, sample_path

    file = sample_path()
    print_text(f"{describe(demo())}\n\nNext: `rounddiag lab {file}`, or in Python:")
    print_text("    import rounddiag as rd\n    rd.explore(rd.demo())")
    return 0


def _add_summary(commands: Commands) -> None:
    command = commands.add_parser(
        "summary",
        help="print the verdict on a saved batch or a run, and the mismatch of each"
        " round",
    )
    _add_file(command)
    command.set_defaults(run=_summary)


def _summary(options: argparse.Namespace) -> int:
    from rounddiag.cli.summary import describe, describe_run

    run = _open_run(options)
    print_text(describe(_load(options)) if run is None else describe_run(run))
    return 0


def _add_check(commands: Commands) -> None:
    command = commands.add_parser(
        "check",
        help="exit with 1 if the mismatch of a saved batch is a bug",
        epilog="Of a run, the newest step is judged. Verdicts in order: identical and"
        " healthy, noisy, stale, suspicious, broken; not_measurable always fails. Exit"
        " codes: 0 passed, 1 failed, 2 the file cannot be read.",
    )
    _add_file(command)
    _add_fail_on(command, "suspicious")
    command.add_argument(
        "--json", action="store_true", help="print one JSON object; one per step"
    )
    command.add_argument(
        "--model",
        metavar="MODEL",
        help="the model of the step: it scores a batch with one engine's log-probs"
        " again, and proves what differs",
    )
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--last",
        type=_positive,
        default=1,
        metavar="N",
        help="of a run, the newest N steps; default: 1",
    )
    which.add_argument(
        "--all", action="store_true", help="of a run, all steps, one line each"
    )
    command.set_defaults(run=_check)


def _add_fail_on(command: argparse.ArgumentParser, default: str) -> None:
    command.add_argument(
        "--fail-on",
        choices=("noisy", "stale", "suspicious", "broken"),
        default=default,
        help=f"the least verdict that fails; default: {default}",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"expected a number from 1 on; found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _check(options: argparse.Namespace) -> int:
    run, file = _open_run(options), str(options.file)
    if run is not None and (options.all or options.last > 1):
        from rounddiag.cli.watch import judge_steps

        steps = run.steps if options.all else run.steps[-options.last :]
        return judge_steps(run, steps, options.fail_on, as_json=options.json)
    with announced(f"judging {file} ..."):
        if run is None:
            batch = _load(options)
        else:
            batch, file = run.batch(run.steps[-1]), f"{file}, step {run.steps[-1]}"
        from rounddiag.cli.check import run_check

        text, failed = run_check(
            batch,
            file,
            model=options.model,
            fail_on=options.fail_on,
            as_json=options.json,
        )
    print_text(text)
    return int(failed)


def _add_show(commands: Commands) -> None:
    command = commands.add_parser(
        "show",
        help="print the tokens of a place: both log-probs, text, role and action",
        epilog="An ADDRESS is what `rounddiag check` prints, such as"
        " 'step 40 / task-08/1 / r3 / t17'; step, round and token can be left out. Of a"
        " run, the newest step is meant without one.",
    )
    _add_file(command)
    command.add_argument("address", metavar="ADDRESS")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> int:
    from rounddiag.batch.address import Address

    run, step = _open_run(options), Address.parse(options.address).step
    if run is None:
        batch = _load(options)
    else:
        batch = run.batch(run.steps[-1] if step is None else step)
    from rounddiag.cli.show import show_place

    print_text(show_place(batch, options.address, as_json=options.json))
    return 0


def _add_watch(commands: Commands) -> None:
    command = commands.add_parser(
        "watch",
        help="judge each step of a run, while training goes on",
        epilog="A line for each step. Exit codes: 1 at the first verdict that fails; 2"
        " for a step that cannot be read; with --once, 0 if none fails.",
    )
    command.add_argument("file", metavar="FOLDER")
    _add_fail_on(command, "broken")
    command.add_argument(
        "--once", action="store_true", help="judge the steps that exist, and end"
    )
    command.add_argument(
        "--every",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="between two checks for new steps; default: 30",
    )
    command.add_argument(
        "--json", action="store_true", help="print one JSON object per step"
    )
    command.set_defaults(run=_watch)


def _watch(options: argparse.Namespace) -> int:
    from rounddiag.cli.watch import watch_run

    return watch_run(
        options.file,
        fail_on=options.fail_on,
        once=options.once,
        every=options.every,
        as_json=options.json,
    )


def _add_prove(commands: Commands) -> None:
    command = commands.add_parser(
        "prove",
        help="score the tokens of a saved batch again, and say which engine was wrong",
        epilog="No code of the model's repository runs. Exit codes: 0 a result, 1 an"
        " error.",
    )
    _add_file(command)
    command.add_argument(
        "--model",
        required=True,
        metavar="MODEL",
        help="the checkpoint of this step: a folder or name that transformers opens, or"
        " the address of a vLLM or SGLang server",
    )
    command.add_argument(
        "--hypotheses",
        type=lambda text: [one.strip() for one in text.split(",")],
        metavar="NAME,...",
        help="names of hypotheses or of causes; default: all that can be tested, the"
        " likeliest first",
    )
    command.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        type=_checkpoint,
        metavar="LABEL=FOLDER",
        help="other weights that an engine may have had; can be repeated",
    )
    command.add_argument(
        "--adapter",
        action="append",
        default=[],
        type=_checkpoint,
        metavar="LABEL=FOLDER",
        help="a LoRA adapter that belongs to the model; further ones are those that an"
        " engine may have had instead",
    )
    command.add_argument(
        "--budget",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="begin no further hypothesis after so long; default: 600",
    )
    command.add_argument(
        "-o",
        dest="output",
        type=Path,
        metavar="PROOF",
        help="also write the proof to a file, for `rounddiag.load_proof` elsewhere",
    )
    command.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object; numbers that are not finite are null",
    )
    command.set_defaults(run=_prove)


def _checkpoint(text: str) -> tuple[str, str]:
    label, separator, folder = text.partition("=")
    if not separator:
        msg = f"expected LABEL=FOLDER; found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return label, folder


def _prove(options: argparse.Namespace) -> int:
    from rounddiag.proof import prove

    proof = prove(
        _load(options),
        options.model,
        hypotheses=options.hypotheses,
        checkpoints=dict(options.checkpoint),
        adapters=dict(options.adapter),
        budget_s=options.budget,
    )
    if options.output is not None:
        proof.save(options.output)
    if not options.json:
        print_text(repr(proof))
        return 0
    facts = {name: getattr(proof, name) for name in _PROOF}
    facts |= {"text": repr(proof), "hypotheses": proof.frame.to_dict("records")}
    print_text(json_line({"file": str(options.file), **facts}))
    return 0


def _add_report(commands: Commands) -> None:
    command = commands.add_parser(
        "report", help="write a report on a saved batch or a run as one HTML page"
    )
    _add_file(command)
    command.add_argument(
        "-o",
        dest="page",
        type=Path,
        metavar="PAGE",
        help="output path; default: FILE's name with .html, in the current folder",
    )
    command.add_argument(
        "--samples",
        metavar="SAMPLES",
        type=_samples,
        default=4,
        help="samples of a batch that the page has token by token, besides the worst:"
        " numbers or ids with commas between, or +N for N drawn ones; default: +4",
    )
    command.set_defaults(run=_report)


def _samples(text: str) -> int | list[str]:
    if text.startswith("+") and text[1:].isdecimal():
        return int(text)
    return [name.strip() for name in text.split(",")]


def _report(options: argparse.Namespace) -> int:
    from rounddiag.cli.summary import describe_failed_steps, silence_failed_steps
    from rounddiag.export import report

    page = options.page or Path(f"{Path(options.file).resolve().stem}.html")
    suffix = ", replacing an existing file" if page.exists() else ""
    run = _open_run(options)
    if run is None:
        report(_load(options), page, samples=options.samples)
    else:
        with silence_failed_steps():
            report(run, page, samples=options.samples)
    print_text(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB){suffix}")
    if run is not None and run.failed:
        print_text(describe_failed_steps(run))
    return 0


def _add_lab(commands: Commands) -> None:
    command = commands.add_parser(
        "lab",
        help="open JupyterLab at a notebook that loads FILE, or the run in FOLDER",
        epilog="Arguments after `--` are passed to JupyterLab.",
    )
    _add_file(command, nargs="?")
    command.add_argument(
        "--remote",
        action="store_true",
        help="do not open a browser; print how to connect",
    )
    command.set_defaults(run=_lab)


def _lab(options: argparse.Namespace) -> int:
    from rounddiag.cli.lab import prepare_notebook, start_lab

    notebook = None
    if options.file:
        notebook = prepare_notebook(
            Path(options.file),
            Path.cwd(),
            tokenizer=options.tokenizer,
            untrusted=options.untrusted,
        )
    if notebook and notebook != Path(options.file).resolve():
        print_text(f"notebook: {notebook} (created once, never overwritten)")
    announce = (lambda text: print_text(f"\n{text}\n")) if options.remote else None
    start_lab(notebook, options.jupyter, announce=announce)
    return 0


def _add_ingest(commands: Commands) -> None:
    command = commands.add_parser(
        "ingest",
        help="convert a framework's files to a folder of step files",
        epilog="It can be repeated, and goes on where it was stopped. Exit codes: 0"
        " all files converted, 1 some failed; they are listed.",
    )
    command.add_argument("paths", nargs="+", metavar="PATH")
    command.add_argument(
        "-o", dest="folder", required=True, metavar="FOLDER", help="where to write"
    )
    command.add_argument("--engine", choices=("local", "ray"), default="local")
    command.add_argument(
        "--images",
        choices=("thumbnails", "none", "full"),
        default="thumbnails",
        help="how screenshots are stored; default: thumbnails",
    )
    command.set_defaults(run=_ingest)


def _ingest(options: argparse.Namespace) -> int:
    from rounddiag.runs import ingest

    done = ingest(
        options.paths, options.folder, engine=options.engine, images=options.images
    )
    print_text(str(done))
    return int(bool(done.failed))


def _add_recipe(commands: Commands) -> None:
    command = commands.add_parser(
        "recipe", help="print the lines that save a batch in a trainer"
    )
    command.add_argument("name", metavar="NAME", nargs="?", help="none lists the names")
    command.set_defaults(run=_recipe)


def _recipe(options: argparse.Namespace) -> int:
    from rounddiag.cli.recipe import describe_recipe

    print(describe_recipe(options.name))
    return 0
