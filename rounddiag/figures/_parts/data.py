"""From the arguments of a figure to the frame that it draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.core import token_frame
from rounddiag.core.divergence import MEASURES, TokenMetric
from rounddiag.core.measured import Measured
from rounddiag.errors import FrameError, refuse, require_one_of
from rounddiag.figures._parts.canvas import (
    AXIS_ROOM,
    Theme,
    ThemeName,
    empty_figure,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.labels import NO_TOKENS, shorten_name
from rounddiag.schema import TOKENS, Pair, metric_name
from rounddiag.stats.inputs import Data, open_measured

_PAIR = ("rollout_log_prob", "old_log_prob")
# Refuses `layers`, which a figure of means had before.
without_layers = refuse(
    "layers",
    "`figure.update_traces(visible=False)` hides a trace, `error_y_visible=False` its"
    " intervals.",
)
# Characters of a score's name that fit into the title of an axis.
_NAME = 12


@dataclass(frozen=True, kw_only=True)
class PlotInputs:
    """The arguments that most figures share, validated.

    Attributes
    ----------
    data: What is drawn, for one pair of scores.
    pair: The scores, as labels name them.
    metric: The metric's own name.
    layers: Whether each layer is drawn.
    """

    data: Measured
    pair: Pair
    metric: str
    layers: dict[str, bool]
    theme: Theme

    @property
    def means(self) -> pd.DataFrame | None:
        """The frame of means that was given; None for a batch, or its tokens."""
        frame = self.data.frame
        return None if frame is None or "diff" in frame else frame

    def new_figure(
        self, title: str, lines: Sequence[str], *, plot: int, bottom: int = AXIS_ROOM
    ) -> go.Figure:
        """Make an empty figure, which also says where the rounds are unknown."""
        lines = [*note_unknown_rounds(self.data), *lines]
        return new_figure(title, lines, self.theme, plot=plot, bottom=bottom)

    def empty_figure(self, title: str, why: str = NO_TOKENS) -> go.Figure:
        """Make a figure that states why there is nothing to draw."""
        return empty_figure(title, why, self.theme)


def prepare(
    data: Data,
    a: str,
    b: str,
    *,
    metric: str = "abs_diff",
    theme: ThemeName | None,
    layers: Mapping[str, bool] | None = None,
    known: Iterable[str] = (),
) -> PlotInputs:
    """Validate the arguments that most figures share; `known` are its layers.

    A frame keeps the pair of scores that it was made with.
    """
    metric = metric_name(metric)
    drawn = resolve_layers(layers, *known)
    chosen = theme_of(theme)
    data = open_measured(data, a, b)
    return PlotInputs(
        data=data, pair=short_pair(data.pair), metric=metric, layers=drawn, theme=chosen
    )


def short_pair(pair: Pair) -> Pair:
    """Return a pair with short names, safe in plotly's pseudo HTML."""
    if pair.is_standard:
        return pair
    return replace(pair, a=shorten_name(pair.a, _NAME), b=shorten_name(pair.b, _NAME))


def get_sample_tokens(
    data: Measured,
    sample: int,
    measure: TokenMetric | None = MEASURES["diff"],
    *,
    log_probs: bool = True,
) -> pd.DataFrame:
    """Return the tokens of one sample, with `position`, log-probs and `text`.

    Those that a batch lacks are left out, and `text` also where a frame has none. A
    frame needs the log-probs only with `log_probs`, and only for a metric of a pair.

    Without a metric, a batch gives what it has.
    """
    own = [] if measure is None else [measure.gate, *measure.extra_columns]
    is_of_pair = measure is not None and measure.of == "pair"
    if data.batch is None:
        needed = _PAIR if log_probs and is_of_pair else ()
        columns = (*own, "position", *needed)
        tokens = data.tokens(*TOKENS.keys, *columns)
        check_sample(sample, data.num_samples)
        return tokens[tokens["sample"] == sample].reset_index(drop=True)
    check_sample(sample, data.num_samples)
    batch = data.batch
    if is_of_pair:
        batch.require("old", "rollout")
    needs = {"rollout_log_prob": "rollout", "old_log_prob": "old", "text": "text"}
    known = [name for name, field in needs.items() if not batch.lacks(field)]
    more = [name for name in own if name not in ("diff", *known)]
    return token_frame(
        batch[sample], columns=("position", *known, *dict.fromkeys(more))
    )


def find_sample(data: Measured, sample: int | str) -> int:
    """Return the number of a sample, which may be named by its id."""
    if not isinstance(sample, str):
        return sample
    if data.batch is not None:
        return data.batch.sample_number(sample)
    tokens = data.tokens("sample", "sample_id")
    samples = tokens.loc[tokens["sample_id"] == sample, "sample"].unique()
    if len(samples) != 1:
        raise FrameError.build(
            key="sample",
            expected="the id of one sample of the frame",
            found=f"{sample!r:.80} of {len(samples)}",
            advice="Name the sample by its number.",
        )
    return int(samples[0])


def is_index(value: object, count: int) -> bool:
    """Return whether a value is an integer from 0 to `count - 1`, or numpy's.

    Examples
    --------
    >>> [is_index(value, 2) for value in (1, np.int64(1), 2, -1, True, "1")]
    [True, True, False, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return bool(0 <= value < count)


def check_sample(sample: object, num_samples: int) -> None:
    """Raise a FrameError unless there is such a sample."""
    if not is_index(sample, num_samples):
        raise FrameError.build(
            key="sample",
            expected=f"a sample from 0 to {num_samples - 1}"
            if num_samples
            else "a batch with samples",
            found=f"{sample!r:.80}" if num_samples else "none",
            advice="Count samples from 0, as in `rounddiag.sample_frame(batch)`.",
        )


def resolve_layers(chosen: Mapping[str, bool] | None, *known: str) -> dict[str, bool]:
    """Decide whether each layer is drawn: it is, unless chosen otherwise.

    Examples
    --------
    >>> resolve_layers({"heatmap": False}, "heatmap", "means")
    {'heatmap': False, 'means': True}
    """
    chosen = chosen or {}
    for name in chosen:
        advice = "`{name: False}` leaves a layer out, `update_traces` hides a trace."
        require_one_of(name, known, key="layers", advice=advice)
    return {name: bool(chosen.get(name, True)) for name in known}


def note_unknown_rounds(data: Measured) -> list[str]:
    """State that the rounds of a batch are unknown, if they are."""
    note = "the rounds are unknown: `rd.check(batch)` says why"
    return [note] if data.has_unknown_rounds else []
