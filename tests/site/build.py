"""Build the site from what the checkout has: `./tests/run --site`.

The README is its first page. A page per figure, format, check and cause is written from
the lists that the package itself uses; the notebooks are copied; Sphinx adds the
docstrings. Two reports are its live pages. Nothing is read from the network.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import kaleido

import rounddiag as rd
from rounddiag.cli.options import COMMANDS
from rounddiag.loaders.detection import FORMATS
from rounddiag.loaders.format import Format
from tests.faults import fixed
from tests.site.cause_pages import cause_pages, check_pages, find_failures
from tests.site.figure_pages import figure_pages
from tests.site.pages import Page, list_pages, table, write_pages
from tests.site.planted import plant_all

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "sample_data"
LARGEST_SITE = 20_000_000  # bytes
# Pages of the checkout that keep their path, so that their links lead to each other.
FORMATS_PAGE = "rounddiag/loaders/formats.md"
COPIED = (FORMATS_PAGE, "rounddiag/cli/recipes.md", "CHANGELOG.md")
CONTRIBUTING = ".github/CONTRIBUTING.md"
# Pages that only the site has. The second is made by tests/interop/processors.py.
OWN = ("verdicts.md", "image_tokens.md")


def format_page(form: Format) -> Page:
    """Return the page of a format that `load` knows."""
    read = form.read or form.trajectories
    module = sys.modules[read.__module__] if read else None
    docs = [read.__doc__ or ""] if read else []
    if module and module.__name__.startswith("rounddiag.loaders.frameworks."):
        docs.insert(0, module.__doc__ or "")
    rows = [
        ("written by", form.framework),
        ("files", ", ".join(f"`{pattern}`" for pattern in form.files)),
        ("recognised by", ", ".join(f"`{key}`" for key in form.names)),
        ("checked on", form.verified or "*unverified*: from its source"),
        ("cannot be opened", form.reason),
    ]
    text = "\n\n".join(inspect.cleandoc(doc).partition("\n\n")[0] for doc in docs)
    return Page(
        name=f"{form.framework} {form.name}",
        title=f"{form.framework}: {form.name}",
        sentence=", ".join(f"`{pattern}`" for pattern in form.files[:3]),
        text=f"{text}\n\n{table(rows)}",
    )


def api_page() -> str:
    """Return the page that lists the public names, in the order of work."""
    docs = rd.__doc__ or ""
    public = [name for name in dir(rd) if name[0] != "_"]
    names = "\n".join(
        f"   {name}" for name in sorted(public, key=lambda name: docs.find(f"`{name}`"))
    )
    summary = f".. currentmodule:: rounddiag\n.. autosummary::\n   :toctree:\n\n{names}"
    return f"# Reference\n\n```{{eval-rst}}\n{summary}\n```\n"


def command_page() -> str:
    """Return the page of commands, each with its help."""
    helps = [(name, command.help) for name, command in COMMANDS.items()]
    rows = [f"| `rounddiag {name}` | {text} |" for name, text in helps]
    return "\n".join(["# Commands", "", "| command | |", "|---|---|", *rows, ""])


@contextmanager
def drawing() -> Iterator[None]:
    """Draw all pictures with one browser: a tenth of the time of one for each."""
    kaleido.start_sync_server(silence_warnings=True)
    warnings.filterwarnings("ignore", message="The kopts argument")
    yield
    kaleido.stop_sync_server()


def write_source(source: Path) -> None:
    """Write the pages that Sphinx turns into the site."""
    shutil.copy(HERE / "conf.py", source)
    (source / "_static").mkdir()
    shutil.copy(HERE / "site.css", source / "_static")
    shutil.copytree(ROOT / "notebooks", source / "notebooks")
    for name in COPIED:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    shutil.copy(ROOT / CONTRIBUTING, source / "contributing.md")
    for name in OWN:
        shutil.copy(HERE / name, source)
    (source / "commands.md").write_text(command_page(), "utf-8")
    pictures = source / "pictures"
    pictures.mkdir()
    cases = fixed.load()
    planted = plant_all(cases)
    failures = find_failures(planted, cases)
    lists = {
        "Figures": (
            "Each draws a batch, or a frame of it, and returns a plotly figure.",
            figure_pages(pictures),
        ),
        "Checks": (
            "What holds for every valid batch. `rd.check(batch)` tests all of it.",
            check_pages(failures),
        ),
        "Causes": (
            "What `rd.diagnose` names where something reproduces the numbers, and lists"
            " as possible elsewhere.",
            cause_pages(pictures, planted, failures),
        ),
    }
    for title, (text, made) in lists.items():
        pages, folder = list(made), source / title.lower()
        write_pages(folder, title, "index.md", pages)
        listed = f"# {title}\n\n{text}\n{list_pages(pages)}\n"
        (folder / "index.md").write_text(listed, "utf-8")
    formats = [format_page(form) for form in FORMATS]
    write_pages(source / "formats", "Formats", f"../{FORMATS_PAGE}", formats)
    with (source / FORMATS_PAGE).open("a", encoding="utf-8") as page:
        page.write(f"\n## Each format\n\n{list_pages(formats, '../../formats/')}\n")
    (source / "api").mkdir()
    (source / "api" / "index.md").write_text(api_page(), "utf-8")
    live = source / "live" / "live"
    live.mkdir(parents=True)
    batch = rd.demo()
    rd.report(batch, live / "batch.html", samples=batch.num_samples)
    rd.report(rd.open_run(DATA / "run"), live / "run.html")
    write_first_page(source)


def write_first_page(source: Path) -> None:
    """Write the README as the first page, with the contents of the site."""
    text = (ROOT / "README.md").read_text("utf-8")
    text = text.replace(f"({CONTRIBUTING})", "(contributing.md)")
    notebooks = [
        f"notebooks/{path.stem}" for path in sorted(ROOT.glob("notebooks/*.ipynb"))
    ]
    lists = [f"{name}/index" for name in ("figures", "checks", "causes", "api")]
    copied = [name.removesuffix(".md") for name in (*OWN, *COPIED)]
    others = ["commands", *copied, "contributing"]
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
        with warnings.catch_warnings(), drawing():
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
