"""`Measured`: one value between batches or frames and everything that counts or draws.

A public function turns what it is given into it once (`stats.inputs.open_measured` also
opens files). Here the pair of scores is chosen, and unknown rounds and missing
columns are settled. Columns are computed when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.batch.missing import missing_error
from rounddiag.columns.column import is_real
from rounddiag.core.aggregation import run_sums
from rounddiag.core.columns import (
    check_columns,
    equal_so_far,
    sample_clusters,
    token_values,
)
from rounddiag.core.divergence import TokenMetric, read_prob_diffs
from rounddiag.core.frames import round_frame_and_diffs, rounds_of_tokens, tokens_of
from rounddiag.core.scores import check_pair, has_pair, pair_of, select_scores, tag_as
from rounddiag.core.sums import prob_diffs
from rounddiag.errors import FrameError
from rounddiag.schema import METRICS, TOKENS, Pair
from rounddiag.schema.tables import AGGREGATE_COLUMNS
from rounddiag.wording import format_names

if TYPE_CHECKING:
    import pandas as pd

_AGGREGATES = tuple(column.name for column in AGGREGATE_COLUMNS)
_ALWAYS = (*TOKENS.keys, "diff")  # in every token frame of a batch
# What was computed of each batch. It never refers to the batch itself.
_computed: WeakKeyDictionary[Batch, dict[Any, Any]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """A batch or a frame for one pair of scores, and its columns.

    Attributes
    ----------
    data: A batch whose two log-probs are those of the pair, or the frame that was
        given.
    pair: The scores that are compared.
    """

    data: Batch | pd.DataFrame
    pair: Pair
    _known: dict[Any, Any] = field(repr=False)

    @classmethod
    def of(
        cls, data: Batch | pd.DataFrame | Measured, a: str = "old", b: str = "rollout"
    ) -> Measured:
        """Choose the pair of scores of a batch; a frame has one already.

        Examples
        --------
        >>> import rounddiag as rd
        >>> batch = rd.load("sample_data/healthy.parquet")
        >>> len(Measured.of(batch).rounds) == batch.num_rounds
        True
        """
        import pandas as pd

        if isinstance(data, Measured):
            return data
        if isinstance(data, pd.DataFrame):
            check_pair(data, a, b)
            return cls(data=_with_whole_keys(data), pair=pair_of(data), _known={})
        if not isinstance(data, Batch):
            raise FrameError.build(
                expected="a Batch or a DataFrame",
                found=f"a {type(data).__name__}",
                advice="Open a file with `rounddiag.load(path)` first; of a run, pass"
                " a step: `run.batch(step)`.",
            )
        known, key = _known_of(data), ("pair", a, b)
        batch = select_scores(data, a, b)
        if batch is not data:
            batch = known.setdefault(key, batch)
        return cls(data=batch, pair=pair_of(batch), _known=_known_of(batch))

    def _compute(self, key: str, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 any column
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]

    @property
    def batch(self) -> Batch | None:
        """The batch; None where a frame was given."""
        return self.data if isinstance(self.data, Batch) else None

    @property
    def frame(self) -> pd.DataFrame | None:
        """The frame that was given; None for a batch."""
        return None if isinstance(self.data, Batch) else self.data

    def require_batch(self) -> Batch:
        """Return the batch; raise a BatchError where a frame was given."""
        return require_batch(self.data)

    @property
    def rounds(self) -> pd.DataFrame:
        """The round frame; columns can be added to it."""
        rounds: pd.DataFrame = self._rounds_and_diffs[0]
        return rounds.copy(deep=False)

    @property
    def diff(self) -> Array:
        """The diff of every generated token, in nats."""
        diff = self._rounds_and_diffs[1]
        if diff is None:
            raise missing_error(self.require_batch(), "old", "rollout")
        return diff

    @property
    def _rounds_and_diffs(self) -> tuple[pd.DataFrame, Array | None]:
        def compute() -> tuple[pd.DataFrame, Array | None]:
            if isinstance(self.data, Batch):
                rounds, diff = round_frame_and_diffs(self.data)
                if diff is not None:
                    diff.flags.writeable = False  # every frame of the batch shares it
                return rounds, diff
            return rounds_of_tokens(self.data), self.data["diff"].to_numpy()

        return self._compute("rounds", compute)

    @property
    def prob_diff(self) -> Array | None:
        """|difference of probabilities| of every token; None if a frame lacks it."""

        def compute() -> Array | None:
            if isinstance(self.data, Batch):
                return prob_diffs(self.data)
            return read_prob_diffs(self.data)

        return self._compute("prob_diff", compute)

    @property
    def sources(self) -> dict[str, Array]:
        """The columns of tokens from which metrics are computed."""
        prob_diff = self.prob_diff
        more = {} if prob_diff is None else {"prob_diff": prob_diff}
        return {"diff": self.diff, **more}

    def sources_of(self, measure: TokenMetric) -> dict[str, Array]:
        """Return the sources, with what only this metric needs."""
        name = measure.source_column
        if measure.of != "pair":
            return {name: self._own_column(name)}
        if name != "equal_so_far":
            return self.sources
        if isinstance(self.data, Batch):
            return {**self.sources, name: equal_so_far(self.data)}
        known = {name: self.data[name].to_numpy()} if name in self.data else {}
        return {**self.sources, **known}

    def _own_column(self, name: str) -> Array:
        """Return a column of tokens that needs no pair."""
        if isinstance(self.data, Batch):
            check_columns(self.data, [name])
            made = self.data.columns.made(name)
            assert made is not None  # noqa: S101 as checked
            return token_values(self.data, made)
        TOKENS.require(self.data.columns, name)
        return self.data[name].to_numpy()

    def rounds_of(self, measure: TokenMetric) -> pd.DataFrame:
        """Return the round frame, whose tokens that do not count are of this metric.

        Aggregates of diffs are in it for a metric of a pair only.
        """
        rounds = self.rounds
        if measure.of == "pair":
            _ = self.diff  # raises without one
            return rounds
        num = rounds["num_tokens"].to_numpy()
        unknown = ~np.isfinite(self._own_column(measure.source_column))
        rounds["num_nonfinite"] = run_sums(unknown, num).astype(np.int64)
        return rounds.drop(columns=[*_AGGREGATES], errors="ignore")

    def values(self, measure: TokenMetric) -> Array:
        """Return a metric of every token; NaN where it is not defined."""
        if measure.source_column == "diff":
            return values_of({"diff": self.diff}, measure)
        return values_of(self.sources_of(measure), measure)

    def tokens(self, *columns: str) -> pd.DataFrame:
        """Return the token frame with these columns and, of a frame, all others."""
        if isinstance(self.data, Batch):
            if "diff" in columns:
                _ = self.diff  # raises without one
            more = [name for name in columns if name not in _ALWAYS]
            check_columns(self.data, more)
            return tokens_of(self.data, self._rounds_and_diffs[1], more)
        TOKENS.require(self.data.columns, *columns)
        return self.data

    @property
    def num_samples(self) -> int:
        """The number of samples; of a frame, one more than the highest with a row."""
        if isinstance(self.data, Batch):
            return self.data.num_samples
        return int(self.data["sample"].to_numpy().max(initial=-1)) + 1

    @property
    def clusters(self) -> Array:
        """The cluster of each sample, counted from 0: its group, or itself alone."""
        return self._compute("clusters", self._number_clusters)

    def _number_clusters(self) -> Array:
        if isinstance(self.data, Batch):
            return sample_clusters(self.data)
        if "group_id" not in self.data:
            return np.arange(self.num_samples)
        known = self.data.drop_duplicates("sample")
        clusters = np.zeros(self.num_samples, dtype=np.int64)
        codes = number_values("group_id", known["group_id"].to_numpy())[0]
        clusters[known["sample"].to_numpy()] = codes
        return clusters

    @property
    def has_unknown_rounds(self) -> bool:
        """Whether the rounds of a batch are unknown: all of them are one."""
        batch = self.batch
        return batch is not None and batch.meta.get("rounds") == "unknown"

    def tag(self, result: pd.DataFrame) -> pd.DataFrame:
        """Record the pair in the `attrs` of a result, unless it is the standard one."""
        return tag_as(result, self.pair)


def metrics_of(batch: Batch) -> list[str]:
    """Return the metrics that a batch has what is needed for, in their order.

    Examples
    --------
    >>> turns = [("user", "Go."), ("assistant", "click(1, 2)")]
    >>> metrics_of(Batch.from_turns([turns]))
    ['round_length']
    """
    return [
        name
        for name, metric in METRICS.items()
        if (
            has_pair(batch)
            if metric.of == "pair"
            else batch.columns.made(metric.source_column) is not None
        )
    ]


def _known_of(batch: Batch) -> dict[Any, Any]:
    """Return what was computed of a batch since its tensors last changed."""
    fields = (batch.old_log_probs, batch.rollout_log_probs, batch.response_mask)
    version = tuple(0 if field is None else _version(field) for field in fields)
    known = _computed.get(batch)
    if known is None or known["version"] != version:
        known = _computed[batch] = {"version": version}
    return known


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 counts changes in place


def values_of(sources: Mapping[str, Array], measure: TokenMetric) -> Array:
    """Return a metric of tokens, from their columns; NaN where it is not defined.

    Examples
    --------
    >>> from rounddiag.core.divergence import get_measure
    >>> values_of({"diff": np.array([-1.0, np.inf])}, get_measure("k2"))
    array([0.5, nan])
    """
    require_source(sources, measure)
    column = sources[measure.source_column]
    finite = np.isfinite(sources[measure.gate])
    if finite.all():
        return measure.values(column)
    values = np.full(len(column), np.nan)
    values[finite] = measure.values(column[finite])
    return values


def require_source(sources: Mapping[str, Array], measure: TokenMetric) -> None:
    """Raise a FrameError unless tokens have the column of a metric."""
    column = measure.source_column
    if column not in sources:
        raise FrameError.build(
            expected=f"a token frame with `{column}`",
            found="one without it and without `rollout_log_prob`",
            advice=f'Build it with `rounddiag.token_frame(batch, ["{column}"])`.',
        )


def number_values(name: str, values: Array) -> tuple[Array, Array]:
    """Return the rank of each value among the distinct values.

    Examples
    --------
    >>> number_values("rank", np.array([3, 1, 3]))
    (array([1, 0, 1]), array([1, 3]))
    """
    import pandas as pd

    try:
        return pd.factorize(values, sort=True, use_na_sentinel=False)
    except (TypeError, ValueError):
        kind = type(values[0]).__name__
        raise unfit_column(name, "numbers or texts", f"values as {kind}") from None


def unfit_column(name: str, expected: str, content: str) -> FrameError:
    """Build the error of a column by which nothing can be grouped."""
    return FrameError.build(
        key=name,
        expected=f"a column that has {expected}",
        found=content,
        advice="Put values into bins in a column of your own, and name that one.",
    )


def _with_whole_keys(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose keys are whole numbers, which joins leave as floats."""
    for name in ("sample", "round"):
        kind = frame[name].to_numpy().dtype.kind if name in frame else ""
        if not kind or (kind in "iu" and frame[name].ge(0).all()):
            continue
        values = frame[name].to_numpy()
        whole = [
            int(v) for v in values.tolist() if is_real(v) and v >= 0 and v % 1 == 0
        ]
        if len(whole) < len(values):
            raise FrameError.build(
                key=name,
                expected="whole numbers from 0 in all rows",
                found=format_names({f"{v!r:.40}": v for v in values.tolist()}),
                advice="Drop the rows without one, or convert the column.",
            )
        frame = frame.assign(**{name: np.array(whole, dtype=np.int64)})
    return frame
