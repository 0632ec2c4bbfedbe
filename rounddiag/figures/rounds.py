"""Mismatch per round, and on how much data each number stands."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag.core.measures import measure_of
from rounddiag.errors import FrameError
from rounddiag.figures._parts.axes import RoundAxis
from rounddiag.figures._parts.canvas import empty_figure, new_figure, theme_of
from rounddiag.figures._parts.data import layers_of, of_pair, summary_of
from rounddiag.figures._parts.labels import tick_step
from rounddiag.figures._parts.lines import key_lines, lines_of
from rounddiag.figures._parts.round_layers import (
    FROM_END,
    RoundScene,
    about_quantiles,
    about_survivors,
    about_worst,
    add_counts,
    add_floor,
    add_guide,
    add_means,
    add_ribbons,
    add_survivors,
    count_ends,
    estimand,
    notes,
    unit_of,
)
from rounddiag.schema import ROUND, mean_column, metric_name
from rounddiag.stats import survivors, worst_round

if TYPE_CHECKING:
    from collections.abc import Mapping

    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import ThemeName


# Whether each is drawn unless it is asked otherwise.
LAYERS = {
    "mean": True,
    "ci": True,
    "quantiles": False,
    "counts": True,
    "survivors": True,
}


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """What is to be drawn, of which quantity; as `plot_rounds` takes it."""

    metric: str
    weight: str
    by: str | None
    last_aligned: bool

    @property
    def is_usual(self) -> bool:
        """Whether the quantity is the one that `stats.survivors` knows."""
        usual = ("abs_diff", "token", None, False)
        return (self.metric, self.weight, self.by, self.last_aligned) == usual

    @property
    def weighting(self) -> str:
        """What counts alike; the names of some metrics stand for that."""
        return measure_of(self.metric).weight or self.weight

    @property
    def offered(self) -> dict[str, bool]:
        """The layers that the quantity has, and whether each is drawn by itself.

        A round summary has no survivors.
        """
        is_signed = measure_of(self.metric).is_signed
        fits = {
            "survivors": self.is_usual,
            "quantiles": self.by is None and not is_signed,
        }
        return {name: is_on for name, is_on in LAYERS.items() if fits.get(name, True)}

    def layers(
        self, chosen: Mapping[str, bool] | None, data: Batch | pd.DataFrame
    ) -> dict[str, bool]:
        """Say of each layer whether it is drawn.

        Raises
        ------
        FrameError
            If there is no such metric or layer, or a layer was asked for that the
            quantity does not have.
        """
        is_summary = isinstance(data, pd.DataFrame) and "diff" not in data
        has_survivors = "survivors" in self.offered and not is_summary
        default = {**LAYERS, "survivors": has_survivors}
        layers = layers_of({**default, **(chosen or {})}, *LAYERS)
        if layers["survivors"] and not has_survivors:
            raise FrameError.build(
                key="survivors",
                expected="a Batch or a token frame, and the default of `metric`,"
                " `weight`, `by` and `last_aligned`",
                found="a round summary" if is_summary else str(self),
                advice="Leave the layer out, or the options.",
            )
        if layers["quantiles"] and "quantiles" not in self.offered:
            raise FrameError.build(
                key="quantiles",
                expected="a metric that is never negative, and no `by`",
                found=str(self),
                advice="Leave the layer out, or plot one value's samples at a time.",
            )
        return layers

    def summary(self, data: Batch | pd.DataFrame) -> pd.DataFrame:
        """Return the summary per round, ordered.

        Raises
        ------
        FrameError
            If a frame lacks a column, or is a summary of something else.
        """
        found = summary_of(data, **asdict(self))
        self._check(found)
        return found.sort_values("round", kind="stable")

    def _check(self, summary: pd.DataFrame) -> None:
        """Notice a given summary that was made with other options."""
        keys = ["round", *([self.by] if self.by else [])]
        column = mean_column(self.metric)
        is_plain = self.weighting == "token" and column in summary
        repeated = summary.duplicated(keys).any()
        if repeated or (is_plain and not _alike(summary["mean"], summary[column])):
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


def _alike(one: pd.Series[float], other: pd.Series[float]) -> bool:
    return bool(np.allclose(one, other, rtol=1e-6, atol=0, equal_nan=True))


# Bottom and top of the three panels, as shares of the plot; with counts, without.
_MEAN, _SAMPLES, _TOKENS = (0.46, 1.0), (0.23, 0.34), (0.0, 0.11)
_HEIGHT, _HEIGHT_WITHOUT = 460, 340
# How much more room a negative round takes on the x axis.
_MINUS = 1.5


def plot_rounds(  # noqa: PLR0913 all but the first are keywords
    data: Batch | pd.DataFrame,
    *,
    metric: str = "abs_diff",
    weight: str = "token",
    by: str | None = None,
    last_aligned: bool = False,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot a metric's mean per round, with intervals and counts.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, its token frame (sample, round, diff), or its round summary, made with
        the same options.
    metric : str
        What is averaged, as in `round_summary`.
    weight : {"token", "sample"}
        What counts alike in the mean.
    by : str, optional
        A column of samples or rounds, `status` or `group_id` say: one line for each of
        its values, at most 8.
    last_aligned : bool
        Count rounds from the end of each sample: the last one is -1.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        Which parts are drawn:

        - `mean` and `ci`, the points and their intervals;
        - `quantiles`, off unless asked for: median to 90 %, to 99 % and to the largest
          of the tokens, on a logarithmic axis with a band for what is at most 1e-6;
        - `survivors`, the samples that reach each round, measured at round 0; on for a
          batch or a token frame, where the other options are the default;
        - `counts`, of samples and tokens.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If a frame lacks a column, there is no such metric, layer or column, `by` has
        more than 8 values, or a layer was asked for that the options exclude; or a
        frame has another pair.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: in a healthy batch the points lie on a level line near the noise
    of the two engines' arithmetic, and the intervals overlap. A step at one round, or
    a rise from round to round, says that the engines see different contexts from
    there on. The interval (a vertical line) is clustered by sample, or by group where
    there are groups; where two of them do not overlap, the rounds differ by more than
    the choice of samples explains. Look at the bars before you believe a rise at the
    end: few samples get that far, and they may differ from the others in all rounds.
    The dashed line says whether they do: where it rises as the points do, the rise is
    who is left and no effect of the round; where it stays level, the rise is real.
    A hollow point stands on fewer than 10 samples, and is the worst round only where
    no round has more.

    Quantiles tell what the mean is made of. Where all bars rise together, every token
    is a little off (noise, another precision or temperature); where the median stays
    and the largest rise, a few tokens are far off (another context, a template).
    Aligned at the end, a fault of the last action stands out that is smeared over all
    rounds otherwise. With `by`, a fault of one rank, replica or kind of sample is a
    line that leaves the others.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_rounds(batch).layout.yaxis.title.text
    'mean |old - rollout| log-prob [nat],<br>token-weighted'
    >>> rd.plot_rounds(batch, layers={"quantiles": True}).layout.yaxis.type
    'log'
    """
    metric = metric_name(metric)
    options = RoundOptions(
        metric=metric, weight=weight, by=by, last_aligned=last_aligned
    )
    data, pair = of_pair(data, a, b)
    look, drawn = theme_of(theme), options.layers(layers, data)
    summary = options.summary(data)
    title = "Mismatch per round" + (", from the end" if last_aligned else "")
    if summary.empty:
        return empty_figure(title, "no generated tokens, so no rounds", look)
    scene = RoundScene(
        lines=lines_of(summary, by, look),
        num_rounds=int(summary["round"].max() - min(summary["round"].min(), 0)) + 1,
        worst=worst_round(summary) if by is None else None,
        axis=RoundAxis.of_quantiles(summary) if drawn["quantiles"] else RoundAxis(),
        unit=unit_of(metric),
        look=look,
    )
    left = survivors(data) if drawn["survivors"] and scene.num_rounds > 1 else None
    words = _explanation(summary, scene, by, has_survivors=left is not None)
    height = _HEIGHT if drawn["counts"] else _HEIGHT_WITHOUT
    figure = new_figure(title, words, look, height=height)
    _set_axes(figure, summary, scene, has_counts=drawn["counts"])
    figure.layout.yaxis.title.text = estimand(
        metric, options.weighting, pair, is_mean=drawn["mean"] or drawn["ci"]
    )
    _add_layers(figure, scene, left, drawn)
    return figure


