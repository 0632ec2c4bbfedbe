"""`rounddiag lab`: a notebook that loads one file, and JupyterLab opened at it."""

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


_CHECKOUT = Path(__file__).parents[2]
_FOLDER = "rounddiag_notebooks"
_TITLE = "# In which round do the two engines disagree?\n\nThe batch is `{name}`."
_CODE = (
    "import rounddiag as rd\n\nbatch = rd.load({path!r})\nbatch",
    "explorer = rd.explore(batch)\nexplorer",
    "explorer.selection  # the selected tokens, as a DataFrame",
    "rd.round_summary(batch)",
)


def prepare_notebook(file: Path, folder: Path) -> Path:
    """Find or create the notebook that loads a file.

    Parameters
    ----------
    file : Path
        A saved batch, or a notebook, which is returned unchanged.
    folder : Path
        Notebooks are created in its subfolder `rounddiag_notebooks`.

    Returns
    -------
    Path
        The existing notebook of this file, unchanged, or else a new one under an unused
        name. No file is ever overwritten.

    Raises
    ------
    RounddiagError
        If the file does not exist.
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
    notebook = _notebook_path(file, folder.resolve() / _FOLDER)
    if not notebook.exists():
        _write(notebook, file.resolve())
    return notebook


def _notebook_path(file: Path, folder: Path) -> Path:
    """Return the path of the file's notebook, or the first unused path."""
    names = (f"{file.stem}_{number}" for number in range(2, sys.maxsize))
    notebook = folder / f"{file.stem}.ipynb"
    while notebook.exists() and _loaded_file(notebook) != str(file.resolve()):
        notebook = folder / f"{next(names)}.ipynb"
    return notebook


def _loaded_file(notebook: Path) -> str | None:
    """Return the file that a notebook was created for; None if we did not create it."""
    try:
        metadata = json.loads(notebook.read_bytes())["metadata"]
        return str(metadata["rounddiag"]["loads"])
    except (KeyError, TypeError, ValueError):
        return None


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


def start_lab(
    notebook: Path | None,
    jupyter_arguments: Sequence[str] = (),
    *,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Run JupyterLab until the user stops it.

    Parameters
    ----------
    notebook : Path or None
        What to open. None opens the first notebook of the checkout, if there is one.
    jupyter_arguments : sequence of str
        Further arguments of JupyterLab, which override ours.
    announce : callable, optional
        If set, no browser is opened. It is called once the server listens, with
        instructions on how to connect from another machine.
    """
    from jupyterlab.labapp import LabApp

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
