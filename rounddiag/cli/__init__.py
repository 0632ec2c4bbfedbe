"""The `rounddiag` command: what it prints of a batch, a run or a trainer.

============  ======================================================================
`options`     the commands and their options
`summary`     the text that `rounddiag summary` prints, of a batch or of a run
`check`       `rounddiag check`: the diagnosis with an exit code, as text or JSON
`preflight`   `rounddiag preflight`: a model and a server compared, as text or JSON
`show`        `rounddiag show`: the tokens of a place, as text or JSON
`row_note`    the first line on rows that are steps which were not joined
`watch`       `rounddiag watch`: a line for each step of a run that goes on
`lab`         `rounddiag lab`: the notebook of a file or run, and JupyterLab at it
`recipe`      `rounddiag recipe`: the lines that save a batch in a trainer
`skill`       `rounddiag skill`: the page for coding agents, from `SKILL.md`
`terminal`    printing: colours, signs and wrapped lines on a terminal, plain in a pipe
============  ======================================================================
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from rounddiag.cli.options import build_parser
from rounddiag.cli.terminal import announced, json_line, print_text
from rounddiag.errors import LoadError, MissingError, RounddiagError
from rounddiag.wording import printable

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.runs import Run

# What `rounddiag prove --json` prints of a Proof, with `file`, `text` and `hypotheses`,
# the rows of its frame.
_PROOF = ("verdict", "side", "cause", "causes", "next_step", "not_tested", "seconds")
# And `rounddiag ask --json` of an Answer, with `file`, `model`, `text` and `seconds`.
_ANSWER = ("alternatives", "sight", "tiles")
_NUM_DRAWN = 4  # samples of a report, besides the worst, unless they are named
_ERROR, _CANNOT_CHECK, _NO_COMMAND = 1, 2, 2
_GATES = ("check", "watch", "preflight")  # their 1 says that something fails
_INTERRUPTED, _PIPE_CLOSED = 130, 141  # 128 + the signal, as a shell reports them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        build_parser().print_help()
        return _NO_COMMAND
    jupyter: list[str] = []
    if words[0] == "lab" and "--" in words:
        end = words.index("--")
        words, jupyter = words[:end], words[end + 1 :]
    options = build_parser().parse_args(words)
    options.jupyter = jupyter
    try:
        named = vars(options)
        file = named.get("file")
        named_paths = [file, named.get("folder"), named.get("episodes")]
        for path in [*named_paths, *named.get("paths", [])]:
            _require_path(path)
        if file:
            _require_content(Path(file))
        code = _COMMANDS[options.command](options)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (RounddiagError, OSError) as error:
        # A MissingError does not say of which file.
        is_of_file = file and isinstance(error, MissingError)
        where = f"{printable(file)}: " if is_of_file else ""
        print(f"rounddiag: {where}{_printable(error)}", file=sys.stderr)
        return _CANNOT_CHECK if options.command in _GATES else _ERROR
    return code


def _printable(error: RounddiagError | OSError) -> str:
    """Return the message of an error, in one line but for the code in it."""
    if isinstance(error, RounddiagError):
        return str(error)
    if error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(" ".join(str(error).split()))


def _require_path(path: str | None) -> None:
    """Report a path that does not exist before torch and pandas are imported."""
    if path is None:
        return
    # A name may have the characters of a glob; an empty one is not this folder.
    if not path or not (Path(path).exists() or glob(path) or "://" in path):  # noqa: PTH207 any folder
        raise LoadError.build(
            file=path or "''",
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


def _refuse(options: argparse.Namespace, *names: str, needs: str, given: str) -> None:
    """Refuse options that say nothing about what was passed."""
    for name in names:
        if getattr(options, name) not in (None, False):
            raise RounddiagError.build(
                key=f"--{name.replace('_', '-')}",
                expected=needs,
                found=given,
                advice="Leave the option out.",
            )


def _load(options: argparse.Namespace) -> Batch:
    from rounddiag.loaders import load

    return load(
        options.file,
        sample_by=options.sample_by,
        order_by=options.order_by,
        tokenizer=options.tokenizer,
        untrusted=options.untrusted,
    )


def _print_row_note(options: argparse.Namespace, source: Batch | Run) -> None:
    from rounddiag.cli.row_note import print_row_note

    as_json = getattr(options, "json", False)
    print_row_note(source, options.sample_by, as_json=as_json)


def _open_run(options: argparse.Namespace, *, min_steps: int = 2) -> Run | None:
    """Open a folder, a glob or a URL as a run.

    None if it has fewer steps than `min_steps` or trajectories without both engines'
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
        run = open_run(
            path,
            sample_by=options.sample_by,
            order_by=options.order_by,
            tokenizer=options.tokenizer,
        )
    except LoadError:
        if is_url(path):
            raise
        return None  # `load` reports what is wrong with it
    if run.is_raw and _has_no_pair(run):
        return None
    return run if len(run) >= min_steps or is_url(path) else None


