"""Text of a stranger's file in JupyterLab: nothing is typeset, linked or fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import explorer
from tests.browser.lab import LabNotebook

SETUP = """import sys
sys.path.insert(0, {root!r})
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
import numpy as np
from IPython.display import HTML, display
import rounddiag as rd
FORMULA = r"$\\href{{https://attacker.invalid}}{{x}}$"
SCRIPT = "<script>globalThis.ran = 1</script><img src=x onerror='globalThis.ran = 1'>"
ACTS = (
    f"costs $5 and then $6 {{FORMULA}} {{SCRIPT}} `![](https://attacker.invalid/a)`"
    " [a](https://attacker.invalid) \\x1b[31m\\u202e"
)
batch = rd.load({root!r} + "/sample_data/image_window.parquet")
num = batch.num_samples
batch = replace(
    batch,
    tokenizer=lambda ids: ACTS * len(ids),
    group_ids=tuple(f"{{ACTS}} {{i % 8}}" for i in range(num)),
    sample_ids=tuple(f"{{ACTS}} {{i}}" for i in range(num)),
    sample_columns={{ACTS: np.array([f"{{ACTS}} {{i % 8}}" for i in range(num)])}},
    meta={{**batch.meta, "source": ACTS, "facts": {{ACTS: ACTS}}, ACTS: ACTS}},
)
folder = Path(mkdtemp()) / "$x^2$ `![](a)` \\x1b[31m"
for step in range(2):
    rd.save(replace(batch, step=step, images=None), folder / f"step_{{step}}.parquet")
run = rd.open_run(folder)"""
# One output a cell; the first is typeset, which shows that JupyterLab would do it.
OUTPUTS = {
    "formula": 'HTML("<p>$x^2$</p>")',
    "batch": "batch",
    "check": "rd.check(batch)",
    "diagnosis": "rd.diagnose(batch)",
    "token text": "rd.token_text(batch, sample=0, round=0)",
    "run": "run",
    "run diagnosis": "run.diagnose()",
    "figure": "rd.plot_rounds(batch, by=[*batch.sample_columns][0])",
    "explorer": "rd.explore(batch)",
    "error": "rd.load(ACTS.replace('/', ''))",
}
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"  # other notebooks stay open
TYPESET = "mjx-container, .MathJax, .katex"
# Links that JupyterLab makes of addresses in plain text show where they lead.
HIDDEN_LINKS = """area => [...area.querySelectorAll('a[href]')]
  .filter(one => /attacker/.test(one.href) && !/attacker/.test(one.textContent))
  .map(one => one.outerHTML)"""
ATTACKED = """area => [...area.querySelectorAll('a[href*=attacker], img[src*=attacker],'
  + ' img[src="x"], a[href^="javascript"], [onerror]')].map(one => one.outerHTML)"""
CONTROL = """area => [...area.textContent]
  .filter(c => c < ' ' && c !== '\\n' && c !== '\\t' || c === '\\u202e')
  .map(c => c.charCodeAt(0))"""


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    cells = [SETUP.format(root=str(ROOT)), *OUTPUTS.values()]
    with next_cells("hostile_text.ipynb", *cells) as opened:
        opened.run_all()
        yield opened


def output(lab: LabNotebook, name: str) -> Any:
    cell = (
        lab.page.locator(PANEL).locator(".jp-CodeCell").nth(1 + [*OUTPUTS].index(name))
    )
    cell.scroll_into_view_if_needed()
    # The style below a figure is not visible.
    return cell.locator(".jp-OutputArea-output:visible").last


def test_jupyterlab_typesets_what_is_not_protected(lab: LabNotebook) -> None:
    expect(output(lab, "formula").locator(TYPESET)).to_have_count(1)


@pytest.mark.parametrize("name", [*OUTPUTS][1:])
def test_text_stays_text(lab: LabNotebook, name: str) -> None:
    if name == "explorer":
        explorer(lab)
    area = output(lab, name)
    expect(area).to_be_visible()
    lab.settle()
    assert area.locator(TYPESET).count() == 0
    assert area.evaluate(HIDDEN_LINKS) == []
    if name != "error":
        assert area.evaluate(ATTACKED) == []
        assert area.evaluate(CONTROL) == []


@pytest.mark.parametrize("name", ["batch", "token text", "error"])
def test_no_word_is_lost_between_two_amounts(lab: LabNotebook, name: str) -> None:
    text = output(lab, name).text_content().replace("·", " ")
    assert "costs $5 and then $6 $\\href{https" in text


def test_the_run_s_name_is_shown_whole(lab: LabNotebook) -> None:
    """Backticks in a table are its code, with the same text."""
    assert "$x^2$ ![](a) \\x1b[31m" in output(lab, "run").text_content()


def test_nothing_ran_and_nothing_was_fetched(lab: LabNotebook) -> None:
    assert lab.page.evaluate("globalThis.ran") is None
    assert lab.strangers == []
    (error,) = lab.errors
    assert error.startswith("LoadError: ")
    assert error.isprintable()
