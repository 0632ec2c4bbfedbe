"""An explorer in a page of its own that this process answers: without JupyterLab."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from rounddiag.widgets.assets import script, style, theme_css
from rounddiag.widgets.serialization import serialize
from rounddiag.widgets.view import error_payload
from tests.browser.explored import CLOSE
from tests.browser.lab import ask
from tests.browser.server import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

    from rounddiag.widgets import Explorer

_HTML = """<!doctype html><meta charset="utf-8">
<style>body{{margin:0}}{css}[data-jp-theme-light="false"]{{background:#111}}</style>
<body data-jp-theme-light="{is_light}"><main></main>
<script type="module">{js}
const bytes = (text) => {{
  const found = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new DataView(found.buffer);
}};
const text64 = (data) => btoa(String.fromCharCode(...new Uint8Array(data)));
const listeners = new Set();
const tell = ({{ plain, buffers }}) => {{
  for (const one of listeners) one(plain, buffers.map(bytes));
}};
globalThis.tell = tell;
const model = {{
  on: (name, listener) => name === "msg:custom" && listeners.add(listener),
  off: (_, listener) => listeners.delete(listener),
  send: (message, _, buffers) => {{
    answer(message, (buffers ?? []).map(text64)).then(tell);
  }},
}};
globalThis.page = new ExplorerPage((heard) => connectKernel(model, heard));
document.querySelector("main").append(page.node);
page.open();
</script>"""


class DirectPage:
    """An explorer, the page that shows it, and everything that it complains of."""

    def __init__(
        self,
        browser: Browser,
        explorer: Explorer,
        *,
        size: tuple[int, int] = (1440, 900),
        theme: str = "light",
        clock: str | None = None,  # what `performance.now` is
    ) -> None:
        self.explorer = explorer
        self._first: dict[str, Any] = {}
        self._size = size
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, offline=True
        )
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_SECONDS)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.expose_function("answer", self._answer)
        explorer._view = self  # type: ignore[assignment]
        if clock is not None:
            ask(self.page, f"performance.now = {clock}")
        self.page.set_content(
            _HTML.format(
                css=theme_css() + style(),
                is_light=str(theme == "light").lower(),
                js=script(),
            )
        )
        self.settle()

    def _answer(self, message: dict[str, Any], buffers: list[str]) -> dict[str, Any]:
        """Answer a request as `rounddiag.widgets.view.PageWidget` does."""
        parts = [b64decode(one) for one in buffers]
        try:
            result = self.explorer._handle(message["name"], message["args"], parts)
            reply: dict[str, Any] = {"result": result() if callable(result) else result}
        except Exception as error:  # noqa: BLE001 the page shows it
            reply = {"error": error_payload(error)}
        return _packed({"kind": "reply", "id": message["id"], **reply})

    def notify(self, name: str, **facts: object) -> None:
        """Tell the page, as `PageWidget.notify` does."""
        message = _packed({"kind": "notify", "name": name, **facts})
        ask(self.page, "message => tell(message)", message)

    @property
    def node(self) -> Locator:
        return self.page.locator(".rdx")

    def find(self, selector: str) -> Locator:
        return self.node.locator(selector)

    def text(self, selector: str) -> str:
        return self.find(selector).first.text_content() or ""

    def texts(self, selector: str) -> list[str]:
        return self.find(selector).all_text_contents()

    def press(self, *keys: str) -> None:
        """Press keys with the explorer in focus."""
        self.node.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def set_theme(self, theme: str) -> None:
        light = str(theme == "light").lower()
        ask(self.page, f"document.body.dataset.jpThemeLight = '{light}'")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is asked, drawn or diagnosed any more."""
        expect(self.node).not_to_have_attribute("data-waiting", "true")
        expect(self.node).to_have_attribute("aria-busy", "false")
        expect(self.page.locator("[data-drawing]")).to_have_count(0)
        expect(self.node.get_by_text("diagnosing…")).to_have_count(0)
        ask(
            self.page,
            "() => new Promise(done => requestAnimationFrame(() =>"
            " requestAnimationFrame(() => requestAnimationFrame(done))))",
        )

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.settle()

    def reset(self) -> None:
        """Take everything back to what it was when this was first called."""
        self._first = self._first or self.explorer.state  # waits for the diagnosis
        self.node.evaluate(CLOSE)
        self.explorer.state = self._first
        self.resize(*self._size)

    def screenshot(self, path: Path | str) -> None:
        self.page.screenshot(path=path)

    def close(self) -> None:
        self.explorer._view = None
        self._context.close()


def _packed(message: dict[str, object]) -> dict[str, Any]:
    plain, buffers = serialize(message)
    return {"plain": plain, "buffers": [b64encode(one).decode() for one in buffers]}
