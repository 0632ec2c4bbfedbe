"""Every figure, drawn with the options that it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

import rounddiag
from rounddiag import Batch
from rounddiag.figures._parts.display import caption
from rounddiag.figures._parts.labels import plain_text

# Those of a batch.
PLOTS = [
    name
    for name in dir(rounddiag)
    if name.startswith("plot_")
    and name not in ("plot_finding", "plot_proof", "plot_run", "plot_sight")
]


def plot(name: str, data: Any, **options: Any) -> go.Figure:
    """Draw one figure of a batch, with a tokenizer where it needs one."""
    if name == "plot_roles" and isinstance(data, Batch):
        data = replace(data, tokenizer=decode)
    if name == "plot_trajectory":
        options = {"sample": 0, **options}
    if name == "plot_compare":
        data = [data, data]
    return getattr(rounddiag, name)(data, **options)


def decode(ids: list[int]) -> str:
    return "".join(chr(ord("a") + index) for index in ids)


def shapes(figure: go.Figure) -> list[Any]:
    """The shapes in the plot; those of the lines under the title are in the legend."""
    return [one for one in figure.layout.shapes if not one.showlegend]


def words(figure: go.Figure) -> str:
    """The title and the lines under it."""
    return "<br>".join(caption(figure))


def captions(figure: go.Figure) -> list[str]:
    """The title and the lines under it, without tags."""
    return [*map(plain_text, caption(figure))]
