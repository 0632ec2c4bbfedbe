"""The parts of the explorer's page, each by itself, in a page without a kernel."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from rounddiag.widgets.assets import script, style, theme_css
from rounddiag.widgets.serialization import serialize
from tests.browser.lab import ask
from tests.browser.server import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

PARTS = (
    *("tokenText", "focusPanel", "roundStrip", "screenViewer", "listDrawer"),
    *("controlBar", "number", "alignDecimals", "ordinal", "deserialize"),
)
_PAGE = """<!doctype html><meta charset="utf-8">
<style>body{{margin:0}}{css}.rdx-text{{height:600px}}</style>
<main class="rdx" data-theme="{theme}" data-shown></main>
<script type="module">{js}
Object.assign(globalThis, {{said: [], {parts}}});
globalThis.say = name => (...what) => {{ said.push([name, ...what]); }};
</script>"""
_KEEP = """([name, plain, buffers]) => {
  const bytes = text => Uint8Array.from(atob(text), one => one.charCodeAt(0));
  globalThis[name] = deserialize(plain, buffers.map(bytes));
}"""


class PartsPage:
    """A page with the script of the explorer, and everything that it complains of."""

    def __init__(self, browser: Browser, *, width: int, theme: str) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True
        )
        self.page: Page = context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_SECONDS)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url))
        css, parts = theme_css() + style(), ", ".join(PARTS)
        html = _PAGE.format(css=css, theme=theme, js=script(), parts=parts)
        self.page.set_content(html)
        self.page.wait_for_function("globalThis.say")

    def _asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")):
            self.complaints.append(f"asked for {url}")

    def keep(self, name: str, value: object) -> None:
        """Send a value as the kernel would, and keep it by a name in the page."""
        plain, buffers = serialize(value)
        texts = [b64encode(buffer).decode() for buffer in buffers]
        ask(self.page, _KEEP, [name, plain, texts])

    def run(self, code: str) -> Any:
        """Run a few lines in the page."""
        return ask(self.page, f"async () => {{ {code} }}")

    @property
    def said(self) -> list[list[Any]]:
        """What the parts have sent since this was last read."""
        found: list[list[Any]] = self.run("return said.splice(0);")
        return found

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def texts(self, selector: str) -> list[str]:
        return self.find(selector).all_text_contents()

    def close(self) -> None:
        self.page.context.close()
