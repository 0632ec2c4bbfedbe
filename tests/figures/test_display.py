"""What a notebook gets of a figure: plotly's data, words, and the style of a theme."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import plotly.io as pio
import pytest

from rounddiag import figures
from rounddiag.figures._parts import display as _display
from rounddiag.figures._parts.display import (
    is_plotly_missing,
    page_style,
    replacement,
)
from tests.batches import hand_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLOTLY = "application/vnd.plotly.v1+json"


@pytest.fixture
def displays(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda one, **_: found.append(one))
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    return found


def test_a_figure_is_followed_by_the_style_of_the_other_theme(
    displays: list[dict[str, Any]],
) -> None:
    figures.plot_rounds(hand_batch())._ipython_display_()
    (figure, style) = displays
    assert {PLOTLY, "text/html"} == set(figure)
    assert '[data-jp-theme-light="false"]' in style["text/html"]
    assert "#111111" in style["text/html"]


def test_a_copy_follows_the_page_too(displays: list[dict[str, Any]]) -> None:
    deepcopy(figures.plot_rounds(hand_batch())).show()
    assert len(displays) == 2


def test_a_theme_that_was_chosen_has_no_style(displays: list[dict[str, Any]]) -> None:
    figures.plot_rounds(hand_batch(), theme="light").show()
    assert [set(one) for one in displays] == [{PLOTLY, "text/html"}]


def test_another_renderer_draws_as_it_does(
    displays: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[go.Figure] = []
    monkeypatch.setattr(pio, "show", drawn.append)
    monkeypatch.setattr(pio.renderers, "default", "json")
    figure = figures.plot_rounds(hand_batch())
    figure._ipython_display_()
    assert drawn == [figure]
    assert displays == []


def test_the_style_replaces_each_color_where_plotly_has_it() -> None:
    style = page_style({"#0a141e": "#ffffff"}, "dark")
    rules = re.search(r"\.js-plotly-plot\{(.*)\}$", style)
    assert rules is not None
    assert rules[1] == (
        ':is([style*="fill: rgb(10, 20, 30)"],[style*="fill:#0a141e"],'
        '[fill="rgb(10, 20, 30)"]):not(.cbfill){fill:#ffffff!important}'
        ':is([style*="stroke: rgb(10, 20, 30)"],[stroke="rgb(10, 20, 30)"])'
        ":not(.cbfill){stroke:#ffffff!important}"
        ':is([style*="background: rgb(10, 20, 30)"]):not(.cbfill)'
        "{background:#ffffff!important}"
    )


def test_words_are_title_and_lines_and_no_markup_of_a_file() -> None:
    title = "<b>a &lt;img&gt;</b><br><span style='color:#000'>b &amp; c</span>"
    figure = go.Figure(layout={"title": {"text": title}})
    found = replacement(figure, with_picture=False)
    assert "<p><b>a &lt;img&gt;</b></p><ul><li>b &amp; c</li></ul>" in found
    assert "<code>pip install plotly</code>" in found


def test_a_picture_replaces_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = figures.plot_rounds(hand_batch())
    # test_png.py starts kaleido.
    monkeypatch.setattr(type(figure), "to_image", lambda *_, **__: b"a picture")
    found = replacement(figure, with_picture=True)
    start = '<div class="mathjax_ignore"><img alt="Mismatch per round'
    assert found.startswith(start)
    data = re.findall('src="data:image/png;base64,([^"]+)"', found)
    assert [*map(base64.b64decode, data)] == [b"a picture"]
    assert "only this picture of it" in found
    assert "<ul>" not in found


def test_without_kaleido_the_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> bytes:
        message = "Image export requires Kaleido."
        raise RuntimeError(message)

    figure = figures.plot_rounds(hand_batch())
    monkeypatch.setattr(type(figure), "to_image", missing)
    found = replacement(figure, with_picture=True)
    assert found == replacement(figure, with_picture=False)
    assert "<b>Mismatch per round</b>" in found


def ask_again() -> bool:
    is_plotly_missing.cache_clear()
    return is_plotly_missing()


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., bool]]:
    """Return whether plotly is missing where a server's environment has some files."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    command = [str(python), "-c", "import sys; print(flush=True); sys.stdin.read()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        monkeypatch.setenv("JPY_PARENT_PID", str(process.pid))

        def is_missing(*folders: str) -> bool:
            for folder in folders:
                tmp_path.joinpath("share/jupyter", folder).mkdir(parents=True)
            return ask_again()

        yield is_missing
    is_plotly_missing.cache_clear()


@pytest.mark.parametrize("processes", ["/proc", "/nowhere"])
def test_plotly_is_looked_for_where_the_server_runs(
    processes: str, server: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without /proc, as on a Mac, `ps` names the program.
    monkeypatch.setattr(_display, "_PROCESSES", Path(processes))
    assert not server()  # not JupyterLab's environment
    assert server("lab")
    assert not server("labextensions/jupyterlab-plotly")


@pytest.mark.parametrize("process", [None, "999999999"])
def test_plotly_counts_as_there_where_no_server_is_known(
    process: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    if process is not None:
        monkeypatch.setenv("JPY_PARENT_PID", process)
    assert not ask_again()
