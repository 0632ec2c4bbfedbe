"""`rounddiag lab`: a notebook that loads a file or a run, and JupyterLab at it."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rounddiag.errors import RounddiagError, import_extra
from rounddiag.loaders.assembly.join_hint import check_order
from rounddiag.runs.folder import RunFolder
from rounddiag.text.tokenizers import decoder
from rounddiag.wording import join_names

_CHECKOUT = Path(__file__).parents[2]
_FOLDER = "rounddiag_notebooks"
_MAX_STEM = 60  # characters of a notebook's name, of at most four bytes each
# One cell for a file: the explorer is on the screen once it has run. The name of the
# file is in code only: in markdown, it could be a link or a picture.
_CODE = """import rounddiag as rd

batch = rd.load({path!r}{options})
explorer = rd.explore(batch)
explorer"""
_RUN_TITLE = "# When did the two engines begin to disagree?"
_RUN_CODE = (
    "import rounddiag as rd\n\nrun = rd.open_run({path!r}{options})\nrun",
    "rd.plot_run(run)",
    "run.diagnose()",
    "rd.explore(run)",
)


def prepare_notebook(
    file: Path,
    folder: Path,
    *,
    tokenizer: str | None = None,
    untrusted: bool = False,
    sample_by: Sequence[str] | None = None,
    order_by: str | None = None,
) -> Path:
    """Find or create the notebook that loads a file, or the run in a folder."""
    check_order(sample_by, order_by)
    if not file.exists():
        raise RounddiagError.build(
            file=file,
            expected="a saved batch, a folder of step files or a notebook",
            found="no such file",
            advice="Check the path.",
        )
    if file.suffix == ".ipynb":
        given = {
            "--untrusted": untrusted,
            "--tokenizer": tokenizer,
            "--sample-by": sample_by,
        }
        for option in filter(given.get, given):
            raise RounddiagError.build(
                file=file,
                expected=f"a saved batch, for which `{option}` is",
                found="a notebook, whose cells run code",
                advice="Read its cells before you run them, or open it without the"
                " option.",
            )
        return file.resolve()
    # A run has no guard: an untrusted folder is loaded as the files of one step.
    is_run = file.is_dir() and not untrusted
    if is_run:
        RunFolder(file).steps()  # a folder without any is an error now
    options = ""
    if tokenizer is not None:
        decoder(tokenizer)
        is_path = Path(tokenizer).exists()
        name = str(Path(tokenizer).resolve()) if is_path else tokenizer
        options += f", tokenizer={name!r}"
    if sample_by:
        names = sample_by[0] if len(sample_by) == 1 else [*sample_by]
        options += f", sample_by={names!r}"
        options += f", order_by={order_by!r}" if order_by else ""
    options += ", untrusted=True" if untrusted else ""
    codes = [
        code.format(path=str(file.resolve()), options=options)
        for code in (_RUN_CODE if is_run else [_CODE])
    ]
    notebooks = folder.resolve() / _FOLDER
    _check_folder(notebooks, untrusted=untrusted)
    return _notebook_with(codes, notebooks, file.stem, may_exist=not untrusted)


def _check_folder(notebooks: Path, *, untrusted: bool) -> None:
    """Refuse a folder for notebooks that came with somebody's file.

    A kernel runs in the folder of its notebook, and imports modules from there first.
    """
    if notebooks.is_symlink():
        raise RounddiagError.build(
            file=notebooks,
            expected="a folder for notebooks",
            found="a link",
            advice="Remove it, or run the command in another folder.",
        )
    entries = notebooks.iterdir() if untrusted and notebooks.exists() else ()
    others = sorted(
        entry.name
        for entry in entries
        if entry.suffix != ".ipynb" and entry.name != ".ipynb_checkpoints"
    )
    if others:
        raise RounddiagError.build(
            file=notebooks,
            expected="nothing but notebooks, beside a file that is not trusted",
            found=join_names(others),
            advice="A kernel could import it: run the command in another folder.",
        )


def _notebook_with(
    codes: Sequence[str], folder: Path, stem: str, *, may_exist: bool
) -> Path:
    """Return the notebook that begins with the first code; write it if there is none.

    A notebook that came with a file can have our name for it, and run something else.
    """
    # Jupyter cannot open names that are not UTF-8.
    stem = "".join(c if c.isprintable() else "_" for c in stem[:_MAX_STEM])
    for number in count(1):
        notebook = folder / (
            f"{stem}_{number}.ipynb" if number > 1 else f"{stem}.ipynb"
        )
        if not os.path.lexists(notebook):
            break
        if (
            may_exist
            and not notebook.is_symlink()
            and _first_code(notebook) == codes[0]
        ):
            return notebook
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "outputs": [], "source": code}
        for code in codes
    ]
    if len(cells) > 1:
        cells.insert(0, {"cell_type": "markdown", "source": _RUN_TITLE})
    # As nbformat writes it, which takes two seconds to import.
    content = {
        "cells": [
            {**cell, "id": f"cell-{number}", "metadata": {}}
            for number, cell in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    folder.mkdir(exist_ok=True)
    with notebook.open("xb") as new:
        new.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")
    return notebook


def _first_code(notebook: Path) -> str | None:
    try:
        cells = json.loads(notebook.read_bytes())["cells"]
        codes = (cell["source"] for cell in cells if cell["cell_type"] == "code")
        return "".join(next(codes, ""))
    except (KeyError, TypeError, ValueError, RecursionError, OSError):
        return None


def start_lab(
    notebook: Path | None,
    jupyter_arguments: Sequence[str] = (),
    *,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Run JupyterLab until the user stops it; announce how to connect to it."""
    labapp = import_extra("jupyterlab.labapp", "lab", "which shows the notebook")
    notebook = notebook or min((_CHECKOUT / "notebooks").glob("*.ipynb"), default=None)
    # A python3 kernel in the user's home folder could run another environment.
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    overridden = {_option(argument) for argument in jupyter_arguments}
    ours = [part for part in _arguments(notebook) if _option(part) not in overridden]
    arguments = [*ours, *jupyter_arguments]
    if announce is None:
        labapp.LabApp.launch_instance(arguments)
        return
    server = labapp.LabApp.initialize_server([*arguments, "--no-browser"])
    announce(_connection_help(server))  # it listens, and answers once it has started
    server.start()


