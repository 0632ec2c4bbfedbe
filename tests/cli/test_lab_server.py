"""JupyterLab is started at the notebook, on this machine only.

`tests/browser/test_open.py` starts it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rounddiag.cli.lab import start_lab

CHECKOUT = Path(__file__).parents[2]


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
