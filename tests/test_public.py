"""The map: every public name is there, told, and no module hides a function."""

from __future__ import annotations

import inspect
import re
import types
from importlib.util import find_spec
from pkgutil import iter_modules

import pytest

import rounddiag

PUBLIC = sorted(rounddiag.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves_and_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(rounddiag, name))


def test_a_public_function_is_never_a_module_of_the_package() -> None:
    modules = {module.name for module in iter_modules(rounddiag.__path__)}
    named = {name for name in PUBLIC if name in modules}
    assert named == {"capture", "errors", "figures", "findings", "stats", "vision"}
    assert all(isinstance(getattr(rounddiag, name), types.ModuleType) for name in named)


@pytest.mark.parametrize("name", sorted(rounddiag._HOME_OF))
def test_no_module_hides_a_function_in_its_home_either(name: str) -> None:
    assert find_spec(f"rounddiag.{rounddiag._HOME_OF[name]}.{name}") is None


def test_dir_lists_the_public_names_alone() -> None:
    assert dir(rounddiag) == PUBLIC


def test_an_unknown_name_is_an_attribute_error() -> None:
    message = "module 'rounddiag' has no attribute 'plot_round'"
    with pytest.raises(AttributeError, match=re.escape(message)):
        _ = rounddiag.plot_round
