"""A report opened from a file, without a network: the explorer, used as people do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import rounddiag as rd
from rounddiag.widgets.session import evidence_place
from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.contrast import pale_texts
from tests.browser.lab import ask
from tests.browser.server import PATIENCE_SECONDS
from tests.browser.test_pictures import FAULTS
from tests.widgets.test_contexts import joined

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

    from rounddiag.widgets.state import Cursor

PAPERS = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 17, 17)"}
REGIONS = ("Controls", "Rounds", "Samples", "Sample", "Tokens", "Screenshot", "Text")
NOTE: dict[str, Any] = {
    "sample": 20,
    "round": 0,
    "token": 3,
    "text": "<i>here</i>",
}
NOTES = [
    NOTE,
    {"sample": 20, "round": 0, "text": "of the round"},
    {"sample": 20, "text": "of the sample"},
]
SIZES = [(1280, 800), (1920, 1080), (700, 900), (500, 800)]


class Opened:
    """The report in a page, and whatever it asked for or complained about."""

    def __init__(
        self,
        browser: Browser,
        file: Path,
        *,
        scheme: Any = "light",
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": 1280, "height": 800},
            color_scheme=scheme,
            offline=True,
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_SECONDS)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.goto(file.as_uri())
        self.settle()

    def _asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")):
            self.requests.append(url)

    def settle(self) -> None:
        explorer = self.region("rounddiag explorer")
        expect(explorer).to_have_attribute("aria-busy", "false")
        expect(self.page.locator("[data-drawing]")).to_have_count(0)

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        # A figure sees its new size in the frame after, and draws in the next.
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() =>"
            " requestAnimationFrame(() => requestAnimationFrame(done))))"
        )
        self.settle()

    def region(self, name: str) -> Locator:
        return self.page.get_by_role("region", name=name, exact=True)

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def is_at(self, sample: int, round_: int) -> None:
        expect(self.find(".rdx-title")).to_contain_text(f"Sample {sample} ")
        now = self.find(".rdx-card[aria-current=true]")
        expect(now).to_have_attribute("data-round", str(round_))

    def close(self) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    return rd.load(ROOT / "sample_data" / "image_window.parquet")


@pytest.fixture(scope="module")
def file(batch: rd.Batch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    rd.report(batch, path, worst=4, samples=2, notes=NOTES)
    return path


@pytest.fixture(scope="module")
def evidence(batch: rd.Batch) -> Cursor:
    place = evidence_place(rd.diagnose(batch)[0])
    assert place is not None
    return place


@pytest.fixture(scope="module")
def one_page(chromium: Browser, file: Path) -> Iterator[Opened]:
    """A report that stays open: its script takes long to start."""
    opened = Opened(chromium, file)
    yield opened
    assert (opened.complaints, opened.requests) == ([], [file.as_uri()])
    opened.close()


@pytest.fixture
def opened(one_page: Opened, evidence: Cursor) -> Opened:
    """A report at the evidence of its first finding, as when it has just opened."""
    findings = one_page.page.get_by_role("tab", name="Findings", exact=True)
    if findings.get_attribute("aria-selected") != "true":
        findings.click()
    one_page.find(".rdx-list-rows button").first.click()
    one_page.is_at(evidence.sample, evidence.round)
    one_page.region("rounddiag explorer").focus()
    one_page.settle()
    return one_page


def test_an_address_behind_the_hash_is_where_it_opens(
    chromium: Browser, file: Path, opened: Opened
) -> None:
    place = "#step 1584 / task-05/0 / r1 / t2"
    opened.page.evaluate("hash => (location.hash = hash)", place)
    opened.is_at(20, 1)
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{file.as_uri()}{place}")
    expect(page.locator(".rdx-title")).to_contain_text("Sample 20 ")
    shown = page.locator(".rdx-card[aria-current=true]")
    expect(shown).to_have_attribute("data-round", "1")
    context.close()


def test_it_has_the_notes_of_its_sender(opened: Opened) -> None:
    opened.page.get_by_role("tab", name="Notes", exact=True).click()
    rows = opened.find(".rdx-list-notes [data-row]")
    expect(rows).to_have_text(
        [
            "<i>here</i>step 1584 / task-05/0 / r0 / t3",
            "of the roundstep 1584 / task-05/0 / r0",
            "of the samplestep 1584 / task-05/0",
        ]
    )
    rows.first.click()
    opened.is_at(NOTE["sample"], NOTE["round"])
    field = opened.page.get_by_label("note", exact=True)
    expect(field).to_have_value(NOTE["text"])
    expect(opened.find(".rdx-chunk > .rdx-noted")).to_have_count(1)
    heads = opened.find(".rdx-round-head > .rdx-note-mark")
    expect(heads).to_have_text(["✎ of the round"])
    sample = opened.find(".rdx-sample-line > .rdx-note-mark")
    expect(sample).to_have_text("✎ of the sample")
    for row in (1, 2):
        rows.nth(row).click()
        expect(field).to_have_value(NOTES[row]["text"])


def test_attempts_of_a_group_stand_side_by_side_as_far_as_they_are_there(
    opened: Opened, batch: rd.Batch, evidence: Cursor
) -> None:
    assert batch.group_ids is not None
    opened.press("m")
    articles = opened.find(".rdx-attempts article")
    expect(articles.first).to_be_visible()
    first, second = articles.evaluate_all(
        "all => all.slice(0, 2)"
        ".map(({ ariaLabel }) => Number(/[0-9]+/.exec(ariaLabel)))"
    )
    assert first == evidence.sample
    assert first != second
    assert batch.group_ids[first] == batch.group_ids[second]
    opened.press("Escape")
    expect(opened.find(".rdx-sheet")).to_be_hidden()


def test_a_key_goes_on_beyond_the_threshold_within_the_file(opened: Opened) -> None:
    title = opened.find(".rdx-title")
    before = (title.text_content() or "").partition(" · ")[0]
    for _ in range(400):
        opened.press("b")
        if not (title.text_content() or "").startswith(f"{before} ·"):
            break
    expect(title).not_to_contain_text(f"{before} ·")
    assert opened.find("[data-missing]").count() == 0


@pytest.fixture(scope="module", params=PAPERS)
def schemed(
    request: pytest.FixtureRequest, chromium: Browser, file: Path
) -> Iterator[tuple[Opened, str]]:
    """A report opened by somebody who has the page light, or dark."""
    opened = Opened(chromium, file, scheme=request.param)
    yield opened, request.param
    assert (opened.complaints, opened.requests) == ([], [file.as_uri()])
    opened.close()


@pytest.mark.parametrize("size", SIZES)
def test_it_is_whole_and_can_be_read(
    schemed: tuple[Opened, str], size: tuple[int, int]
) -> None:
    opened, scheme = schemed
    width, _ = size
    opened.resize(*size)
    page = opened.page
    scrolled = "[document.documentElement.scrollWidth, document.body.scrollHeight]"
    assert page.evaluate(scrolled) == [*size]
    expect(opened.find(".rdx-verdict summary")).to_contain_text("broken")
    papers = page.evaluate(
        "[...document.querySelectorAll('.rdx-figure .main-svg:first-child')]"
        ".filter(figure => figure.clientWidth)"
        ".map(figure => getComputedStyle(figure).backgroundColor)"
    )
    assert {*papers} == {PAPERS[scheme]}
    shown = [opened.region(name) for name in REGIONS]
    boxes = [region.bounding_box() for region in shown if region.is_visible()]
    assert len(boxes) == (len(REGIONS) if width > 760 else 3)
    for box in boxes:
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width + 1
        assert box["y"] + box["height"] <= size[1] + 1
    num_texts, pale = pale_texts(page, ".rdx *")
    assert num_texts > 30
    assert pale == []
    assert ask(page, FAULTS) == []
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"report_{width}_{scheme}.png")


def test_it_opens_at_the_evidence_of_the_first_finding(
    schemed: tuple[Opened, str], evidence: Cursor
) -> None:
    opened, _ = schemed  # of which the other test changes the size alone
    opened.resize(1280, 800)
    opened.is_at(evidence.sample, evidence.round)
    expect(opened.find(".rdx-list-rows button").first).to_contain_text("74 tokens")
    expect(opened.find(".rdx-chunk > .rdx-now")).to_be_visible()
    image = opened.find(".rdx-current img")
    expect(image).to_be_visible()
    expect(image).to_have_js_property("naturalWidth", 448)
    expect(opened.find(".rdx-caption-action").first).to_contain_text("click (400, 167)")


def test_keys_step_through_the_samples_in_the_file(opened: Opened) -> None:
    title = opened.find(".rdx-title")
    opened.press("g")
    expect(title).to_contain_text("Sample 28 ·")
    seen = [title.text_content()]
    for _ in range(6):
        opened.press("j")
        expect(title).not_to_have_text(seen[-1] or "")
        expect(opened.find(".rdx-text pre span").first).to_be_visible()
        seen.append(title.text_content())
    # Of the evidence, four worst, two drawn, and attempts beside them.
    assert len({*seen}) == 7
    note = opened.find(".rdx-overview > .rdx-note")
    expect(note).to_contain_text("9 of 64 samples are in this file")
    expect(opened.find(".rdx-in-file").first).to_be_visible()


def test_rounds_and_tokens_are_reached_by_keys_and_clicks(opened: Opened) -> None:
    opened.find(".rdx-card").nth(1).click()
    now = opened.find(".rdx-card[aria-current=true]")
    expect(now).to_have_attribute("data-round", "1")
    opened.region("rounddiag explorer").focus()
    opened.press("n")
    expect(now).to_have_attribute("data-round", "2")
    before = opened.find(".rdx-focus-piece").text_content()
    opened.press("ArrowRight")
    expect(opened.find(".rdx-focus-piece")).not_to_have_text(before or "")
    opened.find(".rdx-chunk > span").first.click()
    expect(now).to_have_attribute("data-round", "0")
    opened.find(".rdx-gap .rdx-chip").first.click()
    expect(opened.find(".rdx-inside").first).not_to_be_empty()


def test_a_sample_that_is_not_there_says_how_to_see_it(opened: Opened) -> None:
    opened.find(".rdx-drawer [data-name=samples]").click()
    rows = opened.find(".rdx-list-rows button")
    expect(rows.first).to_be_visible()
    opened.find(".rdx-list").evaluate("list => { list.scrollTop = 24 * 40; }")
    opened.find(".rdx-list-rows [data-row='43']").click()
    missing = opened.find(".rdx-missing")
    expect(missing).to_be_visible()
    sample = (opened.find(".rdx-title").text_content() or "").split()[-1]
    words = missing.text_content() or ""
    assert f"Sample {sample} is not in this file, which has 9 of 64 samples." in words
    assert f"rounddiag report image_window.parquet --samples {sample}" in words
    expect(opened.region("Text")).to_be_hidden()
    opened.region("rounddiag explorer").focus()
    opened.press("g")
    expect(opened.region("Text")).to_be_visible()
    expect(missing).to_be_hidden()


def test_what_needs_python_is_disabled_and_says_so(opened: Opened) -> None:
    add = opened.find(".rdx-filters summary")
    title = "This file has no Python"
    assert (add.get_attribute("title") or "").startswith(title)
    add.click()
    expect(opened.find(".rdx-filter")).to_contain_text(title)
    opened.press("Escape")
    expect(opened.find(".rdx-filter")).to_be_hidden()
    opened.find(".rdx-choices > .rdx-dropdown > summary").click()
    expect(opened.find(".rdx-view .rdx-empty")).to_contain_text(title)
    fields = opened.find(".rdx-view :is(input, select)")
    assert fields.evaluate_all("all => all.every(({ disabled }) => disabled)")


def test_metric_by_and_threshold_are_there(opened: Opened) -> None:
    opened.page.get_by_role("radio", name="signed").check(force=True)
    opened.settle()
    expect(opened.region("Rounds")).to_contain_text("mean old")
    expect(opened.find("select[aria-label=by]")).to_be_disabled()
    opened.page.get_by_role("radio", name="|diff|").check(force=True)
    opened.settle()
    opened.find("select[aria-label=by]").select_option("group_id")
    opened.settle()
    lines = opened.region("Rounds").locator(".scatterlayer .trace")
    expect(lines).to_have_count(8)
    bars = opened.find(".rdx-groups li > div.rdx-group")
    means = [float(text) for text in bars.locator("> :last-child").all_text_contents()]
    assert len(means) == 16
    assert means == sorted(means, reverse=True)
    expect(opened.find(".rdx-groups .rdx-note")).to_have_text(
        "mean |diff| by group_id, logarithmic: 16 values, the largest first"
    )
    threshold = opened.find("input[aria-label=threshold]")
    threshold.fill("0.1")
    threshold.press("Enter")
    expect(opened.find(".rdx-beyond")).to_contain_text("beyond · ")
    expect(threshold).to_have_value("0.1")


def test_one_round_counts_its_tokens_and_all_rounds_are_named(opened: Opened) -> None:
    ticks = opened.region("Tokens").locator(".xtick text")
    assert ticks.all_text_contents() == ["0", "1", "2", "3", "4", "5", "6", "7"]
    opened.find(".rdx-plot-choices [value=round]").check(force=True)
    opened.settle()
    # Round 3 has 18 tokens.
    expect(ticks).to_have_text(["0", "5", "10", "15"])
    expect(opened.region("Tokens").get_by_text("token", exact=True)).to_be_visible()
    opened.find(".rdx-plot-choices [value=sample]").check(force=True)


@pytest.mark.parametrize("width", [848, 1280])
def test_the_label_of_the_token_plot_is_not_covered(opened: Opened, width: int) -> None:
    opened.resize(width, 700)
    opened.find(".rdx-plot-choices [value=log_probs]").check(force=True)
    tokens = opened.region("Tokens")
    expect(tokens.locator(".annotation-text")).to_have_count(3)
    opened.settle()
    choices = opened.find(".rdx-plot-choices").bounding_box()
    assert choices is not None
    for label in tokens.locator(".annotation-text").all():
        box = label.bounding_box()
        assert box is not None
        is_beside = box["x"] + box["width"] <= choices["x"]
        assert is_beside or box["y"] >= choices["y"] + choices["height"] - 2
    # The plot has room for both panels.
    assert tokens.evaluate("pane => pane.scrollHeight <= pane.clientHeight + 1")
    opened.find(".rdx-plot-choices [value=log_probs]").uncheck(force=True)
    opened.resize(1280, 800)


def test_colours_follow_the_reader(opened: Opened) -> None:
    opened.page.emulate_media(color_scheme="dark")
    expect(opened.find(".rdx")).to_have_attribute("data-theme", "dark")
    opened.settle()
    for figure in opened.find(".rdx-figure .main-svg:first-child").all():
        expect(figure).to_have_css("background-color", PAPERS["dark"])
    opened.page.emulate_media(color_scheme="light")


def test_nothing_can_be_uploaded(opened: Opened) -> None:
    opened.region("Samples").hover()
    expect(opened.find(".modebar-btn")).to_have_count(0)
    expect(opened.find("a[href^=http]")).to_have_count(0)


def test_scripts_that_are_brought_in_do_not_run(chromium: Browser, file: Path) -> None:
    html = file.read_text(encoding="utf-8")
    bad = file.with_name("bad.html")
    script = "<script>document.title = 'taken'</script><img src='http://192.0.2.1/x'>"
    bad.write_text(html.replace("</main>", f"{script}</main>"), encoding="utf-8")
    opened = Opened(chromium, bad)
    assert opened.page.title() == "image_window.parquet, step 1584 - rounddiag"
    assert len(opened.complaints) == 2
    assert all("Content Security Policy" in line for line in opened.complaints)
    opened.close()


def test_without_scripts_it_still_has_the_verdict(
    chromium: Browser, file: Path
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.locator("strong")).to_have_text("broken")
    expect(page.locator("li")).to_contain_text("place: 74 tokens")
    context.close()


def test_the_table_of_a_run_is_as_wide_as_its_page_and_paper(
    chromium: Browser, tmp_path: Path
) -> None:
    for step in (0, 10, 240):  # the last is broken
        shutil.copy(ROOT / "sample_data" / "run" / f"step_{step}.parquet", tmp_path)
    file = tmp_path / "run.html"
    rd.report(rd.open_run(tmp_path), file)
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(file.as_uri())
    table = page.locator("#steps .wide")
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth")
    table.screenshot(path=ARTEFACTS / "report_run_table.png")
    sentences = table.locator("tr > :last-child")
    expect(sentences.nth(1)).to_have_text(
        "Noise: mean |diff| is 0.0025 nat, and no place stands out."
    )
    assert r"\n" not in page.locator("main").inner_text()
    # No step has a cause or a wrong update.
    heads = table.locator("thead th").all_inner_texts()
    assert heads == ["step", "verdict", "mean |diff| [nat]", "places", "diagnosis"]
    assert "`" not in page.locator("main").inner_text()
    page.set_viewport_size({"width": 660, "height": 900})
    page.emulate_media(media="print")
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth")
    context.close()


def test_c_opens_what_the_model_saw_and_esc_closes_it(
    chromium: Browser, tmp_path: Path
) -> None:
    words = {60: "<script>document.title = 'run'</script>", 40: "<b>bold</b>"}
    batch = replace(
        joined(),
        tokenizer=lambda ids: "".join(words.get(each, f"{each} ") for each in ids),
    )
    rd.report(batch, tmp_path / "steps.html")
    opened = Opened(chromium, tmp_path / "steps.html")
    page = opened.page
    expect(page.get_by_role("button", name="context 25 tokens")).to_contain_text(
        "rewritten"
    )
    page.get_by_role("button", name="context 25 tokens").click()
    dialog = page.get_by_role("dialog", name="What the model saw before round 1")
    expect(dialog).to_contain_text("25 tokens, 1 picture: rewritten")
    expect(dialog.locator(".rdx-left")).to_contain_text("<script>")
    expect(dialog.locator(".rdx-context-text")).to_contain_text("<b>bold</b>")
    expect(dialog.locator(".rdx-picture-part.rdx-entered")).to_have_count(1)
    assert page.title() != "run"
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    opened.region("rounddiag explorer").focus()
    page.keyboard.press("c")
    expect(page.get_by_role("dialog")).to_contain_text("What the model saw")
    assert opened.complaints == []
    assert opened.requests[1:] == []