def _has_no_pair(run: Run) -> bool:
    for step in run.steps:
        with suppress(LoadError):  # `run.failed` names it
            return run.batch(step).lacks("old", "rollout") is not None
    return False


def _demo(options: argparse.Namespace) -> int:
    from rounddiag.cli.summary import describe
    from rounddiag.loaders.sample_batches import DEMOS, DemoName, demo, sample_path

    name: DemoName = options.situation or "image_window"
    batch, situation = demo(name), DEMOS[name]
    print_text(f"{situation.sentence}\n\n{describe(batch)}\n")
    if situation.edit is None:
        print_text(
            f"Next: `rounddiag lab {sample_path(situation.file)}`, or in Python:"
        )
    else:
        print_text("Next, in Python:")
    view = f", {situation.view}" if situation.view else ""
    print_text("    import rounddiag as rd")
    print_text(f'    rd.explore(rd.demo("{name}"){view})')
    others = ", ".join(other for other in DEMOS if other != name)
    print_text(f"\nOther sample batches, as `rounddiag demo NAME`: {others}")
    return 0


def _summary(options: argparse.Namespace) -> int:
    from rounddiag.batch import Batch
    from rounddiag.cli.summary import describe, describe_run

    run = _open_run(options)
    source = _load(options) if run is None else run
    _print_row_note(options, source)
    print_text(describe(source) if isinstance(source, Batch) else describe_run(source))
    return 0


def _check(options: argparse.Namespace) -> int:
    of_run = options.all or options.last is not None
    run, file = _open_run(options, min_steps=1 if of_run else 2), str(options.file)
    if run is not None and (options.all or (options.last or 1) > 1):
        from rounddiag.cli.watch import judge_steps

        _refuse(options, "model", needs="one batch to prove", given="several steps")
        _print_row_note(options, run)
        steps = run.steps if options.all else run.steps[-options.last :]
        return judge_steps(run, steps, options.fail_on, as_json=options.json)
    with announced(f"judging {file} ..."):
        if run is None:
            batch = _load(options)
            _refuse(options, "last", "all", needs="a run", given="one batch")
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
    _print_row_note(options, batch)
    print_text(text)
    return int(failed)


def _show(options: argparse.Namespace) -> int:
    from rounddiag.batch.address import Address

    run, step = _open_run(options), Address.parse(options.address).step
    if run is None:
        batch = _load(options)
    else:
        batch = run.batch(run.steps[-1] if step is None else step)
    from rounddiag.cli.show import show_place

    _print_row_note(options, batch)
    print_text(show_place(batch, options.address, as_json=options.json))
    return 0


def _watch(options: argparse.Namespace) -> int:
    from rounddiag.cli.watch import watch_run

    return watch_run(
        options.folder,
        fail_on=options.fail_on,
        once=options.once,
        every=options.every,
        as_json=options.json,
        sample_by=options.sample_by,
        order_by=options.order_by,
    )


