"""What an explorer shows, as plain data: what can be saved and given back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from rounddiag.errors import FrameError
from rounddiag.figures._parts.data import resolve_layers
from rounddiag.figures._parts.token_colors import UNDERLINED
from rounddiag.schema import MEAN_COLUMNS, ROUNDS, mean_column, metric_name
from rounddiag.stats.heatmap_rows import Order

if TYPE_CHECKING:
    import pandas as pd


# What the metric switch offers, by the name that `round_summary` has for it, and the
# column of a round frame that holds its mean.
METRICS = {name: mean_column(name) for name in ("abs_diff", "diff", "prob_diff", "k3")}
Axis: TypeAlias = Literal["round", "images", "context"]
AXES = get_args(Axis)
Heatmap: TypeAlias = Literal["batch", "difference"]
_BOX = "{'samples': [...], 'rounds': [first, last]}"
_CHOICES = {
    "metric": tuple(METRICS),
    "order": get_args(Order),
    "axis": AXES,
    "heatmap": get_args(Heatmap),
}


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which tokens count: those for which all that is set holds.

    Attributes
    ----------
    sample : int, optional
    group : str, optional
    reward, rounds : pair of numbers, optional
        Lowest and highest, both included.
    text : str, optional
        What tokens read, one alone or several of a round together, where case counts;
        a regular expression with `is_regex`.
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
    """Some samples, from one round to another: a box in the heatmap."""

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
            _check_state(key, value, f"one of {[*known]}", is_right=value in known)
        size = self.threshold
        is_size = _is_number(size) and 0 < size < math.inf
        _check_state("threshold", size, "a number of nats above 0", is_right=is_size)
        other = f"another score than `a`, {self.a!r}"
        _check_state("b", self.b, other, is_right=self.b != self.a)
        layers: Any = self.layers
        is_switches = isinstance(layers, Mapping) and all(
            isinstance(is_on, bool) for is_on in layers.values()
        )
        _check_state(
            "layers", layers, "names and whether they are on", is_right=is_switches
        )
        is_place = type(self.batch) is int and self.batch in (0, 1)
        _check_state(
            "batch", self.batch, "0, or 1 for the second of two", is_right=is_place
        )

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> State:
        """Build it from `as_dict`, or a part of that."""
        return cls().changed(state)

    def changed(self, changes: Mapping[str, Any]) -> State:
        """Return it with some entries replaced; inner ones of `filter`, `current` too.

        Raises
        ------
        FrameError
            If there is no such entry, or it cannot have this value.
        """
        known = [one.name for one in fields(self)]
        for key, value in changes.items():
            if key not in known:
                raise _unknown(key, value, known)
        return replace(
            self, **{key: self._made(key, value) for key, value in changes.items()}
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def _made(self, key: str, value: Any) -> Any:  # noqa: ANN401 whatever JSON holds
        if key == "metric" and value in MEAN_COLUMNS.values():
            return metric_name(value)
        if key in ("filter", "current"):
            return _replaced(key, getattr(self, key), value)
        if key == "cells" and value is not None and not isinstance(value, Cells):
            return _cells(value)
        return value


def box_of(rows: pd.DataFrame) -> Cells | None:
    """Return the smallest box that holds the samples and rounds of a frame.

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


def _replaced(key: str, now: Any, changes: Any) -> Any:  # noqa: ANN401 two classes
    if isinstance(changes, type(now)):
        return changes
    names = [one.name for one in fields(now)]
    is_known = isinstance(changes, dict) and set(changes) <= set(names)
    _check_state(key, changes, f"a dictionary with some of {names}", is_right=is_known)
    pairs = {
        name: tuple(v) if isinstance(v, list) else v for name, v in changes.items()
    }
    return replace(now, **pairs)


def _cells(value: Any) -> Cells:  # noqa: ANN401 whatever JSON holds
    try:
        low, high = value["rounds"]
        samples = tuple(int(sample) for sample in value["samples"])
        return Cells(samples=samples, rounds=(int(low), int(high)))
    except (KeyError, TypeError, ValueError):
        raise _unfit(key="cells", value=value, expected=_BOX) from None


def _unknown(key: str, value: object, known: list[str]) -> FrameError:
    """Name what there is, and the entry that has an inner one of this name."""
    inner = {one.name: "filter" for one in fields(Filter)}
    inner |= {one.name: "current" for one in fields(Place)}
    whole = f"{inner[key]}={{{key!r}: {value!r:.80}}}" if key in inner else ""
    return FrameError.build(
        key=key,
        expected=f"a name out of {known}",
        found="another name",
        advice=f"Write `{whole}`." if whole else "Leave it out.",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_state(key: str, value: object, expected: str, *, is_right: bool) -> None:
    if not is_right:
        raise _unfit(key, value, expected)


def _unfit(key: str, value: object, expected: str) -> FrameError:
    return FrameError.build(
        key=key,
        expected=expected,
        found=f"{value!r:.80}",
        advice="Leave it out for the default.",
    )


def check_fit(state: State, options: Mapping[str, Any], num_samples: int) -> None:
    """Raise for what a batch does not offer; it could not be drawn.

    Parameters
    ----------
    state : State
    options : mapping
        As `head.options_of`.
    num_samples : int

    Raises
    ------
    FrameError
    """
    for key in ("batch", "heatmap", "order", "axis", "by"):
        known = [None, *options[key]] if key == "by" else options[key]
        found = getattr(state, key)
        _check_fitting(key, found, f"one of {known}", is_right=found in known)
    resolve_layers(state.layers, *options["layers"])
    if state.cells is not None:
        samples = state.cells.samples
        is_there = all(0 <= sample < num_samples for sample in samples)
        expected = f"samples from 0 to {num_samples - 1}"
        _check_fitting("cells", samples, expected, is_right=bool(samples) and is_there)


def _check_fitting(key: str, value: object, expected: str, *, is_right: bool) -> None:
    if not is_right:
        raise FrameError.build(
            key=key,
            expected=expected,
            found=f"{value!r:.80}",
            advice="Leave it out, or choose what the batch has.",
        )
