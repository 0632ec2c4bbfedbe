"""The README's code runs verbatim, and its commands, links and formats exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from rounddiag import __version__
from rounddiag.cli import main
from rounddiag.cli.options import build_parser
from rounddiag.findings import diagnose
from rounddiag.findings.verdict import Verdict
from rounddiag.loaders import demo
from rounddiag.loaders.detection import FORMATS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / ".github" / "CONTRIBUTING.md",
    ROOT / "rounddiag" / "loaders" / "formats.md",
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_python_runs_in_the_order_of_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert blocks("python")
    namespace: dict[str, object] = {}
    for number, code in enumerate(blocks("python")):
        exec(compile(code, f"README.md, python block {number}", "exec"), namespace)  # noqa: S102


def test_the_diagnosis_on_the_first_screen_is_the_real_one() -> None:
    shown, dots = blocks("text")[0].splitlines()
    assert shown == str(diagnose(demo())).partition("\n")[0]
    assert dots == "..."


def test_the_table_of_verdicts_has_all_of_them() -> None:
    text = (ROOT / "tests/site/verdicts.md").read_text(encoding="utf-8")
    verdicts = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert verdicts == [*get_args(Verdict)]


def test_the_page_is_short() -> None:
    assert len(README.split()) <= 900
    sections = re.split(r"^## ", README, flags=re.MULTILINE)[1:]
    prose = {part.partition("\n")[0]: words_of_prose(part) for part in sections}
    assert {name: count for name, count in prose.items() if count > 120} == {}


def words_of_prose(text: str) -> int:
    """Count the words outside of code, tables and pictures."""
    text = re.sub(
        r"^```.*?^```|^\|.*?$|^!\[.*?$", "", text, flags=re.DOTALL | re.MULTILINE
    )
    return len(text.split())


def test_the_commands_of_the_page_are_those_of_the_parser() -> None:
    named = {*re.findall(r"`rounddiag (\w+)", README)}
    text = build_parser().format_help()
    commands = {*re.findall(r"^    (\w+)(?: |$)", text, re.MULTILINE)}
    assert named
    assert named <= commands


def test_commands_of_the_checkout_exist() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(
            r"(?<![\w/.])\./([\w/-]+)", page.read_text(encoding="utf-8")
        )
    }
    assert {"notebooks/open", "tests/run"} <= named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_into_the_checkout_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [name for name in targets if not (page.parent / name).exists()] == []


def test_files_that_the_walks_name_exist() -> None:
    text = PAGES[1].read_text(encoding="utf-8")
    files = re.findall(r"`((?:rounddiag|tests)/[\w/.]+)`", text)
    missing = [name for name in files if not (ROOT / name).exists()]
    assert [name for name in missing if "NAME" not in name] == []


def test_the_table_has_every_framework_and_says_which_are_unverified() -> None:
    text = PAGES[2].read_text(encoding="utf-8")
    table = text.partition("| framework | file |")[2].partition("\n\n")[0]
    listed: dict[str, bool] = {}
    for line in table.splitlines()[2:]:
        _, names, file, _ = line.split("|")
        is_verified = "*unverified*" not in file
        listed |= dict.fromkeys(names.strip().split(", "), is_verified)
    verified: dict[str, bool] = {}
    for form in FORMATS:
        for name in form.framework.split(", "):
            verified[name] = verified.get(name, False) or bool(form.verified)
    others = {"Hugging Face datasets", "any", "by hand"}  # a row of their own, or none
    assert {name: listed.get(name) for name in verified if name not in others} == {
        name: is_verified
        for name, is_verified in verified.items()
        if name not in others
    }


def test_the_page_of_an_index_has_no_picture_and_no_link_into_the_checkout() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    page = README
    for rule in hook["substitutions"]:
        page = re.sub(rule["pattern"], rule["replacement"], page)
    assert re.findall(r"\]\((?!https?:)", page) == []
    assert "The gallery shows the figures." in page


@pytest.mark.slow
def test_the_proof_on_the_first_screen_is_the_real_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    command, *lines = blocks("text")[1].splitlines()
    # The other hypotheses take long; `tests/cli/test_check.py` proves it among all.
    words = [*command.removeprefix("$ rounddiag ").split(), "--hypotheses"]
    assert main([*words, "image_window"]) == 0
    found = capsys.readouterr().out.splitlines()
    for line, own in zip(lines, found, strict=False):
        assert own.startswith(line.removesuffix(" ..."))


def test_changes_and_citation_are_of_this_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^## ([\d.]+)", changes, re.MULTILINE)[0] == __version__
    assert f"\nversion: {__version__}\n" in citation
