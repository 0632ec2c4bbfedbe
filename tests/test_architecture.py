"""The boundaries of DESIGN: imports run one way, and trainers stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rounddiag

ROOT = Path(__file__).parents[1]
PACKAGE = Path(rounddiag.__file__).parent
BELOW_STATS = {
    *("segmentation", "text", "vision", "batch"),
    *("core", "checks", "loaders", "capture"),
}
LAYERS_WITH = {
    "torch": BELOW_STATS,
    "pyarrow": {"loaders", "runs", "widgets"},  # widgets: RE2 for regular expressions
    "plotly": {"figures", "widgets", "export"},
    "ipywidgets": {"widgets"},
    "anywidget": {"widgets"},
    "jupyterlab": {"cli"},
}
TRAINER_MODULES = [
    "rounddiag.batch",
    "rounddiag.segmentation",
    "rounddiag.vision",
    "rounddiag.loaders.fields.mapping",
    "rounddiag.loaders.parquet",
    "rounddiag.capture",
]


def imports_of(source: Path) -> set[str]:
    """Return the root of everything that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def run_python(code: str) -> None:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_run_one_way() -> None:
    # It sets up logging, which would silence the loggers of this process.
    options = f"{str(ROOT / 'pyproject.toml')!r}, no_cache=True, no_logo=True"
    lint = "from importlinter.cli import lint_imports"
    run_python(f"import sys; {lint}; sys.exit(lint_imports({options}))")


@pytest.mark.parametrize(("library", "layers"), LAYERS_WITH.items())
def test_a_library_stays_in_its_layers(library: str, layers: set[str]) -> None:
    strays = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if library in imports_of(path)
        and path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in layers
    ]
    assert strays == []


def test_a_trainer_imports_with_torch_numpy_and_pyarrow_alone() -> None:
    absent = ["pandas", "plotly", "ipywidgets", "anywidget", "PIL", "tokenizers"]
    block = f"import sys; sys.modules.update(dict.fromkeys({absent}))"
    run_python(f"{block}\nimport {', '.join(TRAINER_MODULES)}")


def test_importing_rounddiag_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pandas', 'plotly', 'pyarrow', 'ipywidgets'}"
    run_python(f"import sys, rounddiag; assert not {heavy} & set(sys.modules)")
