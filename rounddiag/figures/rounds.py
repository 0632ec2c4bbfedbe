"""The figure of means per round, with the number of samples and tokens of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.core.divergence import get_measure
from rounddiag.core.measured import Measured
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import ThemeName, empty_figure, new_figure
from rounddiag.figures._parts.data import note_unknown_rounds, prepare
from rounddiag.figures._parts.labels import NO_TOKENS, subject, tick_step
from rounddiag.figures._parts.lines import format_key, split_by_column, thin_rounds
from rounddiag.figures._parts.means import (
    COUNT_PANELS,
    HEIGHT,
    HEIGHT_WITHOUT_COUNTS,
    axis_title,
    set_panels,
)
from rounddiag.figures._parts.round_layers import (
    RoundAxis,
    RoundScene,
    add_floor,
    add_guide,
    add_ribbons,
    add_round_means,
    add_survivors,
    explain_rounds,
)
from rounddiag.findings.onset import Onset
from rounddiag.schema import ROUND, SUMMARY, mean_column
from rounddiag.stats import round_summary, survivors
from rounddiag.stats.inputs import Data

# The columns of a summary that the figure needs.
_COLUMNS = (
    *("round", "num_samples", "num_tokens", "num_nonfinite", "share_zero"),
    *("mean", "ci_low", "ci_high", "p50", "p90", "p99", "max"),
)
# Whether each layer is drawn by default.
ROUND_LAYERS = {
    "mean": True,
    "ci": True,
    "quantiles": False,
    "counts": True,
    "survivors": True,
}


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """Which quantity is drawn, as `plot_rounds` takes it."""

    metric: str
    weight: str
    by: str | None
    last_aligned: bool

    @property
    def is_usual(self) -> bool:
        """Whether the quantity is the one that `stats.survivors` computes."""
        usual = ("abs_diff", "token", None, False)
        return (self.metric, self.weight, self.by, self.last_aligned) == usual

    @property
    def weighting(self) -> str:
        """What has equal weight; some metrics fix it."""
        return get_measure(self.metric).weight or self.weight

    @property
    def default_layers(self) -> dict[str, bool]:
        """The layers that the quantity has, and whether each is drawn by default.

        A round summary has no survivors.
        """
        is_signed = get_measure(self.metric).is_signed
        fits = {
            "survivors": self.is_usual,
            "quantiles": self.by is None and not is_signed,
        }
        return {
            name: is_on for name, is_on in ROUND_LAYERS.items() if fits.get(name, True)
        }

    def layers(
        self, chosen: Mapping[str, bool] | None, data: Measured
    ) -> dict[str, bool]:
        """Decide whether each layer is drawn."""
        is_summary = _is_summary(data)
        has_survivors = "survivors" in self.default_layers and not is_summary
        default = {**ROUND_LAYERS, "survivors": has_survivors}
        layers = {**default, **(chosen or {})}
        if layers["survivors"] and not has_survivors:
            raise FrameError.build(
                key="survivors",
                expected="a Batch or a token frame, and the default of `metric`,"
                " `weight`, `by` and `last_aligned`",
                found="a round summary" if is_summary else str(self),
                advice="Leave the layer out, or the options.",
            )
        if layers["quantiles"] and "quantiles" not in self.default_layers:
            raise FrameError.build(
                key="quantiles",
                expected="a metric that is never negative, and no `by`",
                found=str(self),
                advice="Leave the layer out, or plot one value's samples at a time.",
            )
        return layers

    def summary(self, data: Measured) -> pd.DataFrame:
        """Return the summary per round, in order."""
        if data.frame is not None and _is_summary(data):
            by = [] if self.by is None else [self.by]
            SUMMARY.require(data.frame.columns, *by, *_COLUMNS)
            summary = data.frame
        else:
            summary = round_summary(data, **asdict(self))
        self._check(summary)
        return summary.sort_values("round", kind="stable")

    def _check(self, summary: pd.DataFrame) -> None:
        """Detect a summary that was made with other options."""
        keys = ["round", *([] if self.by is None else [self.by])]
        column = mean_column(self.metric)
        is_plain = self.weighting == "token" and column in summary
        repeated = summary.duplicated(keys).any()
        is_other = is_plain and not np.allclose(
            summary["mean"], summary[column], rtol=1e-6, atol=0, equal_nan=True
        )
        if repeated or is_other:
            raise FrameError.build(
                expected=f"a round summary that was made with {self}",
                found="several rows of one round" if repeated else "another `mean`",
                advice="Pass the options that `rounddiag.round_summary` was given.",
            )

    def __str__(self) -> str:
        return (
            f"metric={self.metric!r}, weight={self.weight!r}, by={self.by!r},"
            f" last_aligned={self.last_aligned!r}"
        )


def _is_summary(data: Measured) -> bool:
    return data.frame is not None and "diff" not in data.frame


# What `last_aligned` counts.
_FROM_END = "round, counted from the last of each sample: −1"
# How much more room a negative round takes on the x axis.
_MINUS = 1.5
# Characters of a line of the y axis' title: many lines by value leave a low plot.
_TITLE_WIDTH = 26


def plot_rounds(  # noqa: PLR0913 all but the first are keywords
    data: Data,
    *,
    metric: str = "abs_diff",
    weight: str = "token",
    by: str | None = None,
    last_aligned: bool = False,
    onset: Onset | Literal[False] | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot a metric's mean per round, with intervals and counts.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, its token frame (sample, round, diff), or its round summary,
        made with the same options.
    weight : {"token", "sample"}
        What has equal weight in the mean.
    by : str, optional
        A column of samples or rounds, such as `status` or `group_id`: one line for
        each of its values, at most 8.
    last_aligned : bool
        Count rounds from the end of each sample: the last one is -1.
    onset : Onset or False, optional
        The round from which on the batch differs, which is marked:
        `rounddiag.diagnose(batch).onset`. None is marked where it is left out, and
        where rounds are counted from the end.
    layers : mapping, optional
        Which parts are drawn:

        - `mean` and `ci`, the points and their intervals;
        - `quantiles`, off unless asked for: median to 90 %, to 99 % and to the largest
          of the tokens, on a logarithmic axis with a band for what is at most 1e-6;
        - `survivors`, the samples that reach each round, measured at round 0; on for a
          batch or a token frame, where the other options are the default;
        - `counts`, of samples and tokens.
    metric, a, b, theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: in a healthy batch the points lie on a level line near the noise of
    the two engines' arithmetic, and the intervals overlap. A step at one round, or a
    rise from round to round, means that the engines see different contexts from there
    on. The interval (a vertical line) is clustered by sample, or by group where there
    are groups; where two of them do not overlap, the rounds differ by more than the
    choice of samples explains. Check the bars before you trust a rise at the end: few
    samples get that far, and they may differ from the others in all rounds. The dashed
    line shows whether they do: if it rises as the points do, the rise comes from which
    samples are left; if it stays level, the rise is real. A hollow point has fewer
    than 5 samples, and is never marked. Of more than 2,000 rounds, evenly spaced ones
    and the onset are drawn.

    Quantiles show what the mean consists of. If all bars rise together, every token is
    a little off (noise, another precision or temperature); where the median stays and
    the largest rise, a few tokens are far off (another context, a template). Aligned at
    the end, a fault of the last action stands out, which is spread over all rounds
    otherwise. With `by`, a fault of one rank, replica or kind of sample is a line that
    leaves the others.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_rounds(batch).layout.yaxis.title.text
    'mean |old − rollout|<br>log-prob [nat]'
    >>> rd.plot_rounds(batch, layers={"quantiles": True}).layout.yaxis.type
    'log'
    """
    inputs = prepare(
        data, a, b, metric=metric, layers=layers, known=ROUND_LAYERS, theme=theme
    )
    options = RoundOptions(
        metric=inputs.metric, weight=weight, by=by, last_aligned=last_aligned
    )
    drawn = options.layers(layers, inputs.data)
    summary = options.summary(inputs.data)
    title = f"{subject(metric)} per round" + (", from the end" if last_aligned else "")
    if summary.empty:
        return empty_figure(title, NO_TOKENS, inputs.theme)
    num_rounds = int(summary["round"].max() - min(summary["round"].min(), 0)) + 1
    onset = None if last_aligned else onset
    drawn_rows, note = thin_rounds(summary, onset.round if onset else ())
    scene = RoundScene(
        lines=split_by_column(drawn_rows, by, inputs.theme),
        num_rounds=num_rounds,
        onset=onset or None,
        axis=RoundAxis.around_quantiles(summary)
        if drawn["quantiles"]
        else RoundAxis.around_means(summary),
        metric=inputs.metric,
        pair=inputs.pair,
        theme=inputs.theme,
    )
    has_survivors = drawn["survivors"] and scene.num_rounds > 1
    left = thin_rounds(survivors(inputs.data))[0] if has_survivors else None
    lines = note_unknown_rounds(inputs.data)
    lines += [] if by is None else format_key(by, scene.lines)
    lines += explain_rounds(summary, scene, has_survivors=has_survivors)
    lines += note
    height = HEIGHT if drawn["counts"] else HEIGHT_WITHOUT_COUNTS
    figure = new_figure(title, lines, inputs.theme, height=height)
    _set_axes(figure, summary, scene)
    is_mean = drawn["mean"] or drawn["ci"]
    is_usual = is_mean and options.weighting == "token"
    extra = f", {options.weighting}-weighted" if is_mean else ", tokens"
    figure.layout.yaxis.title.text = axis_title(
        inputs.metric,
        inputs.pair,
        note="" if is_usual else extra,
        is_mean=is_mean,
        width=_TITLE_WIDTH,
    )
    _add_layers(figure, scene, drawn, left)
    if drawn["counts"]:
        counts = summary.groupby("round")[[*COUNT_PANELS.values()]].sum()
        set_panels(figure, counts, SUMMARY, inputs.pair, inputs.theme)
    return figure


def _add_layers(
    figure: go.Figure,
    scene: RoundScene,
    drawn: Mapping[str, bool],
    left: pd.DataFrame | None,
) -> None:
    """Draw from the back to the front; `left` is what `stats.survivors` gives."""
    add_guide(figure, scene)
    if scene.axis.has_floor:
        add_floor(figure, scene)
    if drawn["quantiles"]:
        add_ribbons(figure, scene)
    if left is not None:
        add_survivors(figure, left, scene)
    add_round_means(figure, scene, drawn)


def _set_axes(figure: go.Figure, summary: pd.DataFrame, scene: RoundScene) -> None:
    is_aligned = bool((summary["round"] < 0).any())
    first, last = int(min(summary["round"].min(), 0)), int(summary["round"].max())
    figure.update_layout(
        barmode="stack",
        xaxis={
            "title": {"text": _FROM_END if is_aligned else ROUND.label},
            "range": [first - 0.6, last + 0.6],
            "dtick": tick_step(round(scene.num_rounds * (_MINUS if is_aligned else 1))),
            "tick0": -1 if is_aligned else 0,
            "tickangle": 0,
        },
        yaxis=scene.axis.layout(),
    )
