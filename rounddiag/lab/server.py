"""JupyterLab in this process, on this machine only, at one notebook."""

from __future__ import annotations

import getpass
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
