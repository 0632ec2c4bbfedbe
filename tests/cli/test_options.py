"""Every option of every command, with a file, a run, a folder of one step and others.

Each changes what is read, done or printed, or the command refuses it by name.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import pytest

import rounddiag as rd
from rounddiag.cli import main
from rounddiag.cli.options import build_parser
from tests.runs.step_folders import scaled_batch, write_steps

# Another value than the default of each option that takes one.
VALUES = {
    "--to": "skills",
    "--tokenizer": "sample_data/tokenizer.json",
    "--sample-by": "sample_id",
    "--order-by": "row",
    "--fail-on": "noisy",
    "--model": "sample_data/model",
    "--server": "http://127.0.0.1:8000",
    "--episodes": "sample_data/healthy.parquet",
    "--scorer": "python score.py",
    "--after": "python sync.py",
    "--seed": "7",
    "--last": "2",
    "--every": "7",
    "--hypotheses": "temperature",
    "--checkpoint": "older=sample_data/older_model",
    "--adapter": "a=folder",
    "--at": "0 / r0",
    "--budget": "7",
    "-o": "result",
    "--samples": "0",
    "--engine": "ray",
    "--images": "none",
}
# What a command needs beside the file, and what it may be given in its place.
NEEDED = {
    "show": ["0"],
    "prove": ["--model", "sample_data/older_model"],
    "ask": ["--model", "sample_data/older_model"],
    "preflight": ["--server", "http://127.0.0.1:9"],
    "ingest": ["-o", "elsewhere"],
}
PLACES = ("file", "run", "one step", "notebook", "nothing")


class Outcome(NamedTuple):
    code: object
    out: str
    err: str
    calls: tuple[object, ...]

    def refuses(self, option: str) -> bool:
        return self.code in (1, 2) and (not option or option in self.err)


def commands() -> dict[str, argparse.ArgumentParser]:
    (group,) = build_parser()._subparsers._group_actions  # type: ignore[union-attr]
    parsers: Any = group.choices
    return dict(parsers)


def crossed() -> Iterator[tuple[str, str, str]]:
    for name, parser in commands().items():
        flags = [action.option_strings for action in parser._actions]
        options = [names[-1] for names in flags if names and names[-1] != "--help"]
        places = PLACES if name == "lab" else PLACES[:3]
        for option in options:
            yield from ((name, option, place) for place in places)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("places")
    rd.save(scaled_batch(1), folder / "saved.parquet")
    (folder / "other.ipynb").write_text("{}")
    return {
        "file": [str(folder / "saved.parquet")],
        "run": [str(write_steps(folder / "run", {1: 1, 2: 1}))],
        "one step": [str(write_steps(folder / "single", {3: 1}))],
        "notebook": [str(folder / "other.ipynb")],
        "nothing": [],
    }


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Write down what a command asks of the slow functions, of which few are called."""
    calls: list[object] = []

    def record(name: str, answer: Any, *args: object, **options: object) -> object:
        calls.append((name, [*map(str, args)], sorted(map(str, options.items()))))
        options.pop("untrusted", None)
        return answer(*args, **options) if callable(answer) else answer

    def written(_: object, page: Path, **__: object) -> None:
        Path(page).write_text("")

    proof = SimpleNamespace(frame=pd.DataFrame(), save=lambda _: calls.append("saved"))
    facts = ("verdict", "side", "cause", "causes", "next_step", "not_tested", "seconds")
    vars(proof).update(dict.fromkeys(facts, ""))
    asked = dict.fromkeys(("alternatives", "sight", "tiles"), pd.DataFrame())
    reply = SimpleNamespace(**asked, model="", seconds=0.0, save=proof.save)
    for name, answer in {
        "rounddiag.loaders.load": rd.load,
        "rounddiag.runs.open_run": rd.open_run,
        "rounddiag.proof.prove": proof,
        "rounddiag.export.report": written,
        "rounddiag.cli.watch.watch_run": 0,
        "rounddiag.proof.ask": reply,
        "rounddiag.cli.preflight.run_preflight": ("", False),
        "rounddiag.cli.lab.start_lab": None,
        "rounddiag.runs.ingest": SimpleNamespace(failed=(), written=(), unchanged=()),
    }.items():
        monkeypatch.setattr(name, partial(record, name, answer))
    return calls


def run(words: list[str], calls: list[object], capsys: Any) -> Outcome:
    calls.clear()
    try:
        code: object = main(words)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return Outcome(code, out, err, tuple(map(str, calls)))


@pytest.mark.parametrize(("command", "option", "place"), [*crossed()])
def test_an_option_works_or_is_refused(
    command: str,
    option: str,
    place: str,
    places: dict[str, list[str]],
    calls: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "sample_data").symlink_to(Path("sample_data").resolve())
    monkeypatch.chdir(tmp_path)
    needed = NEEDED.get(command, [])
    if option in needed:
        needed = []
    words = [command, *places[place], *needed]
    takes_value = commands()[command]._option_string_actions[option].nargs != 0
    value = [VALUES[option]] if takes_value else []
    without, given = (
        run([*words, *more], calls, capsys) for more in ([], [option, *value])
    )
    if without.refuses("") and option not in NEEDED.get(command, []):
        assert given.refuses("")  # a run has no proof: the command says so
    else:
        assert given.refuses(option) or given != without


@pytest.mark.parametrize("command", [name for name in commands() if name != "lab"])
def test_words_after_two_dashes_are_no_options_but_of_lab(
    command: str, places: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, *places["file"], *NEEDED.get(command, []), "--", "--json", "x"])
    assert capsys.readouterr().err.startswith("usage: rounddiag")


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--checkpoint", "a=/x", "--checkpoint", "a=/y"], "'a' twice"),
        (["--adapter", "a=/x", "--adapter", "a=/x"], "'a' twice"),
        (["--checkpoint", "/x"], "expected LABEL=FOLDER; found '/x'"),
        (["--checkpoint", "a="], "expected LABEL=FOLDER; found 'a='"),
        (["--budget", "nan"], "expected seconds, more than 0; found 'nan'"),
        (["--budget", "x"], "expected seconds, more than 0; found 'x'"),
        (["--budget", "-1"], "expected seconds, more than 0; found '-1'"),
        (["--model", "/no/such/model"], "found no '/no/such/model'"),
    ],
)
def test_a_value_that_would_be_dropped_is_refused(
    words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["prove", "sample_data/stale.parquet", "--model", "m", *words])
    assert wrong in capsys.readouterr().err


def test_all_labels_reach_the_proof(
    calls: list[object], places: dict[str, list[str]], capsys: Any
) -> None:
    labels = ["--checkpoint", "a=/x", "--checkpoint", "b=/x=y"]
    done = run(["prove", *places["file"], "--model", "m", *labels], calls, capsys)
    assert "('checkpoints', {'a': '/x', 'b': '/x=y'})" in str(done.calls[-1])


def test_a_run_is_judged_without_a_model_for_several_steps(
    places: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *places["run"], "--last", "2", "--model", "m"]) == 2
    assert capsys.readouterr().err == (
        "rounddiag: `--model`: expected one batch to prove; found several steps. Leave"
        " the option out.\n"
    )
