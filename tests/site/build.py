"""Build the site from what the checkout has: `./tests/run --site`.

The README is its first page. A page per figure, format, check and cause is written from
the lists that the package itself uses; the notebooks are copied; Sphinx adds the
docstrings. Two reports are its live pages. Nothing is read from the network.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import rounddiag as rd
from rounddiag.checks import suite
from rounddiag.checks.contracts import Contract
from rounddiag.findings.causes import CAUSES, FAMILIES
from rounddiag.loaders.detection import FORMATS
from rounddiag.proof.hypotheses import all_registered
from rounddiag.wording import capitalize

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "sample_data"
LARGEST_SITE = 20_000_000  # bytes
# The call that draws a figure, where it needs more than a batch.
CALLS = {
    "plot_compare": "rd.plot_compare([healthy, batch])",
    "plot_finding": "rd.plot_finding(rd.diagnose(batch)[0])",
    "plot_proof": (
        "rd.plot_proof(rd.prove(batch, MODEL,"
        ' hypotheses=["last_2_images", "last_3_images", "zero_features"]))'
    ),
    "plot_run": 'rd.plot_run(rd.open_run("sample_data/run"))',
    "plot_trajectory": 'rd.plot_trajectory(batch, sample="task-08/1")',
}
# Pages of the checkout that keep their path, so that their links lead to each other.
COPIED = ("rounddiag/loaders/formats.md", "rounddiag/cli/recipes.md", "CHANGELOG.md")
CONTRIBUTING = ".github/CONTRIBUTING.md"
KINDS = {
    "bug": "the log-probs, the ids or the mask are wrong",
    "update": "the log-probs are sound, and the update is not",
    "note": "worth knowing; the verdict stays",
}


def slug(name: str) -> str:
    """Return a file name for a title."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write_list(folder: Path, title: str, text: str, pages: Mapping[str, str]) -> None:
    """Write pages by name, and the page that lists them."""
    folder.mkdir()
    for name, page in pages.items():
        # Not in the contents, which each of some 200 pages repeats.
        whole = f"---\norphan: true\n---\n\n# {name}\n\n{page}"
        (folder / f"{slug(name)}.md").write_text(whole, "utf-8")
    links = "\n".join(f"- [{name}]({slug(name)}.md)" for name in pages)
    (folder / "index.md").write_text(f"# {title}\n\n{text}\n\n{links}\n", "utf-8")


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values without the rows that have no value."""
    lines = [f"| {name} | {value} |" for name, value in rows if value]
    return "\n".join(["| | |", "|---|---|", *lines, ""])


def figure_pages(folder: Path) -> dict[str, str]:
    """Draw every figure of the sample batch; return a page for each."""
    folder.mkdir()
    names = {
        "rd": rd,
        "batch": rd.demo(),
        "healthy": rd.demo("healthy"),
        "MODEL": str(DATA / "model"),
    }
    pages = {}
    for name in dir(rd):
        if name.startswith("plot_"):
            call = CALLS.get(name, f"rd.{name}(batch)")
            figure = eval(call, names)  # noqa: S307 a call of this file
            (folder / f"{name}.png").write_bytes(rd.figures.png(figure))
            code = f"import rounddiag as rd\n\nbatch = rd.demo()\n{call}"
            docs = f".. autofunction:: rounddiag.{name}\n   :no-index:"
            pages[name] = (
                f"![{name}](../pictures/{name}.png)\n\n```python\n{code}\n```\n\n"
                f"```{{eval-rst}}\n{docs}\n```\n"
            )
    return pages


def format_pages() -> dict[str, str]:
    """Return a page for each format that `load` knows."""
    return {
        f"{form.framework}: {form.name}": table(
            [
                ("files", ", ".join(f"`{pattern}`" for pattern in form.files)),
                ("recognised by", ", ".join(f"`{key}`" for key in form.names)),
                ("checked on", form.verified or "*unverified*: from its source"),
                ("cannot be opened", form.reason),
            ]
        )
        for form in FORMATS
    }


def check_page(contract: Contract) -> str:
    """Return the page of a check: what a failure means, and what to do."""
    effect = f"{contract.effect[:1].upper()}{contract.effect[1:]}." * bool(
        contract.effect
    )
    cause = f"[{contract.cause}](../causes/{slug(contract.cause)}.md)"
    rows = [
        ("a failure means", KINDS[contract.kind]),
        ("field", f"`{contract.field}`"),
        ("cause", cause * bool(contract.cause)),
        ("what to do", contract.advice),
    ]
    return f"{effect}\n\n{table(rows)}"


def cause_pages() -> dict[str, str]:
    """Return a page for each cause: how it looks, what tests it."""
    says = {hypothesis.name: hypothesis.says for hypothesis in all_registered()}
    pages = {}
    for name, cause in CAUSES.items():
        tests = [
            f"- `{key}`: {says.get(key, 'with the number that fits best')}"
            for key in cause.hypotheses
        ]
        pages[name] = "\n\n".join(
            [
                f"{capitalize(cause.meaning)}.",
                table(
                    [
                        ("family", FAMILIES.get(cause.family, "")),
                        ("needs an image", "yes" if cause.with_image else ""),
                        ("what to do", cause.test),
                    ]
                ),
                "`rounddiag prove` tests it by:" if tests else "No proof tests it.",
                "\n".join(tests),
            ]
        )
    return pages


def api_page() -> str:
    """Return the page that lists the public names."""
    names = "\n".join(f"   {name}" for name in dir(rd) if name[0] != "_")
    summary = f".. currentmodule:: rounddiag\n.. autosummary::\n   :toctree:\n\n{names}"
    return f"# Reference\n\n```{{eval-rst}}\n{summary}\n```\n"


def write_source(source: Path) -> None:
    """Write the pages that Sphinx turns into the site."""
    shutil.copy(HERE / "conf.py", source)
    shutil.copytree(ROOT / "notebooks", source / "notebooks")
    for name in COPIED:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    shutil.copy(ROOT / CONTRIBUTING, source / "contributing.md")
    write_list(
        source / "figures",
        "Figures",
        "Each draws a batch or a frame and returns a plotly figure.",
        figure_pages(source / "pictures"),
    )
    formats = "What `rd.load` opens, in the order in which it tries."
    write_list(source / "formats", "File formats", formats, format_pages())
    checks = "What holds for every valid batch. `rd.check(batch)` runs all of them."
    contracts = (*suite._FAST, *suite._OTHERS)
    pages = {contract.name: check_page(contract) for contract in contracts}
    write_list(source / "checks", "Checks", checks, pages)
    causes = "What a finding can name, once something reproduces the numbers."
    write_list(source / "causes", "Causes", causes, cause_pages())
    (source / "api").mkdir()
    (source / "api" / "index.md").write_text(api_page(), "utf-8")
    live = source / "live" / "live"
    live.mkdir(parents=True)
    rd.report(rd.demo(), live / "batch.html")
    rd.report(rd.open_run(DATA / "run"), live / "run.html")
    write_first_page(source)


def write_first_page(source: Path) -> None:
    """Write the README as the first page, with the contents of the site."""
    text = (ROOT / "README.md").read_text("utf-8")
    text = text.replace(f"({CONTRIBUTING})", "(contributing.md)")
    notebooks = [
        f"notebooks/{path.stem}" for path in sorted(ROOT.glob("notebooks/*.ipynb"))
    ]
    lists = [
        f"{name}/index" for name in ("figures", "checks", "causes", "formats", "api")
    ]
    others = [*(name.removesuffix(".md") for name in COPIED), "contributing"]
    parts = {"Course": notebooks, "Lists": lists, "Pages": others}
    trees = "\n\n".join(
        "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```"])
        for title, names in parts.items()
    )
    live = (
        "Live pages: [the explorer of this batch](live/batch.html),"
        " [a run of 40 steps](live/run.html)."
    )
    text = re.sub(r"^(!\[.*\)\n)", rf"\1\n{live}\n", text, count=1, flags=re.MULTILINE)
    (source / "index.md").write_text(f"{text}\n{trees}\n", "utf-8")


class Links(HTMLParser):
    """The addresses that a page names, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect links, and what the browser loads with the page."""
        for name, value in attrs:
            if value and name == "href" and tag == "a":
                self.targets.append(value)
            elif value and name in ("src", "href"):
                self.loads.append(value)


def broken_links(site: Path) -> list[str]:
    """Return links to files that the site lacks, and what it loads from a network."""
    broken = []
    for page in sorted(site.rglob("*.html")):
        if page.parent.name == "live":
            continue  # a report has its own tests, and holds all it needs
        links = Links()
        links.feed(page.read_text("utf-8"))
        broken += [
            f"{page.relative_to(site)} loads {address}"
            for address in links.loads
            if urlsplit(address).netloc
        ]
        for address in links.targets + links.loads:
            parts = urlsplit(address)
            path = page.parent / unquote(parts.path)
            if not parts.scheme and not parts.netloc and not path.exists():
                broken.append(f"{page.relative_to(site)} links to {address}")
    return broken


def main() -> int:
    """Build the site; return 1 if a link is broken or it is too large."""
    from sphinx.cmd.build import main as run_sphinx  # only where the site is built

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write it")
    site, start = parser.parse_args().folder, time.monotonic()
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        write_source(Path(folder))
        if status := int(run_sphinx(["-q", "-b", "html", folder, str(site)])):
            return status
    shutil.rmtree(site / ".doctrees")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    broken = broken_links(site)
    print(*broken, sep="\n", end="\n" * bool(broken))
    seconds = time.monotonic() - start
    print(f"{site / 'index.html'}: {size / 1e6:.1f} MB, in {seconds:.0f} s")
    return int(bool(broken) or size > LARGEST_SITE)


if __name__ == "__main__":
    sys.exit(main())
