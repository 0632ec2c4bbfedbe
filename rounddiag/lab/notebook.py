"""The notebook that loads one file; it is written once and never written over."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER = "rounddiag_notebooks"
_TITLE = "# In which round do the two engines disagree?\n\nThe batch is `{name}`."
_CODE = (
    "import rounddiag as rd\n\nbatch = rd.load({path!r})\nbatch",
    "explorer = rd.explore(batch)\nexplorer",
    "explorer.selection  # the tokens of what is chosen above",
    "rd.round_summary(batch)",
)


def notebook_for(file: Path, folder: Path) -> Path:
    """Find or write the notebook that loads `file`, below `folder`.

    Parameters
    ----------
    file : Path
        A saved batch; or a notebook, which is returned as it is.
    folder : Path
        The folder that has, or gets, a folder `rounddiag_notebooks`.

    Returns
    -------
    Path
        The notebook of this very file if there is one (it may hold someone's work),
        else a new one under a name that is free.

    Raises
    ------
    RounddiagError
        There is no such file.
    """
    if not file.is_file():
        raise RounddiagError.build(
            file=file,
            expected="a saved batch or a notebook",
            found="no such file",
            advice="Check the path.",
        )
    if file.suffix == ".ipynb":
        return file.resolve()
    notebook = _place_of(file, folder.resolve() / _FOLDER)
    if not notebook.exists():
        _write(notebook, file.resolve())
    return notebook


def _place_of(file: Path, folder: Path) -> Path:
    """Return the notebook of `file`, or the first name that nobody has."""
    names = (f"{file.stem}_{number}" for number in range(2, sys.maxsize))
    notebook = folder / f"{file.stem}.ipynb"
    while notebook.exists() and _loads(notebook) != str(file.resolve()):
        notebook = folder / f"{next(names)}.ipynb"
    return notebook


def _loads(notebook: Path) -> str | None:
    """Return the file that a notebook of ours was written for."""
    try:
        metadata = json.loads(notebook.read_bytes())["metadata"]
        return str(metadata["rounddiag"]["loads"])
    except (KeyError, TypeError, ValueError):
        return None  # somebody else's


def _write(notebook: Path, file: Path) -> None:
    from nbformat import v4, writes

    title = v4.new_markdown_cell(_TITLE.format(name=file.name))
    code = [v4.new_code_cell(text.format(path=str(file))) for text in _CODE]
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"},
        "rounddiag": {"loads": str(file)},
    }
    content = writes(v4.new_notebook(cells=[title, *code], metadata=metadata))
    notebook.parent.mkdir(exist_ok=True)
    with notebook.open("x", encoding="utf-8") as new:
        new.write(content + "\n")
