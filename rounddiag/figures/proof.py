"""The figure of a proof: how near each hypothesis comes to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from rounddiag.core.scores import ScoredAgain
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import (
    Theme,
    ThemeName,
    colorize,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.labels import hover_text, wrap
from rounddiag.wording import percent

_MOST = 9  # hypotheses of an engine
_ROW = 26  # pixels
_ROOM = 8  # over the rows and under them
_LINE = 60
_LEAST = 0.05  # of the noise: less is drawn here
_LONGEST = 34
_TICKS = (0.1, 1, 10, 100, 1000)
_X_TITLE = "residual [multiples of the noise]"


def plot_proof(proof: ScoredAgain, *, theme: ThemeName | None = None) -> go.Figure:
    """Plot how near each hypothesis comes to the engine that was wrong.

    Parameters
    ----------
    proof : Proof
        As `rounddiag.prove` returns it.
    theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: one row per hypothesis, the best ones of each engine that scoring
    unchanged inputs does not reproduce. The open circle is what these inputs leave, on
    the tokens that the hypothesis or the engine changes; the filled one what is left
    under the hypothesis, in multiples of the noise. In the shaded part nothing but
    noise is left: a diamond there is a proof. An engine that unchanged inputs
    reproduce has one row, `base`.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> proof = rd.prove(batch, "sample_data/model", hypotheses=["last_2_images"])
    >>> plot_proof(proof).layout.xaxis.title.text
    'residual [multiples of the noise]'
    """
    if not isinstance(proof, ScoredAgain):
        raise FrameError.build(
            expected="a Proof",
            found=f"a {type(proof).__name__}",
            advice="Pass what `rounddiag.prove(batch, model)` returns.",
        )
    colors = theme_of(theme)
    rows = _choose(proof.frame)
    headline = " ".join(map(hover_text, repr(proof).split("\n")[0].split()))
    caption = [wrap(headline, _LINE), *_key(rows, colors)]
    plot = _ROW * len(rows) + _ROOM
    figure = new_figure("Which hypothesis fits", caption, colors, plot=plot)
    labels = [_label(row) for row in rows]
    figure.add_traces(_traces(rows, labels, colors))
    figure.add_vrect(
        x0=_LEAST / 2,
        x1=proof.noise_limit,
        fillcolor=colors.shade,
        line_width=0,
        layer="below",
    )
    figure.update_xaxes(
        type="log", title_text=_X_TITLE, tickvals=_TICKS, ticktext=[*map(str, _TICKS)]
    )
    figure.update_yaxes(
        autorange="reversed", showgrid=False, automargin=True, title_text=None
    )
    return figure


def _choose(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows of each engine: its base if that is all, else the best."""
    best: list[dict[Any, Any]] = []
    for _, mine in frame.groupby("engine", sort=False):
        known = mine[mine["hypothesis"] != "base"]
        if known.empty:
            best += mine.to_dict("records")
            continue
        ordered = known.sort_values(
            ["is_proved", "residual_to_noise"], ascending=[False, True], kind="stable"
        )
        best += ordered.head(_MOST).to_dict("records")
    return best


def _key(rows: list[dict[Any, Any]], theme: Theme) -> Iterator[str]:
    before, after = colorize("○", theme.muted), colorize("●", theme.muted)
    has_proof = any(row["is_proved"] for row in rows)
    proved = f" {colorize('◆', theme.mark)} proved" if has_proof else ""
    yield f"{before} inputs as the batch says {after} under the hypothesis{proved}"
    yield "▒ no more than noise is left"


def _label(row: dict[Any, Any]) -> str:
    name = str(row["hypothesis"])
    if len(name) > _LONGEST:
        name = f"{name[: _LONGEST - 1]}…"
    return f"{hover_text(str(row['engine']))}: {hover_text(name)}"


def _traces(rows: list[dict[Any, Any]], labels: list[str], theme: Theme) -> list[Any]:
    after = [max(float(row["residual_to_noise"]), _LEAST) for row in rows]
    before = [max(float(row["residual_to_noise_before"]), _LEAST) for row in rows]
    proved = [bool(row["is_proved"]) for row in rows]
    color = [theme.mark if is_proved else theme.muted for is_proved in proved]
    steps: dict[str, list[Any]] = {"x": [], "y": []}
    for label, left, right in zip(labels, after, before, strict=True):
        steps["x"] += [left, right, None]
        steps["y"] += [label, label, None]
    texts = [_hover(row) for row in rows]
    return [
        go.Scatter(
            **steps,
            mode="lines",
            line={"color": theme.grid, "width": 2},
            hoverinfo="skip",
            showlegend=False,
        ),
        go.Scatter(
            x=before,
            y=labels,
            mode="markers",
            marker={"symbol": "circle-open", "size": 9, "color": theme.muted},
            hoverinfo="skip",
            showlegend=False,
        ),
        go.Scatter(
            x=after,
            y=labels,
            mode="markers",
            marker={
                "symbol": [
                    "diamond" if is_proved else "circle" for is_proved in proved
                ],
                "size": [12 if is_proved else 9 for is_proved in proved],
                "color": color,
                "opacity": 1,  # plotly's own is 0.7 where sizes differ
            },
            customdata=texts,
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        ),
    ]


def _hover(row: dict[Any, Any]) -> str:
    cause = str(row["cause"]).replace("_", " ")
    title = f"<b>{hover_text(str(row['hypothesis']))}</b>"
    if row["hypothesis"] == "base":
        return (
            f"{title}<br>{row['residual']:.2g} nat,"
            f" {row['residual_to_noise']:.2g} x noise"
        )
    proved = "<br>proved" if row["is_proved"] else ""
    share = hover_text(percent(max(row["share"], 0)))
    return (
        f"{title}, {hover_text(cause)}<br>in {hover_text(str(row['where']))}"
        f"<br>{row['residual']:.2g} nat, {row['residual_to_noise']:.2g} x noise; before"
        f" {row['before']:.2g} nat<br>explains {share} on"
        f" {row['num_tokens']:,} tokens of {row['num_samples']} samples{proved}"
    )
