"""The commands and their options, as one table for `argparse`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any, NamedTuple, NoReturn

from rounddiag._version import __version__
from rounddiag.wording import printable

_DESCRIPTION = "Show where the sampling and the training engine of an RL run disagree."


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on; found {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    value = 0.0
    with suppress(ValueError):
        value = float(text)
    if not 0 < value <= TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(
            f"expected seconds, more than 0; found {text!r}"
        )
    return value


def _model(text: str) -> str:
    if text.startswith((".", "/")) and not Path(text).exists():
        raise argparse.ArgumentTypeError(
            f"expected a folder, a name or an address; found no {text!r}"
        )
    return text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _samples(text: str) -> int | list[str]:
    is_count = text.startswith("+") and text[1:].isdecimal()
    return int(text) if is_count else _names(text)


class _Labelled(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 of argparse
        option_string: str | None = None,
    ) -> None:
        """Add one more."""
        del parser, option_string
        label, _, folder = str(values).partition("=")
        given = getattr(namespace, self.dest)
        if not label or not folder:
            raise argparse.ArgumentError(
                self, f"expected LABEL=FOLDER; found {values!r}"
            )
        if label in given:
            raise argparse.ArgumentError(
                self, f"expected each label once; found {label!r} twice"
            )
        setattr(namespace, self.dest, {**given, label: folder})


def _option(text: str, **settings: Any) -> dict[str, Any]:  # noqa: ANN401 of argparse
    return {"help": text, **settings}


def _flag(text: str) -> dict[str, Any]:
    return _option(text, action="store_true")


def _labelled(text: str) -> dict[str, Any]:
    return _option(text, action=_Labelled, default={}, metavar="LABEL=FOLDER")


def _time(text: str, default: float) -> dict[str, Any]:
    text = f"{text}; default: {default:g}"
    return _option(text, type=_seconds, default=default, metavar="SECONDS")


# What `add_argument` is given for each; `?` marks an argument that can be left out.
_OPTIONS = {
    "file": {"metavar": "FILE|FOLDER"},
    "folder": {"metavar": "FOLDER"},
    "model": _option(
        "the model of the trainer: a folder or name that transformers opens",
        type=_model,
        metavar="MODEL",
    ),
    "file?": {"metavar": "FILE|FOLDER", "nargs": "?"},
    "address": {"metavar": "ADDRESS"},
    "paths": {"metavar": "PATH", "nargs": "+"},
    "name?": _option("none lists the names", metavar="NAME", nargs="?"),
    "situation?": _option("default: image_window", metavar="NAME", nargs="?"),
    "--to": _option(
        "a folder of skills: copy the page to FOLDER/rounddiag/SKILL.md",
        type=Path,
        metavar="FOLDER",
    ),
    "--untrusted": _flag("read FILE in a child process; a FOLDER must hold one step"),
    "--tokenizer": _option("a file, folder or model: text for ids", metavar="PATH"),
    "--sample-by": _option(
        "of a file with one row per step: the columns that identify a trajectory, with"
        " commas between; its rows are joined into one sample",
        type=_names,
        metavar="COLUMNS",
    ),
    "--order-by": _option(
        "with --sample-by: the column with the step number, or `row` for the order of"
        " the file",
        metavar="COLUMN",
    ),
    "--json": _flag("print a JSON object; of several steps, one each"),
    "--fail-on": _option(
        "the least verdict that fails; default: %(default)s",
        choices=("noisy", "stale", "suspicious", "broken"),
    ),
    "--model": _option(
        "the model of the step: a folder or name that transformers opens, or the"
        " address of a vLLM or SGLang server. `check` proves with it what fails, and"
        " scores a batch with one engine's log-probs",
        type=_model,
    ),
    "--server": _option(
        "the address of a running vLLM or SGLang with the same model; screenshots go"
        " there and nowhere else",
        metavar="URL",
    ),
    "--episodes": _option(
        "sample the prompts, observations and screenshots of FILE instead",
        metavar="FILE",
    ),
    "--scorer": _option(
        "what scores in the trainer's place: it gets a folder of `rounddiag."
        "export_rescore` as its last argument, and writes scores.jsonl there",
        metavar="COMMAND",
    ),
    "--after": _option(
        "what syncs weights to the server: it gets the folder of a LoRA adapter of ours"
        " as its last argument, first one that changes much, then one that changes"
        " nothing",
        metavar="COMMAND",
    ),
    "--prove": _flag("prove the cause of what fails"),
    "--seed": _option(
        "of the screenshots and the adapter; default: 0",
        type=int,
        default=0,
        metavar="N",
    ),
    "--last": _option(
        "of a run, the newest N; default: 1", type=_positive, metavar="N"
    ),
    "--all": _flag("of a run, all steps, one line each"),
    "--once": _flag("judge the steps that exist, and end"),
    "--every": _time("between two checks for new steps", 30.0),
    "--hypotheses": _option(
        "names of hypotheses, causes or families; default: all that can be tested",
        type=_names,
    ),
    "--checkpoint": _labelled("other weights that an engine may have had; repeatable"),
    "--adapter": _labelled(
        "a LoRA adapter that belongs to the model; further ones are those that an"
        " engine may have had instead"
    ),
    "--at": _option(
        "a place, such as 'task-08/1 / r3' or 'task-08/1 / r3 / t17'; repeatable;"
        " default: the evidence of the first findings",
        action="append",
        metavar="ADDRESS",
    ),
    "--budget": _time("begin no further hypothesis after so long", 600.0),
    "-o": _option("where to write the result", dest="output", metavar="PATH"),
    "--samples": _option(
        "samples of a batch that the page has token by token, besides the worst:"
        " numbers or ids with commas between, or +N for N drawn ones; default: +4",
        type=_samples,
    ),
    "--remote": _flag("do not open a browser; print how to connect"),
    "--engine": {"choices": ("local", "ray"), "default": "local"},
    "--images": _option(
        "how screenshots are stored; default: thumbnails",
        choices=("thumbnails", "none", "full"),
        default="thumbnails",
    ),
}


class _Command(NamedTuple):
    """A command; `!` marks an option that is required, `|` two that exclude each other.

    `defaults` are those of options that have another one in each command.
    """

    help: str
    options: str = ""
    epilog: str | None = None
    defaults: Mapping[str, object] = {}


_JOIN = "--sample-by --order-by"
_FILE = f"file --untrusted --tokenizer {_JOIN}"
COMMANDS = {
    "demo": _Command(
        "print the verdict on a sample batch that is installed", "situation?"
    ),
    "summary": _Command(
        "print the verdict on a saved batch or a run, and the mismatch of each round",
        _FILE,
    ),
    "check": _Command(
        "exit with 1 if the mismatch of a saved batch is a bug",
        f"{_FILE} --fail-on --json --model --last|--all",
        "Of a run, the newest step is judged. Verdicts in order: identical and healthy,"
        " noisy, stale, suspicious, broken; not_measurable always fails. Exit codes: 0"
        " passed, 1 failed, 2 the file cannot be read.",
        {"fail_on": "suspicious"},
    ),
    "show": _Command(
        "print the tokens of a place: both log-probs, text, role and action",
        f"{_FILE} address --json",
        "An ADDRESS is what `rounddiag check` prints, such as 'step 40 / task-08/1 / r3"
        " / t17'; step, round and token can be left out. Of a run, the newest step is"
        " meant without one.",
    ),
    "watch": _Command(
        "judge each step of a run, while training goes on",
        f"folder {_JOIN} --fail-on --once|--every --json",
        "A line for each step. Exit codes: 1 at the first verdict that fails; 2 for a"
        " step that cannot be read; with --once, 0 if none fails.",
        {"fail_on": "broken"},
    ),
    "prove": _Command(
        "score the tokens of a saved batch again, and say which engine was wrong",
        f"{_FILE} --model! --hypotheses --checkpoint --adapter --budget -o --json",
        "`-o` writes the proof for `rounddiag.load_proof` elsewhere. No code of the"
        " model's repository runs. Exit codes: 0 a result, 1 an error.",
    ),
    "ask": _Command(
        "print what a model would have written at a place, and whether it looked",
        f"{_FILE} --model! --at -o --json",
        "`-o` writes the answer for `rounddiag.load_answer` elsewhere. No code of the"
        " model's repository runs. Exit codes: 0 an answer, 1 an error.",
    ),
    "preflight": _Command(
        "before a run: does the model agree with the server that will sample",
        f"model --server! --episodes {_JOIN} --scorer --after --prove --seed -o"
        " --fail-on --json",
        "`-o` writes the episodes, which `rounddiag lab` opens. A check that fails"
        " always fails; `--fail-on` is about the verdict on the episodes. Exit codes: 0"
        " passed, 1 failed, 2 the model or the server cannot be used.",
        {"fail_on": "suspicious"},
    ),
    "report": _Command(
        "write a report on a saved batch or a run as one HTML page",
        f"{_FILE} -o --samples",
        "Without `-o` the page is FILE's name with .html, in the current folder.",
    ),
    "lab": _Command(
        "open JupyterLab at a notebook that loads FILE, or the run in FOLDER",
        f"file? --untrusted --tokenizer {_JOIN} --remote",
        "Arguments after `--` are passed to JupyterLab.",
    ),
    "ingest": _Command(
        "convert a framework's files to a folder of step files",
        f"paths -o! {_JOIN} --engine --images",
        "It can be repeated, and goes on where it was stopped. Exit codes: 0 all files"
        " converted, 1 some failed; they are listed.",
    ),
    "recipe": _Command("print the lines that save a batch in a trainer", "name?"),
    "skill": _Command(
        "print a page for coding agents: which command when, and what not to conclude",
        "--to",
    ),
}


class _Parser(argparse.ArgumentParser):
    """Writes errors in printable text, since a glob may name hostile files."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, which sets `command` and its options."""
    parser = _Parser(prog="rounddiag", description=_DESCRIPTION)
    parser.add_argument(
        "--version", action="version", version=f"rounddiag {__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.help, epilog=command.epilog)
        for names in command.options.split():
            is_choice = "|" in names
            target = own.add_mutually_exclusive_group() if is_choice else own
            for option in names.split("|"):
                settings = {**_OPTIONS[option.rstrip("!")]}
                if option.endswith("!"):
                    settings["required"] = True
                target.add_argument(option.rstrip("!?"), **settings)
        own.set_defaults(**command.defaults)
    return parser
