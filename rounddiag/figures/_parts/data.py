"""From the arguments of a figure to the frame that it draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core import token_frame
from rounddiag.core.scores import check_pair, pair_of, select_scores
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import theme_of
from rounddiag.figures._parts.labels import shorten_name
from rounddiag.schema import (
    TOKENS,
    Pair,
    metric_name,
)
from rounddiag.stats.inputs import num_picked
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rounddiag.figures._parts.canvas import Theme, ThemeName


_PAIR = ("rollout_log_prob", "old_log_prob")
# Characters of a score's name that fit into the title of an axis.
_NAME = 12


@dataclass(frozen=True, kw_only=True)
class PlotInputs:
    """The arguments that most figures share, validated.

    Attributes
    ----------
    data : Batch or DataFrame
        Its `old_log_probs` and `rollout_log_probs`, or columns, are of the pair.
    pair : Pair
        The scores, as labels name them.
    metric : str
        The metric's own name.
    layers : dict of str to bool
        Whether each layer is drawn.
    theme : Theme
    """

    data: Batch | pd.DataFrame
    pair: Pair
    metric: str
    layers: dict[str, bool]
    theme: Theme


def prepare(
    data: Batch | pd.DataFrame,
    a: str,
    b: str,
    *,
    metric: str = "abs_diff",
    layers: Mapping[str, bool] | None,
    known: Iterable[str],
    theme: ThemeName | None,
) -> PlotInputs:
    """Validate the arguments that most figures share; `known` are its layers.

    A frame keeps the pair of scores that it was made with.
    """
    metric = metric_name(metric)
    drawn = resolve_layers(layers, *known)
    chosen = theme_of(theme)
    data, pair = select_pair(data, a, b)
    return PlotInputs(data=data, pair=pair, metric=metric, layers=drawn, theme=chosen)


def select_pair(
    data: Batch | pd.DataFrame, a: str, b: str
) -> tuple[Batch | pd.DataFrame, Pair]:
    """Return data of one pair of scores, and the pair as labels name it.

    The names of the pair are short, and safe in plotly's pseudo HTML.
    """
    if isinstance(data, pd.DataFrame):
        check_pair(data, a, b)
    elif isinstance(data, Batch):
        data = select_scores(data, a, b)
    else:
        raise FrameError.build(
            expected="a Batch or a DataFrame",
            found=type(data).__name__,
            advice="Open a file with `rounddiag.load(path)` first.",
        )
    known = pair_of(data)
    return data, Pair(shorten_name(known.a, _NAME), shorten_name(known.b, _NAME))


def get_sample_tokens(
    data: Batch | pd.DataFrame, sample: int, *, log_probs: bool = True
) -> pd.DataFrame:
    """Return the tokens of one sample, with `position`, both log-probs and `text`.

    The result has no `text` if the frame has none or the batch is redacted. A frame
    needs the log-probs only with `log_probs`.
    """
    if isinstance(data, pd.DataFrame):
        needed = _PAIR if log_probs else ()
        TOKENS.require(data.columns, *TOKENS.keys, "diff", "position", *needed)
        check_sample(sample, int(data["sample"].max()) + 1 if len(data) else 0)
        return data[data["sample"] == sample].reset_index(drop=True)
    check_sample(sample, data.num_samples)
    text = () if data.is_redacted else ("text",)
    return token_frame(data[sample], columns=("position", *_PAIR, *text))


def find_sample(data: Batch | pd.DataFrame, sample: int | str) -> int:
    """Return the number of a sample, which may be named by its id."""
    if not isinstance(sample, str):
        return sample
    if isinstance(data, Batch):
        return data.sample_number(sample)
    TOKENS.require(data.columns, "sample", "sample_id")
    found = data.loc[data["sample_id"] == sample, "sample"].unique()
    if len(found) != 1:
        raise FrameError.build(
            key="sample",
            expected="the id of one sample of the frame",
            found=f"{sample!r:.80} of {len(found)}",
            advice="Name the sample by its number.",
        )
    return int(found[0])


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
    >>> resolve_layers({"strip": False}, "strip", "means")
    {'strip': False, 'means': True}
    """
    chosen = chosen or {}
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise FrameError.build(
            key="layers",
            expected=f"names out of {list(known)}",
            found=str(unknown),
            advice="`{name: False}` leaves a layer out.",
        )
    return {name: bool(chosen.get(name, True)) for name in known}


def count_picked(data: Batch | pd.DataFrame) -> int:
    """Count the samples that were stored because they are the worst; 0 for a frame."""
    return num_picked(data) if isinstance(data, Batch) else 0


def note_unknown_rounds(data: Batch | pd.DataFrame) -> list[str]:
    """State that the rounds of a batch are unknown, if they are."""
    is_unknown = isinstance(data, Batch) and data.meta.get("rounds") == "unknown"
    return ["the rounds are unknown: `rd.check(batch)` says why"] * is_unknown


def note_picked(data: Batch | pd.DataFrame) -> list[str]:
    """State how many of the worst samples a statistic leaves out, if any.

    Examples
    --------
    >>> import rounddiag as rd
    >>> note_picked(rd.load("sample_data/healthy.parquet"))
    []
    """
    count = count_picked(data)
    size = pluralize(count, "sample")
    return [f"left out: {size} picked as the worst"] if count else []
