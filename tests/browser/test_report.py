"""The report in a browser that has no network: every figure painted, all to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import rounddiag as rd
from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.contrast import pale_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

NUM_FIGURES = 1 + 2 + 3  # of the first finding, of the batch, of the worst samples

PAINTED = """all => all.map(box => ({
  marks: box.querySelectorAll('.mlayer path, .mlayer rect, .mlayer image').length,
  paper: getComputedStyle(box.querySelector('.main-svg')).backgroundColor,
  width: box.querySelector('.main-svg').getBoundingClientRect().width,
  room: box.getBoundingClientRect().width,
}))"""
SIZE = "box => [box.clientWidth, box.clientHeight]"
ALL_ON = """paper => [...document.querySelectorAll('.plot')].every(box =>
  getComputedStyle(box.querySelector('.main-svg')).backgroundColor === paper)"""
PAPERS = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 17, 17)"}


class Opened:
    """The report in a page, and whatever it asked for or complained about."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))
        page.goto(file.as_uri())
        self.own = file.as_uri()

    def _asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")):
            self.requests.append(url)

    def scroll_through(self) -> None:
        """Bring every figure near the screen: it is drawn then."""
        for figure in self.page.locator(".plot").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".main-svg").first.wait_for()

    def painted(self) -> list[dict[str, Any]]:
        self.scroll_through()
        found: list[dict[str, Any]] = self.page.eval_on_selector_all(".plot", PAINTED)
        return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    rd.report(rd.load(ROOT / "sample_data" / "image_window.parquet"), path, worst=3)
    return path


@pytest.fixture(params=[(400, "light"), (400, "dark"), (1600, "light"), (1600, "dark")])
def look(request: pytest.FixtureRequest) -> tuple[int, str]:
    width, scheme = request.param
    return width, scheme


@pytest.fixture
def opened(chromium: Browser, file: Path, look: tuple[int, Any]) -> Iterator[Opened]:
    width, scheme = look
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    yield Opened(context.new_page(), file)
    context.close()


def test_a_page_without_network_is_painted_and_read(
    opened: Opened, look: tuple[int, str]
) -> None:
    width, scheme = look
    painted = opened.painted()
    assert len(painted) == NUM_FIGURES
    assert all(figure["marks"] for figure in painted)
    assert {figure["paper"] for figure in painted} == {PAPERS[scheme]}
    assert all(figure["width"] == figure["room"] for figure in painted)
    found = opened.page.evaluate("document.documentElement.scrollWidth")
    assert found == width
    num_texts, pale = pale_texts(opened.page, "header *, nav *, main *")
    assert num_texts > 300
    assert pale == []
    ARTEFACTS.mkdir(exist_ok=True)
    opened.page.screenshot(path=ARTEFACTS / f"report_{width}_{scheme}.png")
    assert (opened.complaints, opened.requests) == ([], [opened.own])


def test_figures_are_drawn_when_they_come_near_the_screen(
    chromium: Browser, file: Path
) -> None:
    opened = Opened(chromium.new_page(viewport={"width": 1280, "height": 400}), file)
    first, *_, last = opened.page.locator(".plot").all()
    first.locator(".main-svg").first.wait_for(state="attached")
    assert last.locator(".main-svg").count() == 0
    room = last.evaluate(SIZE)
    last.scroll_into_view_if_needed()
    last.locator(".main-svg").first.wait_for()
    assert last.evaluate(SIZE) == room
    opened.page.close()


def test_figures_that_nobody_has_seen_are_on_paper_too(
    chromium: Browser, file: Path
) -> None:
    opened = Opened(chromium.new_page(viewport={"width": 1280, "height": 400}), file)
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    on_paper = opened.page.locator(".plot .main-svg:first-child[width='660']")
    expect(on_paper).to_have_count(NUM_FIGURES)
    opened.page.close()


def test_colours_and_width_follow_the_reader_and_the_paper(
    chromium: Browser, file: Path
) -> None:
    opened = Opened(chromium.new_page(color_scheme="dark"), file)
    wide = opened.painted()
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    on_paper = opened.painted()
    assert {(one["width"], one["paper"]) for one in on_paper} == {
        (660, PAPERS["light"])
    }
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(opened.page.locator(".main-svg[width='660']")).to_have_count(0)
    assert opened.painted() == wide
    opened.page.emulate_media(color_scheme="light")
    # The browser tells the page of it when it likes to.
    opened.page.wait_for_function(ALL_ON, arg=PAPERS["light"])
    assert {one["paper"] for one in opened.painted()} == {PAPERS["light"]}
    opened.page.close()


def test_scripts_that_are_brought_in_do_not_run(chromium: Browser, file: Path) -> None:
    html = file.read_text(encoding="utf-8")
    bad = file.with_name("bad.html")
    script = "<script>document.title = 'taken'</script><img src='http://192.0.2.1/x'>"
    bad.write_text(html.replace("</main>", f"{script}</main>"), encoding="utf-8")
    opened = Opened(chromium.new_page(), bad)
    assert opened.page.title() == "image_window.parquet, step 1584 - rounddiag"
    assert len(opened.complaints) == 2
    assert all("Content Security Policy" in one for one in opened.complaints)
    opened.page.close()