def _prove(options: argparse.Namespace) -> int:
    from rounddiag.loaders.output import check_target
    from rounddiag.proof import PROOF, prove

    if options.output is not None:
        check_target(Path(options.output), PROOF)  # before it is computed
    batch = _load(options)
    _print_row_note(options, batch)
    proof = prove(
        batch,
        options.model,
        hypotheses=options.hypotheses,
        checkpoints=options.checkpoint,
        adapters=options.adapter,
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


def _ask(options: argparse.Namespace) -> int:
    from rounddiag.loaders.output import check_target
    from rounddiag.proof import SAVED_ANSWER, ask

    if options.output is not None:
        check_target(Path(options.output), SAVED_ANSWER)  # before it is computed
    batch = _load(options)
    _print_row_note(options, batch)
    answer = ask(batch, options.model, at=options.at)
    if options.output is not None:
        answer.save(options.output)
    if not options.json:
        print_text(repr(answer))
        return 0
    facts = {"file": str(options.file), "model": answer.model, "text": repr(answer)}
    rows = {name: getattr(answer, name).to_dict("records") for name in _ANSWER}
    print_text(json_line({**facts, "seconds": answer.seconds, **rows}))
    return 0


def _preflight(options: argparse.Namespace) -> int:
    from rounddiag.cli.preflight import run_preflight

    text, failed = run_preflight(
        options.model,
        options.server,
        output=options.output,
        fail_on=options.fail_on,
        as_json=options.json,
        episodes=_episodes(options),
        scorer=options.scorer,
        after=options.after,
        prove=options.prove,
        seed=options.seed,
    )
    print_text(text)
    return int(failed)


def _episodes(options: argparse.Namespace) -> Batch | None:
    from rounddiag.loaders import load

    if options.episodes is None:
        _refuse(options, "sample_by", "order_by", needs="--episodes", given="none")
        return None
    return load(
        options.episodes, sample_by=options.sample_by, order_by=options.order_by
    )


def _report(options: argparse.Namespace) -> int:
    from rounddiag.cli.summary import describe_failed_steps, silence_failed_steps
    from rounddiag.export import report

    page = Path(options.output or f"{Path(options.file).resolve().stem}.html")
    suffix = ", replacing an existing file" if page.exists() else ""
    run = _open_run(options)
    if run is None:
        samples = _NUM_DRAWN if options.samples is None else options.samples
        batch = _load(options)
        _print_row_note(options, batch)
        report(batch, page, samples=samples)
    else:
        _refuse(options, "samples", needs="one batch", given="a run")
        _print_row_note(options, run)
        with silence_failed_steps():
            report(run, page)
    print_text(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB){suffix}")
    if run is not None and run.failed:
        print_text(describe_failed_steps(run))
    return 0


def _lab(options: argparse.Namespace) -> int:
    from rounddiag.cli.lab import prepare_notebook, start_lab

    notebook = None
    if options.file:
        notebook = prepare_notebook(
            Path(options.file),
            Path.cwd(),
            tokenizer=options.tokenizer,
            untrusted=options.untrusted,
            sample_by=options.sample_by,
            order_by=options.order_by,
        )
    else:
        names = ("tokenizer", "untrusted", "sample_by", "order_by")
        _refuse(options, *names, needs="a FILE", given="none")
    if notebook and notebook != Path(options.file).resolve():
        print_text(f"notebook: {notebook} (created once, never overwritten)")
    announce = (lambda text: print_text(f"\n{text}\n")) if options.remote else None
    start_lab(notebook, options.jupyter, announce=announce)
    return 0


def _ingest(options: argparse.Namespace) -> int:
    from rounddiag.runs import ingest, open_run

    given = {"sample_by": options.sample_by, "order_by": options.order_by}
    done = ingest(
        options.paths,
        options.output,
        engine=options.engine,
        images=options.images,
        **{name: value for name, value in given.items() if value is not None},
    )
    if done.written or done.unchanged:
        _print_row_note(options, open_run(done.folder))
    print_text(str(done))
    return int(bool(done.failed))


def _recipe(options: argparse.Namespace) -> int:
    from rounddiag.cli.recipe import describe_recipe

    print(describe_recipe(options.name))
    return 0


def _skill(options: argparse.Namespace) -> int:
    from rounddiag.cli.skill import copy_skill, read_skill

    if options.to is None:
        print(read_skill())
    else:
        print_text(f"wrote {copy_skill(options.to)}")
    return 0


_COMMANDS = {
    "demo": _demo,
    "summary": _summary,
    "check": _check,
    "show": _show,
    "watch": _watch,
    "prove": _prove,
    "ask": _ask,
    "preflight": _preflight,
    "report": _report,
    "lab": _lab,
    "ingest": _ingest,
    "recipe": _recipe,
    "skill": _skill,
}
