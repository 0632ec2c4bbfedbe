"""The README's code runs verbatim, and its commands, links and formats exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rounddiag.loaders.registry import FORMATS

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_python_runs_in_the_order_of_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert blocks("python")
    namespace: dict[str, object] = {}
    for number, code in enumerate(blocks("python")):
        exec(compile(code, f"README.md, python block {number}", "exec"), namespace)  # noqa: S102


def test_commands_of_the_checkout_exist() -> None:
    named = set(re.findall(r"(?:^|\s)(\./[\w/.-]+)", "\n".join(blocks("(?:sh|bash)"))))
    assert {"./notebooks/open", "./tests/run"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_links_into_the_checkout_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_table_has_every_format_and_says_which_are_unverified() -> None:
    rows = re.findall(r"^\| ([^|]+) \|.*\| ([^|]+) \|$", README, re.MULTILINE)
    listed = {
        (framework, checked == "*unverified*")
        for frameworks, checked in rows
        for framework in frameworks.split(", ")
    }
    formats = {
        (framework, not form.verified)
        for form in FORMATS
        for framework in form.framework.split(", ")
    }
    assert formats - listed == set()
