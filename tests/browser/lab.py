"""A notebook as a person has it: open in JupyterLab, in a real browser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

from tests.browser.server import PATIENCE_SECONDS, TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

Theme = Literal["light", "dark"]
_THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
KERNEL = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"
_OPEN = """([path, kernel]) => jupyterapp.commands.execute(
  'docmanager:open', { path, factory: 'Notebook', ...(kernel && { kernel }) })
  .then(() => true)"""
_IS_OPEN = f"""path => jupyterapp.shell.currentWidget?.context?.path === path
  && {KERNEL}?.status === 'idle'"""
_HIDE_SIDE_BAR = "() => jupyterapp.shell.collapseLeft()"  # the notebook has the width
# None after a test that lost its kernel: the next notebook starts one.
_LAST_KERNEL = f"() => {KERNEL} ? {{ id: {KERNEL}.id }} : null"
_CLOSE = "() => jupyterapp.shell.currentWidget.dispose()"
_FORGET = (
    "[__import__('ipywidgets').Widget.close_all(),"
    " get_ipython().reset(new_session=False)] and 0"
)
_RUN = """command => {
  globalThis.rounddiagRan = false;
  jupyterapp.commands.execute(command).finally(
    () => { globalThis.rounddiagRan = true; });
}"""
_OUTPUTS = """Array.from(jupyterapp.shell.currentWidget.content.model.cells)
  .filter(cell => cell.type === 'code')
  .flatMap(cell => cell.sharedModel.outputs)"""
_ERRORS = f"""() => {_OUTPUTS}
  .filter(output => output.output_type === 'error')
  .map(error => `${{error.ename}}: ${{error.evalue}}`)"""
_COUNT_FIGURES = f"""() => {_OUTPUTS}
  .filter(output => 'application/vnd.plotly.v1+json' in (output.data ?? {{}})).length"""
# JupyterLab's own complaint when a kernel ends while it prepares a subshell.
_LOST_KERNEL = "Canceled future for create_subshell_request"
# The notebook leaves room for a side bar only.
_LAID_OUT = """pixels => {
  const { right } = jupyterapp.shell.currentWidget.node.getBoundingClientRect();
  return innerWidth === pixels && pixels - 60 < right && right <= pixels;
}"""
_EVALUATE = """async ([kernel, expression]) => {
  const code = 'import json as _json';
  const user_expressions = {value: `_json.dumps(${expression})`};
  const future = eval(kernel).requestExecute({code, user_expressions, silent: true});
  return (await future.done).content.user_expressions?.value;
}"""


# A page that never answers would hold a test for ever: `evaluate` has no limit.
_LIMITED = """async harnessArg => {{
  const harnessLate = new Promise((_, fail) => setTimeout(
    () => fail(new Error('the page has not answered within {seconds} s')),
    1000 * {seconds}));
  const harnessAsked = {code};
  const isCall = typeof harnessAsked === 'function';
  return Promise.race([isCall ? harnessAsked(harnessArg) : harnessAsked, harnessLate]);
}}"""


def ask(
    page: Page, code: str, arg: object = None, seconds: float = PATIENCE_SECONDS
) -> Any:
    """Evaluate JavaScript in a page, for no longer than the harness waits."""
    return page.evaluate(_LIMITED.format(code=code, seconds=seconds), arg)


class LabNotebook:
    """One notebook in one page, with everything that the page asked the network for."""

    def __init__(self, browser: Browser, address: str, artefacts: Path) -> None:
        # A page of its own window: Chromium draws a tab in the background late.
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.page.set_default_timeout(1000 * PATIENCE_SECONDS)
        self.requests: list[str] = []
        self.console_errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self._keep_error(str(error)))
        self._address = address
        self._artefacts = artefacts

    def _keep_error(self, error: str) -> None:
        if _LOST_KERNEL not in error:
            self.console_errors.append(error)

    def open(self, notebook: str) -> None:
        """Open a notebook in a workspace of its own; wait for its kernel."""
        place = f"/lab/workspaces/{uuid4().hex}/tree/{notebook}"
        self.page.goto(f"{self._address}{place}?token={TOKEN}&reset")
        self.wait_for_kernel()
        ask(self.page, _HIDE_SIDE_BAR)

    def open_next(self, notebook: str, *, own_kernel: bool = False) -> None:
        """Open another notebook here, on the kernel of the last one or its own."""
        self.page.set_viewport_size({"width": 1280, "height": 900})
        ask(self.page, _HIDE_SIDE_BAR)
        kernel = None if own_kernel else ask(self.page, _LAST_KERNEL)
        ask(self.page, _OPEN, [notebook, kernel])
        self.page.wait_for_function(_IS_OPEN, arg=notebook)
        self.requests.clear()
        self.console_errors.clear()

    def close_notebook(self, *, own_kernel: bool = False) -> None:
        """Close the notebook in front; its kernel ends, or forgets what it did."""
        try:
            if own_kernel:
                self._shut_down()
            else:
                self.value(_FORGET)
        finally:  # else the next one would open beside it
            ask(self.page, _CLOSE)

    def wait_for_kernel(self) -> None:
        self.page.wait_for_function(
            f"() => globalThis.jupyterapp && {KERNEL}?.status === 'idle'"
        )

    def run_all(self, timeout_seconds: float = 2 * PATIENCE_SECONDS) -> None:
        """Run every cell up to the first that fails."""
        self._run("notebook:run-all-cells", timeout_seconds)

    def run_cell(self, index: int) -> None:
        """Run one cell."""
        ask(
            self.page,
            "index => { jupyterapp.shell.currentWidget.content.activeCellIndex ="
            " index; }",
            index,
        )
        self._run("notebook:run-cell", PATIENCE_SECONDS)

    def _run(self, command: str, timeout_seconds: float) -> None:
        ask(self.page, _RUN, command)
        self.page.wait_for_function(
            f"() => globalThis.rounddiagRan && {KERNEL}.status === 'idle'",
            timeout=timeout_seconds * 1000,
        )

    def command(self, name: str, **arguments: object) -> None:
        """Start a command of JupyterLab without waiting for it."""
        ask(
            self.page,
            "([name, given]) => { jupyterapp.commands.execute(name, given); }",
            [name, arguments],
        )

    def value(self, expression: str) -> Any:
        """Evaluate Python in the kernel; the value travels as JSON."""
        answer = ask(self.page, _EVALUATE, [KERNEL, expression])
        if answer is None or answer["status"] != "ok":
            msg = f"`{expression}` failed in the kernel: {answer}"
            raise RuntimeError(msg)
        return json.loads(eval(answer["data"]["text/plain"]))  # noqa: S307 - a str

    @property
    def theme(self) -> Theme:
        light = self.page.locator("body").get_attribute("data-jp-theme-light")
        return "dark" if light == "false" else "light"

    def set_theme(self, theme: Theme) -> None:
        """Change the theme of JupyterLab, which takes a second, if it has another."""
        if theme == self.theme:
            return
        self.command("apputils:change-theme", theme=_THEMES[theme])
        is_light = json.dumps(theme == "light")
        self.page.wait_for_selector(
            f"body[data-jp-theme-light='{is_light}']", state="attached"
        )
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    def set_width(self, pixels: int) -> None:
        """Make the window so wide, and wait until JupyterLab has laid itself out."""
        self.page.set_viewport_size({"width": pixels, "height": 900})
        self.page.wait_for_function(_LAID_OUT, arg=pixels)

    def settle(self) -> None:
        """Wait two frames: what was asked of the page is on the screen then."""
        ask(
            self.page,
            "() => new Promise(done =>"
            " requestAnimationFrame(() => requestAnimationFrame(done)))",
        )

    @property
    def outputs(self) -> Locator:
        """Output areas only: a cell's source would match its own text."""
        return self.page.locator(".jp-Notebook .jp-OutputArea")

    @property
    def errors(self) -> list[str]:
        """What ended a cell, such as `ValueError: went wrong`."""
        return list(ask(self.page, _ERRORS))

    @property
    def num_figures(self) -> int:
        """How many outputs are plotly figures, on the screen or not."""
        return int(ask(self.page, _COUNT_FIGURES))

    @property
    def strangers(self) -> list[str]:
        """What was asked of anybody but this machine."""
        remote = {"http", "https", "ws", "wss"}
        parts = [urlsplit(url) for url in self.requests]
        return [
            part.geturl()
            for part in parts
            if part.scheme in remote and part.hostname != "127.0.0.1"
        ]

    def screenshot(self, name: str) -> None:
        self._artefacts.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self._artefacts / f"{name}.png")

    def close(self) -> None:
        """End the kernel and the page."""
        if ask(self.page, f"() => Boolean(globalThis.jupyterapp && {KERNEL})"):
            self._shut_down()
        self.page.close()

    def _shut_down(self) -> None:
        ask(self.page, "() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")
