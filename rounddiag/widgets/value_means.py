"""The mean of the mismatch for each value of a column, with its interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.core import token_frame
from rounddiag.core.columns import sample_clusters
from rounddiag.core.divergence import get_measure
from rounddiag.core.measured import values_of
from rounddiag.stats.intervals import ratio_interval
from rounddiag.widgets.columns import (
    MAX_GROUPS,
    bins_of,
    in_json,
    is_ranged,
    range_text,
    value_text,
)
from rounddiag.widgets.session import Session

# The values with the largest means; more do not help to choose one.
_MOST = 40
_TOO_MANY = 2000  # names: each has a sum for each sample


def value_means(session: Session, name: str) -> dict[str, Any]:
    """Return what each value of a column has: mean, interval, counts, a condition.

    All that the filter keeps, but for its condition on this column: other values can be
    chosen. Measures are in ranges of about as many tokens.
    """
    state, columns = session.state, session.own_columns
    others = {key: condition for key, condition in state.filter.items() if key != name}
    filtered = session.filter_for(replace(state, filter=others))
    tokens = filtered.tokens
    codes, values = columns.codes(name)
    if len(values) > _TOO_MANY and values.dtype.kind not in "iuf":
        return {"name": name, "rows": [], "num_rows": len(values)}
    codes, texts, conditions = _values_of(name, codes, values)
    if not filtered.is_all:
        codes = codes[columns.flat_index(tokens)]
    measure = get_measure(state.mean_metric)
    if measure.source_column not in tokens:
        tokens = token_frame(filtered.batch, measure.extra_columns)
    columns_read = {measure.source_column, measure.gate}
    size = values_of({name: tokens[name].to_numpy() for name in columns_read}, measure)
    cluster = sample_clusters(filtered.batch)[tokens["sample"].to_numpy()]
    rows = [
        {"text": texts[code], "condition": conditions[code], **means}
        for code, means in _means(
            codes, size, cluster, len(texts), is_signed=measure.is_signed
        )
    ]
    rows.sort(key=lambda row: -abs(row["mean"]))
    return {"name": name, "rows": rows[:_MOST], "num_rows": len(rows)}


def _values_of(
    name: str, codes: Array, values: Array
) -> tuple[Array, list[str], list[Any]]:
    if not is_ranged(name, values):
        texts = [value_text(value) or "none" for value in values.tolist()]
        return codes, texts, [[value] for value in in_json(values)]
    bins, ends = bins_of(codes, values, MAX_GROUPS)
    conditions = [
        {"from": low, "to": high} if low == low else [None]  # noqa: PLR0124 NaN
        for low, high in ends
    ]
    return bins[codes], [range_text(*end) for end in ends], conditions


def _means(
    codes: Array, size: Array, cluster: Array, num: int, *, is_signed: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    num_clusters = int(cluster.max(initial=-1)) + 1
    known = np.isfinite(size)
    key = codes[known] * num_clusters + cluster[known]
    shape = (num, num_clusters)
    counts = np.bincount(key, minlength=num * num_clusters).reshape(shape)
    totals = np.bincount(key, size[known], num * num_clusters).reshape(shape)
    for code in np.flatnonzero(counts.sum(axis=1)):
        own = counts[code] > 0
        low, high = ratio_interval(
            totals[code][own], counts[code][own], is_signed=is_signed
        )
        yield (
            int(code),
            {
                "mean": float(totals[code].sum() / counts[code].sum()),
                "low": low,
                "high": high,
                "num_tokens": int(counts[code].sum()),
            },
        )
