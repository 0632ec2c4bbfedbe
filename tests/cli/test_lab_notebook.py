"""A notebook is created for a file once, and nothing is ever overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rounddiag.cli.lab import prepare_notebook
from rounddiag.errors import RounddiagError
from tests.runs.step_folders import write_steps


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """A file with a name that tries to break out of the code that loads it."""
    file = tmp_path / "data" / 'it\'s "so" {name}.pkl'
    file.parent.mkdir()
    file.touch()
    return file


def read(notebook: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(notebook.read_bytes())
    return content


def code_of(notebook: Path) -> list[str]:
    cells = read(notebook)["cells"]
    return [cell["source"] for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_loads_the_file(batch: Path, tmp_path: Path) -> None:
    notebook = prepare_notebook(batch, tmp_path)
    assert notebook == tmp_path / "rounddiag_notebooks" / f"{batch.stem}.ipynb"
    assert read(notebook)["metadata"]["kernelspec"]["name"] == "python3"
    (source,) = code_of(notebook)
    assert f"rd.load({str(batch)!r})" in source
    assert compile(source, "cell", "exec") is not None


@pytest.mark.slow
def test_the_notebooks_of_a_file_and_of_a_run_are_valid(
    batch: Path, tmp_path: Path
) -> None:
    import nbformat  # takes two seconds

    run = write_steps(tmp_path / "run", {1: 1, 2: 1})
    for source in (batch, run):
        notebook = nbformat.read(prepare_notebook(source, tmp_path), as_version=4)
        nbformat.validate(notebook)


def test_the_notebook_of_a_run_opens_its_figure_verdicts_and_explorer(
    tmp_path: Path,
) -> None:
    folder = write_steps(tmp_path / "run", {1: 1, 2: 1})
    sources = code_of(prepare_notebook(folder, tmp_path))
    assert sources[1:] == ["rd.plot_run(run)", "run.diagnose()", "rd.explore(run)"]
    names: dict[str, object] = {}
    for source in sources:
        exec(source, names)  # noqa: S102 our own cells
    assert repr(names["run"]).startswith(f"Run(run: {folder}")


def test_the_same_file_gets_the_same_notebook_with_the_work_in_it(
    batch: Path, tmp_path: Path
) -> None:
    notebook = prepare_notebook(batch, tmp_path)
    content = read(notebook)
    title = {"cell_type": "markdown", "metadata": {}, "source": ["# Mine"]}
    (load,) = content["cells"]
    # As Jupyter saves it: a list of lines.
    load["source"] = load["source"].splitlines(keepends=True)
    content["cells"] = [title, load, {**load, "source": ["1 + 1"]}]
    notebook.write_text(json.dumps(content), encoding="utf-8")
    assert prepare_notebook(batch, tmp_path) == notebook
    assert len(read(notebook)["cells"]) == 3


def test_a_notebook_that_claims_to_be_ours_is_not_opened(
    batch: Path, tmp_path: Path
) -> None:
    """It came with the file, and its metadata name the path."""
    theirs = prepare_notebook(batch, tmp_path)
    content = read(theirs)
    content["cells"][0]["source"] = "import os; os.system('true')"
    theirs.write_text(json.dumps(content), encoding="utf-8")
    notebook = prepare_notebook(batch, tmp_path)
    assert notebook.name == f"{batch.stem}_2.ipynb"
    assert code_of(notebook)[0].startswith("import rounddiag as rd\n")


@pytest.mark.parametrize("target", ["theirs.ipynb", "missing.ipynb"])
def test_a_link_to_a_notebook_is_not_opened(
    batch: Path, tmp_path: Path, target: str
) -> None:
    notebook = prepare_notebook(batch, tmp_path)
    notebook.rename(tmp_path / "theirs.ipynb")
    notebook.symlink_to(tmp_path / target)
    assert prepare_notebook(batch, tmp_path).name == f"{batch.stem}_2.ipynb"


@pytest.mark.parametrize("untrusted", [False, True])
def test_a_folder_of_notebooks_that_is_a_link_is_refused(
    batch: Path, tmp_path: Path, *, untrusted: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rounddiag_notebooks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RounddiagError, match="expected a folder for notebooks; found"):
        prepare_notebook(batch, tmp_path, untrusted=untrusted)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_modules_beside_a_stranger_s_notebook_are_refused(
    batch: Path, tmp_path: Path
) -> None:
    """A kernel would import them in place of ours."""
    module = tmp_path / "rounddiag_notebooks" / "rounddiag.py"
    module.parent.mkdir()
    module.touch()
    with pytest.raises(
        RounddiagError, match=r"nothing but notebooks, .* rounddiag\.py"
    ):
        prepare_notebook(batch, tmp_path, untrusted=True)
    module.unlink()
    (tmp_path / "rounddiag_notebooks" / ".ipynb_checkpoints").mkdir()
    assert prepare_notebook(batch, tmp_path, untrusted=True).exists()


def test_another_file_of_that_name_gets_another_notebook(
    batch: Path, tmp_path: Path
) -> None:
    first = prepare_notebook(batch, tmp_path)
    other = tmp_path / batch.name
    other.touch()
    second = prepare_notebook(other, tmp_path)
    assert second.name == f"{batch.stem}_2.ipynb"
    assert prepare_notebook(batch, tmp_path) == first
    assert prepare_notebook(other, tmp_path) == second


def test_a_tokenizer_is_passed_on_and_has_a_notebook_of_its_own(
    batch: Path, tmp_path: Path
) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(Path("sample_data/tokenizer.json").read_bytes())
    plain = prepare_notebook(batch, tmp_path)

    notebook = prepare_notebook(batch, tmp_path, tokenizer=str(tokenizer))

    (code,) = code_of(notebook)
    assert f"rd.load({str(batch)!r}, tokenizer={str(tokenizer)!r})" in code
    assert notebook.name == f"{batch.stem}_2.ipynb"
    assert prepare_notebook(batch, tmp_path, tokenizer=str(tokenizer)) == notebook
    assert prepare_notebook(batch, tmp_path) == plain


def test_a_stranger_s_file_never_gets_a_notebook_that_trusts_it(
    batch: Path, tmp_path: Path
) -> None:
    trusting = prepare_notebook(batch, tmp_path)

    notebook = prepare_notebook(batch, tmp_path, untrusted=True)

    (code,) = code_of(notebook)
    assert f"rd.load({str(batch)!r}, untrusted=True)" in code
    assert notebook.name == f"{batch.stem}_2.ipynb"
    third = prepare_notebook(batch, tmp_path, untrusted=True)
    assert third.name == f"{batch.stem}_3.ipynb"
    assert code_of(third) == [code]
    assert prepare_notebook(batch, tmp_path) == trusting


def test_a_stranger_s_folder_is_loaded_as_one_step(tmp_path: Path) -> None:
    write_steps(tmp_path / "theirs", {1: 1, 2: 1})
    notebook = prepare_notebook(tmp_path / "theirs", tmp_path, untrusted=True)
    (code,) = code_of(notebook)
    assert f"rd.load({str(tmp_path / 'theirs')!r}, untrusted=True)" in code
    run = prepare_notebook(tmp_path / "theirs", tmp_path)
    assert "rd.open_run(" in code_of(run)[0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("empty", {}, r"expected a folder of step files.*no file"),
        ("theirs.ipynb", {"untrusted": True}, "found a notebook, whose cells run code"),
        ("x.json", {"tokenizer": "none.json"}, "found no such file"),
        (
            "x.pkl",
            {},
            r"x\.pkl: expected a saved batch, a folder of step files or a notebook;"
            r" found no such file\. Check the path\.$",
        ),
    ],
)
def test_what_gets_no_notebook(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    for file in ("theirs.ipynb", "x.json"):
        (tmp_path / file).write_text("{}")
    with pytest.raises(RounddiagError, match=message):
        prepare_notebook(tmp_path / name, tmp_path, **options)
    assert not (tmp_path / "rounddiag_notebooks").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"metadata": null}', "\x00"])
def test_a_file_of_another_origin_is_left_alone(
    batch: Path, tmp_path: Path, content: str
) -> None:
    taken = tmp_path / "rounddiag_notebooks" / f"{batch.stem}.ipynb"
    taken.parent.mkdir()
    taken.write_text(content)
    assert prepare_notebook(batch, tmp_path).name == f"{batch.stem}_2.ipynb"
    assert taken.read_text() == content


def test_a_notebook_is_opened_as_it_is(tmp_path: Path) -> None:
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text("{}")
    assert prepare_notebook(notebook, tmp_path) == notebook
    assert [path.name for path in tmp_path.iterdir()] == ["mine.ipynb"]
