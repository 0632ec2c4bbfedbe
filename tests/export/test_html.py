"""Figures as HTML: both themes stored in one, captions from docstrings."""

from __future__ import annotations

import json
import re

import plotly.graph_objects as go

from rounddiag.export.html import embed_figure


def plot(color: str, *, theme: str) -> go.Figure:
    """Plot three points.

    Notes
    -----
    How to read it: high is `bad`,
    low is not.
    """
    shade = {"light": "white", "dark": "black"}[theme]
    return go.Figure(
        go.Scatter(y=[1, 2], name="</script>", marker={"color": [color, shade]}),
        layout={
            "height": 300,
            "title": {"text": "<b>Points</b>"},
            "shapes": [{"name": f"in {color}", "showlegend": True}],
        },
    )


def without_notes(*, theme: str) -> go.Figure:
    """Plot nothing."""
    return go.Figure(layout={"height": 10, "title": {"text": theme}})


def test_the_light_figure_is_stored_with_the_differences_of_the_dark_one() -> None:
    html = embed_figure(plot, "red")
    (stored,) = re.findall('<script type="application/json">(.*?)</script>', html)
    content = json.loads(stored)
    assert content["figure"] == json.loads(plot("red", theme="light").to_json())
    assert content["dark"] == [[["data", 0, "marker", "color", 1], "black"]]


def test_the_title_is_the_accessible_name() -> None:
    assert 'role="group" aria-label="Points. in red"' in embed_figure(plot, "red")


def test_how_to_read_it_comes_from_the_docstring() -> None:
    caption = "<p>high is bad, low is not.</p></details></figcaption></figure>"
    assert embed_figure(plot, "red").endswith(caption)
    assert "<figcaption>" not in embed_figure(without_notes)
