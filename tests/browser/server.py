"""A JupyterLab of its own for the tests: its own settings, on this machine only."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TOKEN = "test"  # noqa: S105 - guards nothing but the tests' own server
BASE_URL = "/user/x"  # as JupyterHub has it
_QUIET = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
# Nagle's algorithm would hold each answer of a kernel for 40 ms.
_WITHOUT_DELAY = """
from jupyter_server.services.kernels.websocket import KernelWebsocketHandler

opened = KernelWebsocketHandler.open

def open_without_delay(self, kernel_id):
    self.set_nodelay(True)
    return opened(self, kernel_id)

KernelWebsocketHandler.open = open_without_delay
"""
# For every wait, on a machine that other work shares: a fault ends it earlier, mostly.
PATIENCE_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def isolated_environment(home: Path) -> dict[str, str]:
    """Keep settings, themes and kernels of the user out, and ours in `home`."""
    folders = {
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "IPYTHONDIR": home / "ipython",
    }
    settings = folders["JUPYTERLAB_SETTINGS_DIR"] / "@jupyterlab/apputils-extension"
    settings.mkdir(parents=True, exist_ok=True)
    quiet = settings / "notification.jupyterlab-settings"
    quiet.write_text(json.dumps(_QUIET), encoding="utf-8")
    own = {name: str(folder) for name, folder in folders.items()}
    return {**os.environ, **own, "JUPYTER_PREFER_ENV_PATH": "1"}


def answer_without_delay(home: Path) -> None:
    """Have the server of `home` pass answers of kernels on at once.

    Benchmarks leave this out: users have the delay.
    """
    config = home / "config"
    config.mkdir(exist_ok=True)
    file = config / "jupyter_server_config.py"
    file.write_text(_WITHOUT_DELAY, encoding="utf-8")


def server_arguments(port: int) -> list[str]:
    return [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
    ]


@contextmanager
def running(
    command: Sequence[str], port: int, home: Path, folder: Path, base_url: str = ""
) -> Iterator[str]:
    """Run a command that serves JupyterLab; give its address; stop it again."""
    log = home / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=isolated_environment(home),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        address = f"http://127.0.0.1:{port}{base_url}"
        _wait_until_up(address, process, log)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def jupyterlab(home: Path, folder: Path) -> Iterator[str]:
    """Serve the notebooks of `folder` behind a base URL."""
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", *server_arguments(port)]
    command += [f"--ServerApp.root_dir={folder}", f"--ServerApp.base_url={BASE_URL}/"]
    with running(command, port, home, folder, base_url=BASE_URL) as address:
        yield address


def _wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _answers(f"{address}/api?token={TOKEN}"):
        if time.monotonic() > deadline or process.poll() is not None:
            msg = f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')}"
            raise RuntimeError(msg)
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own
    except OSError:
        return False
    return True
