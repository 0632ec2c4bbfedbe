"""What an explorer shows, as plain data that can be saved and restored."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from rounddiag import schema
from rounddiag.core import sample_frame
from rounddiag.core.columns import extra_column_names
from rounddiag.errors import FrameError
from rounddiag.figures._parts.data import layers_of
from rounddiag.figures._parts.lines import MAX_LINES
from rounddiag.figures._parts.token_colors import UNDERLINED
from rounddiag.figures.rounds import LAYERS
from rounddiag.schema import MEAN_COLUMNS, ROUNDS, metric_name
from rounddiag.stats.heatmap_rows import Order
from rounddiag.text.roles import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from rounddiag.batch import Batch


# What the metric switch offers, by the name that `round_summary` has for it, and the
# column of a round frame that holds its mean.
METRICS = {
    name: metric.mean_column.name
    for name, metric in schema.METRICS.items()
    if metric.in_explorer
}
Axis: TypeAlias = Literal["round", "images", "context"]
AXES = get_args(Axis)
Heatmap: TypeAlias = Literal["batch", "difference"]
_CELLS = "{'samples': [...], 'rounds': [first, last]}"
_CHOICES = {
    "metric": tuple(METRICS),
    "order": get_args(Order),
    "axis": AXES,
    "heatmap": get_args(Heatmap),
}


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which tokens are kept: those that meet every condition that is set.

    Attributes
    ----------
    sample : int, optional
    group : str, optional
    reward, rounds : pair of numbers, optional
        Lowest and highest, both included.
    text : str, optional
        Text of one token or of several consecutive tokens of a round; case-sensitive. A
        regular expression with `is_regex`.
    is_regex : bool
    role : str, optional
    """

    sample: int | None = None
    group: str | None = None
    reward: tuple[float, float] | None = None
    rounds: tuple[int, int] | None = None
    text: str | None = None
    is_regex: bool = False
    role: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it keeps everything."""
        return replace(self, is_regex=False) == Filter()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A token, by sample, round and token in its round."""

    sample: int = 0
    round: int = 0
    token: int = 0


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Some samples in a range of rounds: a box in the heatmap."""

    samples: tuple[int, ...]
    rounds: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything that can be chosen in an explorer; see `Explorer.state`."""

    metric: str = "abs_diff"
    threshold: float = UNDERLINED
    order: Order = "worst"
    a: str = "old"
    b: str = "rollout"
    by: str | None = None
    axis: Axis = "round"
    layers: Mapping[str, bool] = field(default_factory=dict)
    filter: Filter = Filter()
    current: Place = Place()
    cells: Cells | None = None
    batch: int = 0
    heatmap: Heatmap = "batch"

    def __post_init__(self) -> None:
        for key, known in _CHOICES.items():
            value = getattr(self, key)
            _check_entry(key, value, f"one of {[*known]}", is_valid=value in known)
        size = self.threshold
        is_size = _is_number(size) and 0 < size < math.inf
        _check_entry("threshold", size, "a number of nats above 0", is_valid=is_size)
        other = f"another score than `a`, {self.a!r}"
        _check_entry("b", self.b, other, is_valid=self.b != self.a)
        layers: Any = self.layers
        are_switches = isinstance(layers, Mapping) and all(
            isinstance(is_on, bool) for is_on in layers.values()
        )
        switches = "a dictionary of layer names to True or False"
        _check_entry("layers", layers, switches, is_valid=are_switches)
        is_index = type(self.batch) is int and self.batch in (0, 1)
        index = "0, or 1 for the second of two"
        _check_entry("batch", self.batch, index, is_valid=is_index)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> State:
        """Build it from the output of `as_dict`, or a part of that."""
        return cls().updated(state)

    def updated(self, changes: Mapping[str, Any]) -> State:
        """Return a copy with some entries replaced, also within `filter` and `current`.

        Raises
        ------
        FrameError
            If an entry is unknown or has an invalid value.
        """
        known = [one.name for one in fields(self)]
        for key, value in changes.items():
            if key not in known:
                raise _unknown_entry(key, value, known)
        return replace(
            self, **{key: self._parse(key, value) for key, value in changes.items()}
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data that JSON can hold."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def _parse(self, key: str, value: Any) -> Any:  # noqa: ANN401 whatever JSON holds
        if key == "metric" and value in MEAN_COLUMNS.values():
            return metric_name(value)
        if key in ("filter", "current"):
            return _replace_entries(key, getattr(self, key), value)
        if key == "cells" and value is not None and not isinstance(value, Cells):
            return _parse_cells(value)
        return value


def bounding_cells(rows: pd.DataFrame) -> Cells | None:
    """Return the smallest box of cells that holds the samples and rounds of a frame.

    Raises
    ------
    FrameError
        If it lacks one of the two columns.
    """
    ROUNDS.require(rows.columns, "sample", "round")
    if rows.empty:
        return None
    samples = tuple(int(sample) for sample in rows["sample"].unique())
    low, high = int(rows["round"].min()), int(rows["round"].max())
    return Cells(samples=samples, rounds=(low, high))


def _replace_entries(key: str, now: Any, changes: Any) -> Any:  # noqa: ANN401 two classes
    if isinstance(changes, type(now)):
        return changes
    names = [one.name for one in fields(now)]
    is_known = isinstance(changes, dict) and set(changes) <= set(names)
    _check_entry(key, changes, f"a dictionary with some of {names}", is_valid=is_known)
    pairs = {
        name: tuple(v) if isinstance(v, list) else v for name, v in changes.items()
    }
    return replace(now, **pairs)


def _parse_cells(value: Any) -> Cells:  # noqa: ANN401 whatever JSON holds
    try:
        low, high = value["rounds"]
        samples = tuple(int(sample) for sample in value["samples"])
        return Cells(samples=samples, rounds=(int(low), int(high)))
    except (KeyError, TypeError, ValueError):
        raise _invalid_entry(key="cells", value=value, expected=_CELLS) from None


def _unknown_entry(key: str, value: object, known: list[str]) -> FrameError:
    """List the known entries, and name the entry that this one belongs into."""
    inner = {one.name: "filter" for one in fields(Filter)}
    inner |= {one.name: "current" for one in fields(Place)}
    whole = f"{inner[key]}={{{key!r}: {value!r:.80}}}" if key in inner else ""
    return FrameError.build(
        key=key,
        expected=f"a state entry out of {known}",
        found="an unknown entry",
        advice=f"Write `{whole}`." if whole else "Leave it out.",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_entry(key: str, value: object, expected: str, *, is_valid: bool) -> None:
    if not is_valid:
        raise _invalid_entry(key, value, expected)


def _invalid_entry(key: str, value: object, expected: str) -> FrameError:
    return FrameError.build(
        key=key,
        expected=expected,
        found=f"{value!r:.80}",
        advice="Leave it out for the default.",
    )


def available_options(batch: Batch) -> dict[str, Any]:
    """Return the values that each choice can have for this batch."""
    samples = sample_frame(batch)
    lacking = {"reward": "reward" not in samples, "group": "group_id" not in samples}
    return {
        "batch": [0],
        "heatmap": ["batch"],
        "metric": [
            [name, schema.METRICS[name].short, schema.METRICS[name].hint]
            for name in METRICS
        ],
        "order": [order for order in get_args(Order) if not lacking.get(order)],
        "scores": ["old", "rollout", *batch.scores],
        "by": [*_grouping_columns(batch, samples)],
        "axis": [AXES[0], *(AXES[1:] if batch.images is not None else AXES[2:])],
        "layers": LAYERS,
        "groups": [*dict.fromkeys(batch.group_ids or ())],
        "roles": [] if batch.tokenizer is None or batch.is_redacted else [*ROLES],
        "samples": [*(batch.sample_ids or ())],
    }


def _grouping_columns(batch: Batch, samples: pd.DataFrame) -> Iterator[str]:
    """Yield the columns of samples and rounds that have between 2 and 8 values."""
    for name in dict.fromkeys([*extra_column_names(batch), *samples.columns]):
        column = batch.round_columns.get(name, samples.get(name))
        if (
            column is not None
            and 1 < len(set(np.asarray(column).tolist())) <= MAX_LINES
        ):
            yield name


def check_options(state: State, options: Mapping[str, Any], num_samples: int) -> None:
    """Raise if a state has a value that the batch does not offer.

    Parameters
    ----------
    state : State
    options : mapping
        As from `available_options`.
    num_samples : int

    Raises
    ------
    FrameError
    """
    for key in ("batch", "heatmap", "order", "axis", "by"):
        known = [None, *options[key]] if key == "by" else options[key]
        value = getattr(state, key)
        _check_option(key, value, f"one of {known}", is_valid=value in known)
    layers_of(state.layers, *options["layers"])
    if state.cells is not None:
        samples = state.cells.samples
        are_present = all(0 <= sample < num_samples for sample in samples)
        expected = f"samples from 0 to {num_samples - 1}"
        is_valid = bool(samples) and are_present
        _check_option("cells", samples, expected, is_valid=is_valid)


def _check_option(key: str, value: object, expected: str, *, is_valid: bool) -> None:
    if not is_valid:
        raise FrameError.build(
            key=key,
            expected=expected,
            found=f"{value!r:.80}",
            advice="Leave it out, or choose a value that the batch has.",
        )