def _option(argument: str) -> str:
    """Return `ip` for `--ip=...` and `--ServerApp.ip=...`; Jupyter rejects both."""
    return argument.partition("=")[0].lstrip("-").rpartition(".")[2]


def _arguments(notebook: Path | None) -> list[str]:
    root = Path.cwd()
    if notebook and not notebook.is_relative_to(root):
        in_checkout = notebook.is_relative_to(_CHECKOUT)
        root = _CHECKOUT if in_checkout else notebook.parent
    # "readonly": the default extension manager queries a package index.
    arguments = ["--ip=127.0.0.1", "--LabApp.extension_manager=readonly"]
    arguments.append(f"--ServerApp.root_dir={root}")
    if notebook:
        path = quote(notebook.relative_to(root).as_posix())
        arguments.append(f"--LabApp.default_url=/lab/tree/{path}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Common in containers; the token still protects it.
        arguments.append("--allow-root")
    return arguments


def _connection_help(server: Any) -> str:  # noqa: ANN401 a ServerApp of Jupyter
    name = socket.getfqdn()
    host = socket.gethostname() if name.startswith("localhost") else name
    forward = f"{server.port}:127.0.0.1:{server.port}"
    token = server.identity_provider.token
    return (
        f"On your own computer:  ssh -N -L {forward} {getpass.getuser()}@{host}\n"
        f"Then open there:       {server.connection_url}{token and f'?token={token}'}"
    )