def _explanation(
    summary: pd.DataFrame, scene: RoundScene, by: str | None, *, has_survivors: bool
) -> list[str]:
    """Name what is marked and how, a line each."""
    lines = key_lines(by, scene.lines) if by else []
    lines += about_worst(scene.worst, scene.unit, scene.look)
    if has_survivors:
        lines.append(about_survivors(scene.look))
    if scene.axis.log:
        lines += about_quantiles(summary, scene.look)
    return lines + notes(summary, scene.worst)


def _add_layers(
    figure: go.Figure,
    scene: RoundScene,
    left: pd.DataFrame | None,
    drawn: Mapping[str, bool],
) -> None:
    add_guide(figure, scene)
    if scene.axis.has_floor:
        add_floor(figure, scene)
    if drawn["quantiles"]:
        add_ribbons(figure, scene)
    if left is not None:
        add_survivors(figure, left, scene)
    add_means(figure, scene, has_means=drawn["mean"], has_intervals=drawn["ci"])
    if drawn["counts"]:
        add_counts(figure, scene)


def _set_axes(
    figure: go.Figure, summary: pd.DataFrame, scene: RoundScene, *, has_counts: bool
) -> None:
    is_aligned = bool((summary["round"] < 0).any())
    first, last = int(min(summary["round"].min(), 0)), int(summary["round"].max())
    figure.update_layout(
        barmode="stack",
        xaxis={
            "title": {"text": FROM_END if is_aligned else ROUND.label},
            "range": [first - 0.6, last + 0.6],
            "dtick": tick_step(round(scene.num_rounds * (_MINUS if is_aligned else 1))),
            "tick0": -1 if is_aligned else 0,
            "tickangle": 0,
            "anchor": "y3" if has_counts else "y",
        },
        yaxis={"domain": _MEAN if has_counts else (0, 1), **scene.axis.layout()},
    )
    if has_counts:
        axes = zip(("yaxis2", "yaxis3"), (_SAMPLES, _TOKENS), strict=True)
        for (name, domain), ends in zip(axes, count_ends(summary), strict=True):
            figure.layout[name] = {"domain": domain, **ends}
