"""The public names resolve, have docstrings, and are known to type checkers."""

from __future__ import annotations

import ast
import inspect
import re
import types
from pkgutil import iter_modules

import pytest

import rounddiag
from tests.batches import hand_batch

PUBLIC = dir(rounddiag)


def test_type_checkers_know_the_names_that_are_resolved() -> None:
    tree = ast.parse(inspect.getsource(rounddiag))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: (node.module, alias.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    resolved = {
        name: (f"rounddiag.{home}".rstrip("."), name)
        for name, home in vars(rounddiag)["_HOMES"].items()
    }
    assert imported == resolved


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves_and_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(rounddiag, name))


def test_the_help_lists_every_public_name() -> None:
    described = re.findall(r"`(\w+)`", inspect.getdoc(rounddiag) or "")
    assert [name for name in PUBLIC if name not in described] == []


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", rounddiag.__version__)


def test_a_public_function_is_never_a_module_of_the_package() -> None:
    modules = {module.name for module in iter_modules(rounddiag.__path__)}
    named = {name for name in PUBLIC if name in modules}
    assert named == {"capture", "errors", "figures", "findings", "stats", "vision"}
    assert all(isinstance(getattr(rounddiag, name), types.ModuleType) for name in named)


def test_an_unknown_name_is_an_attribute_error() -> None:
    message = "module 'rounddiag' has no attribute 'plot_round'"
    with pytest.raises(AttributeError, match=re.escape(message)):
        _ = rounddiag.plot_round  # type: ignore[attr-defined]


def test_the_signature_of_the_explorer_has_every_entry_of_its_state() -> None:
    options = [*inspect.signature(rounddiag.explore).parameters][1:]
    with rounddiag.explore(hand_batch()) as explorer:
        assert {*options} == {*explorer.state, "answer", "step", "at", "removed"}


@pytest.mark.parametrize("name", ["capture", "figures", "findings", "stats", "vision"])
def test_a_public_package_lists_its_names_alone(name: str) -> None:
    package = getattr(rounddiag, name)
    assert dir(package) == sorted(package.__all__)
