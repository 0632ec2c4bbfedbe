"""`rounddiag lab`: a notebook that loads a file or a run, and JupyterLab at it."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rounddiag.errors import RounddiagError
from rounddiag.runs.folder import RunFolder
from rounddiag.text.tokenizers import decoder
from rounddiag.wording import join_names, printable

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
    file: Path, folder: Path, *, tokenizer: str | None = None, untrusted: bool = False
) -> Path:
    """Find or create the notebook that loads a file, or the run in a folder."""
    if not file.exists():
        raise RounddiagError.build(
            file=file,
            expected="a saved batch, a folder of step files or a notebook",
            found="no such file",
            advice="Check the path.",
        )
    if file.suffix == ".ipynb":
        if untrusted or tokenizer is not None:
            option = "--untrusted" if untrusted else "--tokenizer"
            raise RounddiagError.build(
                file=file,
                expected=f"a saved batch, for which `{option}` is",
                found="a notebook, whose cells run code",
                advice="Read its cells before you run them, or open it without the"
                " option.",
            )
        return file.resolve()
    if file.is_dir() and not untrusted:
        RunFolder(file).steps()  # a folder without any is an error now
    # `untrusted` belongs to it: a notebook that loads without it is another one.
    loads: dict[str, Any] = {"loads": printable(file.resolve())}
    if untrusted:
        loads["untrusted"] = True
    if tokenizer is not None:
        decoder(tokenizer)
        is_path = Path(tokenizer).exists()
        loads["tokenizer"] = str(Path(tokenizer).resolve()) if is_path else tokenizer
    notebooks = folder.resolve() / _FOLDER
    _check_folder(notebooks, untrusted=untrusted)
    content = _content(file.resolve(), loads)
    notebook = _notebook_path(file, notebooks, content, may_exist=not untrusted)
    if not notebook.exists():
        _write(notebook, content)
    return notebook


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
    if untrusted and notebooks.exists():
        others = sorted(
            entry.name
            for entry in notebooks.iterdir()
            if entry.suffix != ".ipynb" and entry.name != ".ipynb_checkpoints"
        )
        if others:
            raise RounddiagError.build(
                file=notebooks,
                expected="nothing but notebooks, beside a file that is not trusted",
                found=join_names(others, len(others)),
                advice="A kernel could import it: run the command in another folder.",
            )


def _notebook_path(
    file: Path, folder: Path, content: dict[str, Any], *, may_exist: bool
) -> Path:
    """Return the path of the notebook with this content, or the first unused path."""
    # Jupyter cannot open names that are not UTF-8.
    stem = "".join(c if c.isprintable() else "_" for c in file.stem[:_MAX_STEM])
    names = (f"{stem}_{number}" for number in range(2, sys.maxsize))
    notebook = folder / f"{stem}.ipynb"
    while os.path.lexists(notebook) and not (
        may_exist and _loads_the_same(notebook, content)
    ):
        notebook = folder / f"{next(names)}.ipynb"
    return notebook


def _loads_the_same(notebook: Path, content: dict[str, Any]) -> bool:
    """Return whether we created a notebook for the same, and its first code is ours.

    A notebook that came with a file can claim to be ours, and run something else.
    """
    if notebook.is_symlink():
        return False
    try:
        known = json.loads(notebook.read_bytes())
        is_ours = known["metadata"]["rounddiag"] == content["metadata"]["rounddiag"]
        return is_ours and _first_code(known) == _first_code(content)
    except (KeyError, TypeError, ValueError, RecursionError, OSError):
        return False


def _first_code(notebook: dict[str, Any]) -> str | None:
    cells = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    return next(("".join(cell["source"]) for cell in cells), None)


def _content(file: Path, loads: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook that loads a file, in the format of nbformat."""
    chosen = {name: loads[name] for name in ("tokenizer", "untrusted") if name in loads}
    options = "".join(f", {name}={value!r}" for name, value in chosen.items())
    # A run has no guard: an untrusted folder is loaded as the files of one step.
    is_run = file.is_dir() and "untrusted" not in loads
    texts = [
        text.format(path=str(file), options=options)
        for text in (_RUN_CODE if is_run else [_CODE])
    ]
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "outputs": [], "source": text}
        for text in texts
    ]
    if is_run:
        cells.insert(0, {"cell_type": "markdown", "source": _RUN_TITLE})
    # As nbformat writes it, which takes two seconds to import.
    return {
        "cells": [
            {**cell, "id": f"cell-{number}", "metadata": {}}
            for number, cell in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"},
            "rounddiag": loads,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _write(notebook: Path, content: dict[str, Any]) -> None:
    notebook.parent.mkdir(exist_ok=True)
    with notebook.open("xb") as new:
        new.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


def start_lab(
    notebook: Path | None,
    jupyter_arguments: Sequence[str] = (),
    *,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Run JupyterLab until the user stops it."""
    try:
        from jupyterlab.labapp import LabApp
    except ModuleNotFoundError as error:
        raise RounddiagError.build(
            expected="the package jupyterlab",
            found="none",
            advice="Run `pip install 'rounddiag[lab]'`.",
        ) from error

    notebook = notebook or min((_CHECKOUT / "notebooks").glob("*.ipynb"), default=None)
    arguments = _arguments(notebook)
    if announce:
        arguments.append("--no-browser")
        threading.Thread(target=_announce, args=(announce,), daemon=True).start()
    # A python3 kernel in the user's home folder could run another environment.
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    overridden = {_option(argument) for argument in jupyter_arguments}
    ours = [argument for argument in arguments if _option(argument) not in overridden]
    LabApp.launch_instance([*ours, *jupyter_arguments])


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
        arguments.append(
            "--allow-root"
        )  # common in containers; the token still protects it
    return arguments


def _announce(announce: Callable[[str], None]) -> None:
    """Wait until this process accepts connections, then announce how to connect."""
    from jupyter_server.serverapp import list_running_servers

    while True:
        for server in list_running_servers():
            if server["pid"] == os.getpid() and _accepts_connections(server):
                announce(_connection_help(server))
                return
        time.sleep(0.1)


def _accepts_connections(server: dict[str, Any]) -> bool:
    """Try to connect: Jupyter lists a server shortly before it listens."""
    try:
        socket.create_connection((server["hostname"], server["port"]), 1).close()
    except OSError:
        return False
    return True


def _connection_help(server: dict[str, Any]) -> str:
    port = server["port"]
    name = socket.getfqdn()
    host = socket.gethostname() if name.startswith("localhost") else name
    tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{host}"
    token = f"?token={server['token']}" if server["token"] else ""
    return (
        f"On your own computer:  {tunnel}\n"
        f"Then open there:       {server['url']}{token}"
    )
