"""The notebook that loads one file; it is written once and never written over."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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


_CHECKOUT = Path(__file__).parents[2]


def start_lab(
    notebook: Path | None,
    jupyter_arguments: Sequence[str] = (),
    *,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Run JupyterLab until it is stopped.

    Parameters
    ----------
    notebook : Path or None
        What to open; None opens the first notebook of the checkout, if this is one.
    jupyter_arguments : sequence of str
        Further arguments of JupyterLab; they win over ours.
    announce : callable, optional
        Given: no browser is opened, and once the server listens this is called with
        how to reach it from another machine.
    """
    from jupyterlab.labapp import LabApp

    notebook = notebook or min((_CHECKOUT / "notebooks").glob("*.ipynb"), default=None)
    arguments = _arguments(notebook)
    if announce:
        arguments.append("--no-browser")
        threading.Thread(target=_tell, args=(announce,), daemon=True).start()
    # A python3 kernel in the user's own folder would run another environment.
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    theirs = {_option(argument) for argument in jupyter_arguments}
    ours = [argument for argument in arguments if _option(argument) not in theirs]
    LabApp.launch_instance([*ours, *jupyter_arguments])


def _option(argument: str) -> str:
    """Return `ip` of both `--ip=...` and `--ServerApp.ip=...`; both is an error."""
    return argument.partition("=")[0].lstrip("-").rpartition(".")[2]


def _arguments(notebook: Path | None) -> list[str]:
    root = Path.cwd()
    if notebook and not notebook.is_relative_to(root):
        in_checkout = notebook.is_relative_to(_CHECKOUT)
        root = _CHECKOUT if in_checkout else notebook.parent
    # "readonly": the default extension manager asks a package index.
    arguments = ["--ip=127.0.0.1", "--LabApp.extension_manager=readonly"]
    arguments.append(f"--ServerApp.root_dir={root}")
    if notebook:
        place = quote(notebook.relative_to(root).as_posix())
        arguments.append(f"--LabApp.default_url=/lab/tree/{place}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--allow-root")  # as in a container; the token guards it
    return arguments


def _tell(announce: Callable[[str], None]) -> None:
    """Wait until this process listens, then say where."""
    from jupyter_server.serverapp import list_running_servers

    while True:
        for server in list_running_servers():
            if server["pid"] == os.getpid():
                announce(_how_to_reach(server))
                return
        time.sleep(0.1)


def _how_to_reach(server: dict[str, Any]) -> str:
    port = server["port"]
    name = socket.getfqdn()
    host = socket.gethostname() if name.startswith("localhost") else name
    tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{host}"
    token = f"?token={server['token']}" if server["token"] else ""
    return (
        f"On your own computer:  {tunnel}\n"
        f"Then open there:       {server['url']}{token}"
    )
