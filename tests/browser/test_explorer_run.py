"""The explorer of a run: a line of steps above the views of one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import explorer, press, rest, waits_for, waits_until
from tests.browser.lab import LabNotebook

# Twenty steps of the small run, half of them before its fault.
CELLS = [
    f"""import shutil, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
import rounddiag as rd
here, whole = Path('a_run'), Path({str(ROOT)!r}) / 'sample_data' / 'run'
here.mkdir()
for step in range(140, 340, 10):
    shutil.copy(whole / f'step_{{step}}.parquet', here)
run = rd.open_run(here)""",
    "ex = rd.explore(run)\nex",
]
_SAMPLE_ID = "ex.batch.sample_ids[ex.current['sample']]"
_TASK = "ex.batch.group_ids[ex.current['sample']]"


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells("a_run.ipynb", *CELLS) as opened:
        opened.command("application:toggle-left-area")
        opened.page.set_viewport_size({"width": 1280, "height": 800})
        opened.run_all()
        yield opened
        assert (opened.console_errors, opened.errors) == ([], [])


@pytest.fixture
def page(lab: LabNotebook) -> Locator:
    """The explorer, at rest."""
    found = explorer(lab)
    found.evaluate("node => node.scrollIntoView({ block: 'start' })")
    expect(found.get_by_label("Verdict")).not_to_contain_text("diagnosing…")
    rest(lab)
    return found


def shows(lab: LabNotebook, page: Locator, step: int) -> None:
    """Wait until Python and the page have a step."""
    waits_for(lab, "ex.step", step)
    expect(page.locator(".rdx-name")).to_contain_text(f"step {step}")
    line = page.get_by_role("slider", name="Step", exact=True)
    expect(line).to_have_attribute("aria-valuenow", str(step))
    rest(lab)


def click_step(page: Locator, step: int, last: int = 330) -> None:
    line = page.get_by_role("slider", name="Step", exact=True)
    box: Any = line.bounding_box()
    x = (step - 140) / (last - 140) * box["width"]
    line.click(position={"x": min(max(x, 1), box["width"] - 2), "y": 10})


def test_it_opens_at_the_step_where_rounds_change(
    lab: LabNotebook, page: Locator
) -> None:
    shows(lab, page, 240)
    assert page.locator(".rdx-step-mark").count() == 1
    now = page.locator(".rdx-steps-now")
    expect(now).to_contain_text("step 240, 11 of 20: mean |diff| ")
    expect(now).to_contain_text(" nat, broken")
    lab.screenshot("explorer_run")


def test_a_click_opens_a_step_at_the_same_sample(
    lab: LabNotebook, page: Locator
) -> None:
    lab.value("setattr(ex, 'current', {'sample': 5, 'round': 1})")
    rest(lab)
    before = lab.value(f"({_SAMPLE_ID}, {_TASK})")
    click_step(page, 200)
    shows(lab, page, 200)
    sample, task = lab.value(f"({_SAMPLE_ID}, {_TASK})")
    in_both = lab.value(f"{before[0]!r} in ex.batch.sample_ids")
    assert sample == before[0] if in_both else task == before[1]
    assert lab.value("ex.current['round']") <= 1
    title = page.locator(".rdx-title").first
    number = lab.value("ex.current['sample']")
    expect(title).to_contain_text(f"Sample {number} ·")
    # The fault has not begun there.
    expect(page.get_by_label("Verdict")).to_contain_text("Healthy", ignore_case=True)
    expect(page.locator(".rdx-steps-now")).to_contain_text(" nat, healthy")
    # Of 20 steps, two were opened; of the others, Python judges two.
    hollow = page.locator(".rdx-unjudged")
    judged = "document.querySelector('.rdx-unjudged').getAttribute('d').match(/M/g)"
    assert hollow.evaluate(f"() => {judged}.length") == 18
    assert lab.value("len(run.diagnose([140, 330]).frame)") == 2
    lab.value("ex._notify('steps', steps=ex._steps.payload())")
    expect(hollow).to_have_attribute("d", re.compile("^(M[^M]*){16}$"))
    raised = page.locator(".rdx-step-dots.rdx-raised").get_attribute("d") or ""
    assert raised.count("M") == 10  # from step 240 on
    line = page.get_by_role("slider", name="Step", exact=True)
    line.hover(position={"x": 3, "y": 10})
    expect(line).to_have_attribute("title", re.compile("^step 140.*healthy\n"))
    assert (line.get_attribute("title") or "").endswith("click: open step 140")


def test_keys_open_the_next_and_the_previous_step(
    lab: LabNotebook, page: Locator
) -> None:
    click_step(page, 220)
    shows(lab, page, 220)
    press(lab, page, "]")
    shows(lab, page, 230)
    press(lab, page, ["[", "["])
    shows(lab, page, 210)
    line = page.get_by_role("slider", name="Step", exact=True)
    line.focus()
    lab.page.keyboard.press("End")
    shows(lab, page, 330)
    expect(page.get_by_role("button", name="Next step", exact=True)).to_be_disabled()
    lab.page.keyboard.press("ArrowLeft")
    shows(lab, page, 320)


def test_python_opens_a_step(lab: LabNotebook, page: Locator) -> None:
    lab.value("setattr(ex, 'step', 150)")
    shows(lab, page, 150)
    heat = page.get_by_label("Samples", exact=True).locator(".rdx-plot")
    num: int = heat.evaluate("plot => plot.layout.meta.samples.length")
    assert num == lab.value("len(ex.batch)") == 48


def test_steps_that_are_written_meanwhile_appear(
    lab: LabNotebook, page: Locator
) -> None:
    line = page.get_by_role("slider", name="Step", exact=True)
    expect(line).to_have_attribute("aria-valuemax", "330")
    lab.value("str(shutil.copy(whole / 'step_340.parquet', here))")
    expect(line).to_have_attribute("aria-valuemax", "340")
    expect(page.locator(".rdx-steps-now")).to_contain_text(" of 21: ")
    click_step(page, 340, last=340)
    shows(lab, page, 340)


def test_a_file_that_is_gone_leaves_the_step_open(
    lab: LabNotebook, page: Locator
) -> None:
    click_step(page, 160, last=340)
    shows(lab, page, 160)
    lab.value("(here / 'step_150.parquet').rename('gone')  and None")
    lab.value("ex._steps.close()")
    press(lab, page, "[")
    expect(page.locator(".rdx-banner")).to_contain_text("150")
    line = page.get_by_role("slider", name="Step", exact=True)
    expect(line).to_have_attribute("aria-valuenow", "160")
    waits_until(lambda: lab.value("ex.step") == 160)
    lab.value("Path('gone').rename(here / 'step_150.parquet') and None")
