"""What happened in each round: kinds of actions by sample, and how samples ended."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.figures._parts.canvas import (
    AXIS_ROOM,
    Theme,
    ThemeName,
    colorize,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.heatmap_cells import (
    FEW_ROWS,
    add_hatching,
    cells_height,
    name_row,
    set_cell_axes,
    trace_outlines,
)
from rounddiag.figures._parts.labels import (
    format_number,
    hover_text,
    shorten_name,
    tick_step,
)
from rounddiag.figures._parts.scales import BOTTOM
from rounddiag.schema import ROUND, SAMPLE

# The kinds of actions, in the order of a legend. Paul Tol's scheme `light`, made to
# fill cells that have black letters, and told apart without red or green
# (https://sronpersonalpages.nl/~pault/).
ACTION_COLORS = {
    "click": "#77aadd",
    "type": "#eedd88",
    "key": "#ee8866",
    "scroll": "#99ddff",
    "drag": "#ffaabb",
    "wait": "#bbcc33",
    "finish": "#44bb99",
    "other": "#dddddd",
}
_LETTERS = "#000000"
# The sign of an outcome; none where nothing says more than that a sample ended.
OUTCOMES = {
    "solved": "✓",
    "failed": "✗",
    "error": "!",
    "given up": "∅",
    "truncated": "…",
    "finished": "•",
    "ended": "",
}
# Marks of a cell, the gravest first: its column, its sign, and what it says.
ROUND_MARKS = {
    "error": ("!", "error"),
    "is_repeated": ("=", "repeated"),
    "is_unchanged": ("○", "unchanged"),
}
_WIDE = 8  # rounds: in the explorer's pane, cells have room for all their marks
EDGE = 0.76  # share of the width that rounds have; the rest is the outcome's
_ROWS_OF_PANEL = 4  # of counts
_MAX_CELLS = 14_400  # of a figure whose hover texts stay under 500 kB


def plot_actions(
    rounds: pd.DataFrame, samples: pd.DataFrame, *, theme: ThemeName | None = None
) -> go.Figure:
    """Plot the kind of action of every sample in every round.

    Parameters
    ----------
    rounds : DataFrame
        `sample, round, kind` (of `ACTION_COLORS`), `label`, and the columns of
        `ROUND_MARKS`: the text of an error, and two flags.
    samples : DataFrame
        The rows from the top: `sample, sample_id, outcome, reward`.
    theme : as everywhere, see `help(rounddiag)`

    Examples
    --------
    >>> rounds = pd.DataFrame({"sample": [0, 0], "round": [0, 1]})
    >>> rounds = rounds.assign(kind="click", label="click (1, 2)", error="")
    >>> rounds = rounds.assign(is_repeated=[False, True], is_unchanged=False)
    >>> row = {"sample": 0, "sample_id": "a", "outcome": "solved", "reward": 1.0}
    >>> figure = plot_actions(rounds, pd.DataFrame([row]))
    >>> figure.data[0].text.tolist()
    [['c', 'c=']]
    """
    colors, num_rows = theme_of(theme), len(samples)
    plot = cells_height(num_rows) + BOTTOM - AXIS_ROOM  # as with a colour bar
    figure = new_figure("Actions per sample and round", _key(rounds), colors, plot=plot)
    rank = pd.Series(np.arange(num_rows), index=samples["sample"])
    placed = rounds.assign(row=rank[rounds["sample"]].to_numpy())
    num_rounds = int(placed["round"].max()) + 1
    _add_cells(figure, placed, (num_rows, num_rounds), colors)
    _add_outcomes(figure, samples, colors)
    rows = samples[["sample", "sample_id"]].to_dict("records")
    names = {float(at): name_row(row) for at, row in enumerate(rows)}
    numbers = samples["sample"].to_numpy()
    set_cell_axes(figure, num_rounds, numbers, names, SAMPLE.label)
    figure.update_layout(
        xaxis={"domain": (0, EDGE)},
        xaxis2={"domain": (EDGE + 0.02, 1), "visible": False, "anchor": "y"},
        meta={"samples": numbers.tolist(), "pool": 1},
    )
    return figure


def _key(rounds: pd.DataFrame) -> list[str]:
    kinds = [kind for kind in ACTION_COLORS if (rounds["kind"] == kind).any()]
    marks = [name for name in ROUND_MARKS if rounds[name].astype(bool).any()]
    return [
        *(f"{colorize('■', ACTION_COLORS[kind])} {kind}" for kind in kinds),
        *("{} {}".format(*ROUND_MARKS[name]) for name in marks),
    ]


def _add_cells(
    figure: go.Figure, placed: pd.DataFrame, shape: tuple[int, int], theme: Theme
) -> None:
    at = placed["row"].to_numpy(), placed["round"].to_numpy()
    codes = np.full(shape, np.nan, dtype=np.float32)
    codes[at] = [[*ACTION_COLORS].index(kind) for kind in placed["kind"]]
    letters, hovers = np.full(shape, "", object), np.full(shape, "", object)
    marks = _marks(placed, shape[1])
    letters[at] = [
        kind[0] + mark for kind, mark in zip(placed["kind"], marks, strict=True)
    ]
    hovers[at] = _hovers(placed) if codes.size <= _MAX_CELLS else placed["kind"]
    ends = np.linspace(0, 1, len(ACTION_COLORS) + 1)
    scale = [
        [end, color]
        for color, span in zip(ACTION_COLORS.values(), pairwise(ends), strict=True)
        for end in span
    ]
    is_few = shape[0] <= FEW_ROWS
    # Plotly fits text into cells by their distances: not into those of one column.
    has_letters = is_few and (shape[1] > 1 or shape[0] <= _WIDE)
    figure.add_heatmap(
        z=codes,
        text=letters if has_letters else None,
        texttemplate="%{text}" if has_letters else None,  # where there is room
        textfont={"color": _LETTERS},
        customdata=hovers,
        hovertemplate="<b>%{y}<br>round %{x}</b><br>%{customdata}<extra></extra>",
        hoverongaps=False,
        zmin=-0.5,
        zmax=len(ACTION_COLORS) - 0.5,
        colorscale=scale,
        showscale=False,
        xgap=int(is_few),
        ygap=int(is_few),
    )
    x, y = trace_outlines(np.isnan(codes))
    add_hatching(figure, x, y, theme)
    if not is_few:
        failed = placed[placed["error"] != ""]
        figure.add_scatter(
            x=failed["round"],
            y=failed["row"],
            mode="markers",
            marker={"size": 4, "color": _LETTERS},
            hoverinfo="skip",
        )


def _hovers(placed: pd.DataFrame) -> list[str]:
    flags = [name for name in ROUND_MARKS if name != "error"]
    texts = [
        [
            hover_text(row["label"]),
            row["error"] and f"error: {shorten_name(row['error'], 60)}",
            *(ROUND_MARKS[name][1] for name in flags if row[name]),
        ]
        for row in placed.to_dict("records")
    ]
    return [" · ".join(filter(None, parts)) for parts in texts]


def _marks(placed: pd.DataFrame, num_rounds: int) -> list[str]:
    """Return the signs of each cell: of many rounds, the gravest one."""
    flags = [placed[name].astype(bool) for name in ROUND_MARKS]
    signs = [sign for sign, _ in ROUND_MARKS.values()]
    marks = (
        "".join(sign for sign, is_set in zip(signs, row, strict=True) if is_set)
        for row in zip(*flags, strict=True)
    )
    return [mark[: None if num_rounds <= _WIDE else 1] for mark in marks]


def _add_outcomes(figure: go.Figure, samples: pd.DataFrame, theme: Theme) -> None:
    """Add the sign of each outcome, and its reward: the higher, the darker."""
    rewards = samples["reward"].to_numpy(float)
    scores = ["" if np.isnan(reward) else format_number(reward) for reward in rewards]
    signs = [OUTCOMES[ending(outcome)] for outcome in samples["outcome"]]
    low, high = np.nanmin(rewards, initial=0), np.nanmax(rewards, initial=1)
    is_few = len(samples) <= FEW_ROWS
    hovers = [outcome or ending(outcome) for outcome in samples["outcome"]]
    # Two columns, none of them empty: else plotly does not fit text into low rows.
    texts = [
        (sign or " ", score or " ") for sign, score in zip(signs, scores, strict=True)
    ]
    figure.add_heatmap(
        z=np.nan_to_num(rewards, nan=low)[:, None].repeat(2, axis=1),
        text=texts if is_few else None,
        texttemplate="%{text}" if is_few else None,
        textfont={"color": theme.text},
        customdata=[*zip(hovers, hovers, strict=True)],
        xaxis="x2",
        hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
        zmin=low,
        zmax=high,
        colorscale=[[0, theme.shade], [1, theme.grid]],
        showscale=False,
        ygap=int(is_few),
    )


def ending(outcome: str) -> str:
    """Return how a sample ended, of `OUTCOMES`; what its reward says stands apart.

    Examples
    --------
    >>> ending("solved, but failed by its reward"), ending("")
    ('solved', 'ended')
    """
    return outcome.partition(",")[0] or "ended"


def plot_endings(
    num_rounds: Sequence[int],
    outcomes: Sequence[str],
    *,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot how many samples are in each round, and how many end there, by outcome.

    Parameters
    ----------
    num_rounds : sequence of int
        Of each sample.
    outcomes : sequence of str
        How each ended; "" where nothing says so.
    theme : as everywhere, see `help(rounddiag)`

    Examples
    --------
    >>> figure = plot_endings([1, 2, 2], ["error", "solved", "solved"])
    >>> figure.data[0].y, figure.data[0].text.tolist()
    (('running', '✓ solved', '! error'), [['3', '2'], ['', '2'], ['1', '']])
    """
    colors, last = theme_of(theme), max(num_rounds, default=1)
    sizes = np.asarray(num_rounds, dtype=np.int64)
    words = np.array([ending(outcome) for outcome in outcomes], object)
    counts = {"running": np.array([(sizes > at).sum() for at in range(last)])}
    ranks = {word: at for at, word in enumerate(OUTCOMES)}
    for word in sorted({*words}, key=lambda word: (ranks.get(word, -1), word)):
        ends = np.bincount(sizes[words == word], minlength=last + 1)
        sign = OUTCOMES.get(word, OUTCOMES["finished"])  # also of scores
        counts[f"{sign} {word}".strip()] = ends[1:]
    grid = np.array([*counts.values()])
    figure = new_figure("Samples that run and end per round", [], colors, plot=128)
    figure.add_heatmap(
        z=np.where(grid > 0, grid, np.nan),
        y=[*counts],
        text=np.where(grid > 0, grid.astype(str).astype(object), ""),
        texttemplate="%{text}",
        textfont={"color": colors.text},
        hovertemplate="<b>round %{x}</b><br>%{y}: %{z}<extra></extra>",
        hoverongaps=False,
        zmin=0,
        zmax=len(sizes),
        colorscale=[[0, colors.shade], [1, colors.grid]],
        showscale=False,
        xgap=1,
        ygap=1,
    )
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.5, last - 0.5],
            "dtick": tick_step(last),
        },
        yaxis={
            "title": {"text": "samples that run and end, by round"},
            "autorange": "reversed",
            "side": "right",
            "showgrid": False,
            "ticks": "",
        },
        meta={"panels": len(counts) / _ROWS_OF_PANEL},
    )
    return figure
