"""Execute the notebooks and add a PNG to every figure, for viewers without a kernel.

    python notebooks/execute.py [NOTEBOOK ...]

Plotly figures keep their interactive form and get a PNG; coloured text, whose styles
GitHub removes, is replaced by a PNG. An explorer gets a PNG of its report, above its
table; the cell tag `press-c` presses `c` in it first. Needs Chromium or Chrome.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import plotly.io as pio
from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

FOLDER = Path(__file__).parent
PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDTH = 800
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


# The media type of the address of a report, until its picture takes its place.
REPORT = "text/x-report"
# Writes the report of the explorer that a cell shows, and prints its table. Other
# widgets are progress bars.
WRITE_REPORT = """
if isinstance(_explorer := Out.get({count}), rd.Explorer):
    rd.report(_explorer.batch, {path!r}, worst=1, samples=_explorer.batch.num_samples)
    print(_explorer._repr_mimebundle_()[0]["text/html"])
"""
# Of an explorer's picture, in pixels.
EXPLORER: ViewportSize = {"width": 1400, "height": 800}


def execute(notebook: Path, folder: Path) -> nbformat.NotebookNode:
    """Execute a notebook in its folder, and write the reports of its explorers."""
    nb = nbformat.read(notebook, as_version=4)
    client = nbclient.NotebookClient(
        nb, resources={"metadata": {"path": notebook.parent}}
    )
    with client.setup_kernel():
        for index, cell in enumerate(nb.cells):
            client.execute_cell(cell, index)
            if any(WIDGET in one.get("data", {}) for one in cell.get("outputs", [])):
                path = folder / f"{notebook.stem}-{index}.html"
                cell.outputs = explorer_outputs(client, cell, path)
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        outputs = cell.get("outputs", [])
        outputs[:] = [one for one in outputs if not is_of_a_session(one)]
    return nb


def explorer_outputs(
    client: nbclient.NotebookClient, cell: nbformat.NotebookNode, path: Path
) -> list[nbformat.NotebookNode]:
    """Return the outputs of a cell, for an explorer its report and its table."""
    tags = cell.metadata.get("tags", [])
    keys = [tag.removeprefix("press-") for tag in tags if tag.startswith("press-")]
    code = WRITE_REPORT.format(count=cell.execution_count, path=str(path))
    helper = nbformat.v4.new_code_cell(code)
    client.nb.cells.append(helper)  # where the client looks for it
    client.execute_cell(helper, len(client.nb.cells) - 1, store_history=False)
    client.nb.cells.pop()
    html = "".join(one.text for one in helper.outputs if one.get("name") == "stdout")
    if not html:
        return list(cell.outputs)
    data: list[dict[str, object]] = [
        {REPORT: path.as_uri(), "keys": keys},
        {"text/html": html},
    ]
    return [
        nbformat.v4.new_output("display_data", {**one, "text/plain": "explorer"})
        for one in data
    ]


def report_png(address: str, keys: list[str], page: Page) -> bytes:
    """Take a screenshot of a report where it opens, after some keys were pressed."""
    page.goto(address)
    page.locator(".rdx:not([data-waiting]) .rdx-plot svg.main-svg").first.wait_for()
    page.wait_for_timeout(2000)  # figures are drawn in turn
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(1000)
    picture: bytes = page.screenshot()
    return picture


def is_of_a_session(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is of no use in a notebook that was only opened.

    Without a kernel a widget is an error message (its static table stays), and a page
    ignores the style of a figure in a notebook that its user did not run.
    """
    data = output.get("data", {})
    return WIDGET in data or "rounddiag-theme" in data.get("text/html", "")


def figure_png(figure: dict[str, Any]) -> bytes:
    """Draw a plotly figure."""
    return pio.to_image(figure, "png", WIDTH, figure["layout"].get("height", 450))


def text_png(html: str, page: Page) -> bytes:
    """Take a screenshot of a piece of HTML."""
    page.set_content(f"<body style='margin:0;background:#fff'>{html}</body>")
    return page.locator("body > *").first.screenshot()


def quantize(png: bytes, num_colors: int) -> bytes:
    """Reduce the colours of a PNG; those of small marks stay."""
    buffer, picture = io.BytesIO(), Image.open(io.BytesIO(png)).convert("RGB")
    reduced = picture.quantize(
        num_colors, Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE
    )
    reduced.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def round_numbers(text: str) -> str:
    """Round the numbers of a JSON text to 5 digits."""
    rounded = json.loads(text, parse_float=lambda number: float(f"{float(number):.5g}"))
    return json.dumps(rounded, separators=(",", ":"))


def write(nb: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook, each figure as one line of rounded numbers: half the size."""
    outputs = (one for cell in nb.cells for one in cell.get("outputs", []))
    found = [one.data for one in outputs if PLOTLY in one.get("data", {})]
    texts = [round_numbers(json.dumps(data[PLOTLY])) for data in found]
    for index, data in enumerate(found):
        data[PLOTLY] = f"figure {index}"
    text = nbformat.writes(nb)
    for index, figure in enumerate(texts):
        text = text.replace(f'"{PLOTLY}": "figure {index}"', f'"{PLOTLY}": {figure}')
    path.write_text(f"{text}\n", encoding="utf-8")


def add_pictures(nb: nbformat.NotebookNode, page: Page, wide: Page) -> None:
    """Add a PNG to every figure, coloured text and explorer of a notebook."""
    for output in (o for cell in nb.cells for o in cell.get("outputs", [])):
        data, num_colors = output.get("data", {}), 48
        if PLOTLY in data:
            png = figure_png(data[PLOTLY])
            del data["text/html"]  # words in place of a picture, which is there now
        elif REPORT in data:
            png = report_png(data.pop(REPORT), data.pop("keys"), wide)
            num_colors = 256  # a colour scale, and screenshots
        elif "rd-text" in data.get("text/html", ""):
            png = text_png(data.pop("text/html"), page)
        else:
            continue
        data["image/png"] = base64.b64encode(quantize(png, num_colors)).decode()


def main() -> None:
    """Execute the notebooks that were named, or all notebooks of this folder."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)))
    paths = [*map(Path, sys.argv[1:])] or sorted(FOLDER.glob("*.ipynb"))
    with tempfile.TemporaryDirectory() as folder:
        notebooks = {path: execute(path, Path(folder)) for path in paths}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": WIDTH, "height": 600})
            wide = browser.new_page(viewport=EXPLORER)
            for path, nb in notebooks.items():
                add_pictures(nb, page, wide)
                write(nb, path)
            browser.close()


if __name__ == "__main__":
    main()
