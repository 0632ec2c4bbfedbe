"""JupyterLab is started at the notebook, on this machine only."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from rounddiag.cli.lab import start_lab
from tests.browser.server import free_port, isolated_environment

CHECKOUT = Path(__file__).parents[2]
REMOTE = """
from pathlib import Path
from rounddiag.cli.lab import start_lab
say = lambda text: print(text, flush=True)
start_lab(Path("{notebook}"), ["--port={port}"], announce=say)
"""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    calls: list[list[str]] = []
    monkeypatch.setattr("jupyterlab.labapp.LabApp.launch_instance", calls.append)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.delenv("JUPYTER_PREFER_ENV_PATH", raising=False)
    return calls


def test_a_notebook_below_the_current_folder_is_shown_from_there(
    launched: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start_lab(tmp_path / "a b" / "c.ipynb", ["--port=1"])
    assert launched == [
        [
            "--ip=127.0.0.1",
            "--LabApp.extension_manager=readonly",
            f"--ServerApp.root_dir={tmp_path}",
            "--LabApp.default_url=/lab/tree/a%20b/c.ipynb",
            "--port=1",
        ]
    ]
    assert os.environ["JUPYTER_PREFER_ENV_PATH"] == "1"


@pytest.mark.parametrize("ip", ["--ip=0.0.0.0", "--ServerApp.ip=0.0.0.0"])
def test_arguments_of_the_user_win(launched: list[list[str]], ip: str) -> None:
    start_lab(None, [ip, "--LabApp.extension_manager=pypi"])
    (command,) = launched
    assert command[-2:] == [ip, "--LabApp.extension_manager=pypi"]
    assert not [other for other in command[:-2] if "ip=" in other or "manager" in other]


@pytest.mark.parametrize(
    ("notebook", "root"),
    [
        (CHECKOUT / "notebooks" / "x.ipynb", CHECKOUT),
        (Path("/elsewhere/x.ipynb"), Path("/elsewhere")),
    ],
)
def test_a_notebook_elsewhere_sets_the_root_folder(
    launched: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    notebook: Path,
    root: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    start_lab(notebook)
    assert f"--ServerApp.root_dir={root}" in launched[0]


def test_root_is_allowed(
    launched: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    start_lab(None)
    assert "--allow-root" in launched[0]


@pytest.mark.slow
def test_remote_prints_a_tunnel_and_an_address_that_answers(
    tmp_path: Path,
) -> None:
    port = free_port()
    (tmp_path / "x.ipynb").write_text("{}")
    code = REMOTE.format(notebook=tmp_path / "x.ipynb", port=port)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=isolated_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout
        try:
            tunnel, address = process.stdout.readline(), process.stdout.readline()
            url = address.split()[-1]
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - ours
                url = answer.url
        finally:
            process.terminate()  # else leaving the block would wait forever
    assert f"  ssh -N -L {port}:127.0.0.1:{port} " in tunnel
    assert address.startswith("Then open there:       http://127.0.0.1:")
    assert "/lab/tree/x.ipynb" in url
