"""Exit codes, and errors that fit in one line."""

from __future__ import annotations

import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch

import rounddiag
from rounddiag.batch import Batch
from rounddiag.cli import main
from rounddiag.loaders.sample_batches import DEMOS, DemoName, sample_path

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file_of_zeros(tmp_path: Path) -> Path:
    file = tmp_path / "saved.parquet"
    zeros = torch.zeros(1, 2)
    batch = Batch.from_padded(
        response_ids=torch.ones(1, 2, dtype=torch.int64),
        response_mask=torch.ones(1, 2),
        rollout_log_probs=zeros,
        old_log_probs=zeros,
    )
    rounddiag.save(batch, file)
    return file


def test_summary_prints_the_rounds(
    file_of_zeros: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", str(file_of_zeros)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("not_measurable: `rollout_log_probs` are 0 at all 2 ")
    assert "\nfailed check (note): the mismatch can be measured: " in out
    assert "\n1 sample, 1 round, 2 generated tokens\n" in out
    assert err == ""


def test_the_lines_that_open_a_file_are_printed_as_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.json"
    file.write_text('{"log": [{"role": "assistant", "content": "\\u001b[2J"}]}')

    assert main(["summary", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"rounddiag: {file}: expected a saved batch; found")
    assert lines[-1].startswith("batch = rd.load(")
    assert "import rounddiag as rd" in lines


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("image_window", "broken"),
        ("healthy", "healthy"),
        ("stale", "stale"),
        ("truncated_sampling", "suspicious"),
        ("step_rows", "broken"),
        ("one_engine", "not_measurable"),
    ],
)
def test_a_demo_has_its_verdict_and_a_call_that_shows_it(
    name: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", name]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith(DEMOS[name].sentence)
    assert f"\n{verdict}: " in out
    code = [line.strip() for line in out.splitlines() if line.startswith("    ")]
    shown: list[tuple[rounddiag.Batch, dict[str, object]]] = []
    call = code[-1].replace("rd.explore", "explore")
    exec(call, {"rd": rounddiag, "explore": lambda b, **view: shown.append((b, view))})  # noqa: S102
    batch, view = shown[0]
    assert batch.num_samples == (12 if name == "step_rows" else 64)
    assert set(view.values()) <= {*batch.round_columns, *batch.sample_columns}


def test_the_demo_without_a_name_is_the_one_of_the_first_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo"]) == 0
    out, _ = capsys.readouterr()
    assert "\nbroken: 74 tokens differ by more than a factor of 2, " in out
    assert tuple(DEMOS) == get_args(DemoName)


def test_the_wheel_contains_the_file_of_each_demo() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    files = {sample_path(situation.file) for situation in DEMOS.values()}
    for file in (*files, ROOT / str(rounddiag.demo().tokenizer)):
        name = file.relative_to(ROOT).as_posix()
        assert f'"{name}" = "rounddiag/{name}"' in project
        assert f'"/{name}",' in project


NO_FILE = "missing.pkl: expected a file, a folder or a glob;"
NO_TOKENIZER = "tokenizer.json: expected a `tokenizer.json`"
WINDOW = str(ROOT / "sample_data" / "image_window.parquet")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        *((f"{name} missing.pkl", 1, NO_FILE) for name in ("summary", "lab", "report")),
        ("ingest -o new missing.pkl", 1, NO_FILE),
        *((f"check missing.pkl{more}", 2, NO_FILE) for more in ("", " --json")),
        ("summary notes.txt", 1, "notes.txt: "),
        *((f"check notes.txt{more}", 2, "notes.txt: ") for more in ("", " --json")),
        ("summary empty", 1, "empty: "),
        *((f"watch missing{more}", 2, "missing: ") for more in ("", " --once")),
        *(
            (f"{name} saved.parquet --tokenizer tokenizer.json", code, NO_TOKENIZER)
            for name, code in (("summary", 1), ("check", 2), ("report", 1), ("lab", 1))
        ),
        ("demo health", 1, "`name`: expected"),
        ("recipe x", 1, "`recipe`: expected one of ['verl', "),
        (
            f"show {WINDOW} 'task-08/1 / r9'",
            1,
            "`address`: expected a round of task-08/1, up to 5",
        ),
    ],
)
def test_an_error_is_one_line_and_nothing_is_written(
    words: str,
    code: int,
    message: str,
    file_of_zeros: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = file_of_zeros.parent
    monkeypatch.chdir(folder)
    (folder / "notes.txt").write_text("not a batch\nat all\n")
    (folder / "empty").mkdir()
    before = sorted(folder.rglob("*"))
    assert main(shlex.split(words)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.replace(f"{folder}/", "").startswith(f"rounddiag: {message}")
    assert err.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_a_bare_call_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("usage: rounddiag ")
    assert "print the verdict on a saved batch" in out
    assert err == ""


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--version"])
    assert capsys.readouterr().out == f"rounddiag {rounddiag.__version__}\n"


@pytest.mark.parametrize(
    ("file", "wrong"),
    [
        ("missing.pkl", "a file, a folder or a glob; found nothing. Check the path."),
        (
            "README.md",
            "a saved batch; found bytes that start with b'# roundd'."
            " `rounddiag.formats()` lists what can be opened.",
        ),
    ],
)
def test_a_wrong_path_or_file_imports_nothing_heavy(file: str, wrong: str) -> None:
    code = (
        f"import sys; from rounddiag.cli import main; main(['summary', {file!r}]);"
        " sys.exit(bool({'torch', 'numpy', 'pandas', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        0,
        f"rounddiag: {file}: expected {wrong}\n",
    )


@pytest.mark.slow
def test_a_closed_pipe_ends_it_silently() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rounddiag", "recipe"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.close()
    assert process.stderr
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert process.wait() == 141


def test_an_interrupt_ends_it_silently(
    file_of_zeros: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(_: Path, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rounddiag.loaders.load", interrupted)
    assert main(["summary", str(file_of_zeros)]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "arguments",
    [["summary"], ["draw", "x"], ["lab", "a", "b"], ["check", "--fail-on", "x", "y"]],
)
def test_a_wrong_call_shows_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(arguments)
    assert capsys.readouterr().err.startswith("usage: rounddiag ")


def test_python_can_run_the_package(
    file_of_zeros: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["rounddiag", "summary", str(file_of_zeros)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("rounddiag", run_name="__main__")
    assert ended.value.code == 0
    assert "\n1 sample, 1 round, 2 generated tokens\n" in capsys.readouterr().out


def test_lab_prints_which_notebook_it_creates(
    file_of_zeros: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rounddiag.cli.lab.start_lab", lambda *_, **__: None)
    notebook = tmp_path / "rounddiag_notebooks" / "saved.ipynb"
    line = f"notebook: {notebook} (created once, never overwritten)\n"
    assert main(["lab", str(file_of_zeros)]) == 0
    assert capsys.readouterr().out == line
    assert main(["lab", str(notebook)]) == 0
    assert capsys.readouterr().out == ""


def test_lab_passes_the_rest_to_jupyterlab(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        "rounddiag.cli.lab.start_lab", lambda *args, **more: calls.append((args, more))
    )
    assert main(["lab", "--", "--port=1", "--", "x"]) == 0
    assert calls == [((None, ["--port=1", "--", "x"]), {"announce": None})]
