"""What Python says of a place is what the page shows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import rounddiag
from rounddiag import explore, open_run
from rounddiag.widgets.session import evidence_place
from tests.browser.conftest import ROOT
from tests.browser.direct import DirectPage
from tests.browser.explorers import waits_until
from tests.browser.lab import ask

IMAGE_WINDOW = ROOT / "sample_data" / "image_window.parquet"


# The page waits a moment before it tells Python; Python changes the state meanwhile.
_CHOOSE = """async () => {
  await page.load(3);
  page.goTo({ sample: 3, round: 0, token: 0 });
  return new Promise(done => setTimeout(() => {
    page.onNotify({ name: 'changed' });
    setTimeout(done, 300);
  }, 20));
}"""
# The diagnosis comes while the page waits for the answer to a change.
_BOTH = """async () => {
  const answer = page.set({ metric: 'diff' });
  await page.drawOnset(page.shown);
  await answer;
  return page.state.metric;
}"""


def test_the_page_shows_what_python_says_and_says_when_it_does_not_answer(
    chromium: Browser,
) -> None:
    explorer = explore(IMAGE_WINDOW)
    before = explorer.current  # of the diagnosis, before there is a page
    opened = DirectPage(chromium, explorer)
    assert opened.text(".rdx-title").startswith(f"Sample {before['sample']} ·")
    card = opened.find(".rdx-card[aria-current='true']")
    assert card.get_attribute("data-round") == str(before["round"])
    # The diagnosis takes nothing away.
    assert ask(opened.page, _BOTH) == "diff"
    opened.settle()
    assert "mean old" in opened.find(".rdx-figure").first.inner_html()
    # A choice that is older than what Python says is not sent.
    explorer.current = {"sample": 1}
    opened.settle()
    ask(opened.page, _CHOOSE)
    opened.settle()
    assert explorer.current["sample"] == 1
    assert opened.text(".rdx-title").startswith("Sample 1 ·")
    never = "globalThis.answer = () => new Promise(() => {})"
    opened.page.evaluate(f"() => {{ {never}; page.open(); }}")
    note = "The kernel does not respond: it is busy or not running."
    expect(opened.node.get_by_text(note)).to_be_visible()
    opened.close()


@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
def test_the_page_goes_to_the_evidence_only_while_nobody_reads(
    chromium: Browser, is_read: bool
) -> None:
    explorer = explore(IMAGE_WINDOW)
    guess = explorer._session.state.current
    diagnosis = rounddiag.diagnose(replace(explorer.batch))
    evidence = evidence_place(diagnosis[0])
    assert evidence is not None
    assert evidence != guess
    # Between two looks at the clock passes a second, or nothing.
    clock = f"() => performance.ms = (performance.ms ?? 1) + {1000 * is_read}"
    opened = DirectPage(chromium, explorer, clock=clock)
    button = opened.node.get_by_role("button", name="Go to the evidence", exact=True)
    if is_read:  # it has been painted for longer than half a second
        expect(button).to_be_visible()
        assert explorer.current == vars(guess)
        assert "onset: round 2" in opened.find(".rdx-figure").first.inner_html()
        button.click()
    waits_until(lambda: explorer.current == vars(evidence))
    expect(button).to_be_hidden()
    assert opened.text(".rdx-title").startswith(f"Sample {evidence.sample} ·")
    shown = opened.find(".rdx-focus dd").all_text_contents()
    assert f"{evidence.round}, token {evidence.token}" in shown
    opened.close()


def test_a_run_without_a_tokenizer_says_what_to_pass(
    chromium: Browser, tmp_path: Path
) -> None:
    for step in (230, 240):
        shutil.copy(ROOT / "sample_data" / "run" / f"step_{step}.parquet", tmp_path)
    explorer = explore(open_run(tmp_path), current={"sample": 10, "round": 3})
    opened = DirectPage(chromium, explorer)
    assert "rd.open_run(folder, tokenizer=…)" in opened.text(".rdx-text-notes")
    assert opened.text(".rdx-card-action") == "click (283, 160)"  # the file's own
    assert opened.find(".rdx-text-notes code").bounding_box() is not None
    assert "others of the batch have some" in opened.text(".rdx-screens")
    opened.close()
