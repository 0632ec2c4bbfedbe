"""The rules of DESIGN section 3: layers, light imports, and the layout of packages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import types
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import rounddiag

ROOT = Path(__file__).parents[1]
PACKAGE = Path(rounddiag.__file__).parent
BELOW_STATS = {
    *("segmentation", "columns", "text", "vision", "batch"),
    *("core", "checks", "loaders", "capture"),
}
LAYERS_WITH = {
    "torch": BELOW_STATS | {"proof"},
    "transformers": {"proof", "text"},
    "pyarrow": {"loaders", "runs", "widgets"},  # widgets: RE2 for regular expressions
    "ray": {"runs"},
    "plotly": {"figures", "widgets", "export"},
    "ipywidgets": {"widgets"},
    "anywidget": {"widgets"},
    "jupyterlab": {"cli"},
}
HOMES = {  # modules of the public names
    name: f"rounddiag.{home}" for name, home in vars(rounddiag)["_HOMES"].items()
}
TRAINER_MODULES = [
    "rounddiag.batch",
    "rounddiag.segmentation",
    "rounddiag.vision",
    "rounddiag.loaders.field_batch",
    "rounddiag.loaders.parquet",
    "rounddiag.capture",
]


PACKAGES = sorted(file.parent for file in PACKAGE.rglob("__init__.py"))


@cache
def imported_roots(source: Path) -> set[str]:
    """Return the root package of every import in a file, also inside functions."""
    roots = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").partition(".")[0])
    return roots


def run_python(code: str) -> None:
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
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
        if library in imported_roots(path)
        and path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in layers
    ]
    assert strays == []


# The size of the house: lines of Python of each package of `rounddiag`, of its modules,
# and of the tests; and lines of JavaScript. A change that raises a number edits it here
# and says why in its message; one that lowers it lowers it here.
LINES = {
    "batch": 5_811,
    "capture": 2_890,
    "checks": 4_235,
    "cli": 1_935,
    "columns": 964,
    "core": 4_082,
    "export": 870,
    "figures": 7_519,
    "findings": 9_495,
    "loaders": 15_201,
    "proof": 11_962,
    "runs": 2_646,
    "schema": 1_285,
    "stats": 2_922,
    "text": 956,
    "vision": 1_458,
    "widgets": 5_937,
    "modules": 951,
    "tests": 85_050,
    "JavaScript": 5_569,
}


def count_lines(files: Iterable[Path]) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def test_the_size_is_known() -> None:
    counted = {
        folder.parent.name: count_lines(folder.parent.rglob("*.py"))
        for folder in sorted(PACKAGE.glob("*/__init__.py"))
    }
    counted["modules"] = count_lines(PACKAGE.glob("*.py"))
    counted["tests"] = count_lines((ROOT / "tests").rglob("*.py"))
    counted["JavaScript"] = count_lines(PACKAGE.rglob("*.js"))
    assert counted == LINES


def imports_of_files() -> dict[str, set[str]]:
    """Return what each file imports, inside functions too, and not for types alone.

    The faces of packages, their `__init__`, are left out.
    """
    import grimp

    graph = grimp.build_graph(
        "rounddiag", exclude_type_checking_imports=True, cache_dir=None
    )
    files = {name for name in graph.modules if not graph.find_children(name)}
    return {
        name: graph.find_modules_directly_imported_by(name) & files for name in files
    }


def test_files_import_in_no_circle() -> None:
    # A CycleError names the circle.
    TopologicalSorter(imports_of_files()).prepare()


def name_of(package: Path) -> str:
    return ".".join(package.relative_to(PACKAGE.parent).parts)


def modules_in(package: Path) -> set[str]:
    """Return the modules and packages directly in a folder, without `__init__`."""
    files = {path.stem for path in package.glob("*.py")}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    return (files | folders) - {"__init__", "__main__"}


def exported_functions(package: Path) -> set[str]:
    """Return the functions that a package exports."""
    module = import_module(name_of(package))
    exported = {name: getattr(module, name) for name in getattr(module, "__all__", [])}
    return {n for n, it in exported.items() if isinstance(it, types.FunctionType)}


@pytest.mark.slow
def test_a_trainer_imports_with_torch_numpy_and_pyarrow_alone() -> None:
    absent = ["pandas", "plotly", "ipywidgets", "anywidget", "PIL", "tokenizers"]
    block = f"import sys; sys.modules.update(dict.fromkeys({absent}))"
    run_python(f"{block}\nimport {', '.join(TRAINER_MODULES)}")


@pytest.mark.slow
def test_a_report_needs_no_package_of_the_extra_lab(tmp_path: Path) -> None:
    absent = ["ipywidgets", "anywidget", "jupyterlab", "IPython"]
    run_python(
        f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
        "import rounddiag as rd\n"
        "batch = rd.load('sample_data/healthy.parquet')[:2]\n"
        f"rd.report(batch, {str(tmp_path / 'page.html')!r}, samples=[0])\n"
        "try: rd.explore(batch)\n"
        "except ModuleNotFoundError as error: found = str(error)\n"
        "assert found.endswith(\"Run `pip install 'rounddiag[lab]'`.\"), found"
    )


def test_importing_rounddiag_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pandas', 'plotly', 'pyarrow', 'ipywidgets'}"
    run_python(f"import sys, rounddiag; assert not {heavy} & set(sys.modules)")


def test_no_module_has_the_name_of_a_function_of_its_package() -> None:
    hidden = {
        f"{name_of(package)}.{module}"
        for package in PACKAGES
        for module in modules_in(package) & exported_functions(package)
    }
    assert sorted(hidden) == []


def test_no_folder_holds_a_single_module() -> None:
    counts = {name_of(package): len(modules_in(package)) for package in PACKAGES}
    assert {name: count for name, count in counts.items() if count < 2} == {}


# Whoever adds to these adds one file, which says what it is and is found by its folder.
PLUG_INS = ("rounddiag.loaders.frameworks", "rounddiag.findings.detectors")


@pytest.mark.parametrize(
    "package", [one for one in PACKAGES if name_of(one) not in PLUG_INS], ids=name_of
)
def test_the_docstring_of_a_package_names_its_modules(package: Path) -> None:
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    named = set(re.findall(r"\w+", ast.get_docstring(tree) or ""))
    public = {name for name in modules_in(package) if not name.startswith("_")}
    in_help = {home.removeprefix(f"{name_of(package)}.") for home in HOMES.values()}
    assert sorted(public - named - in_help) == []


def defined_names(source: Path) -> set[str]:
    """Return the public names that a module defines itself."""
    names = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            stored = [one for target in targets for one in ast.walk(target)]
            names |= {
                one.id
                for one in stored
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
    return {name for name in names if not name.startswith("_")}


def test_a_public_name_is_defined_in_one_module() -> None:
    homes: dict[str, list[str]] = {}
    for source in sorted(PACKAGE.rglob("*.py")):
        for name in defined_names(source):
            homes.setdefault(name, []).append(str(source.relative_to(PACKAGE)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
