"""The summary of parts of tokens, such as rounds: counts, means and quantiles.

One program for `stats.round_summary`, which adds intervals, and for the totals in the
footer of a step file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, starmap

import numpy as np

from rounddiag._typing import Array
from rounddiag.core.aggregation import means_of_sums, run_quantiles, run_sums
from rounddiag.core.divergence import MEASURES, TokenMetric
from rounddiag.core.sums import take_runs

# The means that round frames have.
MEANS = tuple(
    measure.mean_column.name for measure in MEASURES.values() if measure.in_rounds
)
_SUMMARY_MEASURES = tuple(
    measure
    for measure in MEASURES.values()
    if measure.in_summary and not measure.in_rounds
)
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_BLOCK = 1 << 16  # tokens of short rounds that are summarised at once


def summarize_parts(
    runs: Mapping[str, Array],
    part: Array,
    tokens: Mapping[str, Array],
    measure: TokenMetric,
) -> tuple[dict[str, Array], Array]:
    """Summarise the tokens of each part, the rows of which are adjacent.

    `runs` has, for each round of a sample, `sample`, `begin` (its first token among the
    concatenated `tokens`), counts, and sums over finite tokens, under the names of
    their means. Returns the columns of the summary, and the sum of the metric over each
    of these rounds.
    """
    blocks = [
        _summarize_block(
            {name: values[rows] for name, values in runs.items()},
            part[rows] - part[rows][0],
            tokens,
            measure,
        )
        for rows in _row_blocks(part, runs["num_tokens"])
    ]
    names = blocks[0][0] if blocks else ()
    return (
        {name: np.concatenate([block[name] for block, _ in blocks]) for name in names},
        np.concatenate([np.empty(0), *(totals for _, totals in blocks)]),
    )


def _row_blocks(part: Array, num_tokens: Array) -> Iterator[slice]:
    """Yield rows of whole parts, as many at once as stay in cache with their tokens."""
    ends = np.cumsum(np.bincount(part, num_tokens))
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(_BLOCK, total, _BLOCK))
    limits = np.unique([0, *cuts.tolist(), len(ends)])
    yield from starmap(slice, pairwise(np.searchsorted(part, limits).tolist()))


def _summarize_block(
    runs: Mapping[str, Array],
    part: Array,
    tokens: Mapping[str, Array],
    measure: TokenMetric,
) -> tuple[dict[str, Array], Array]:
    first = np.flatnonzero(np.diff(part, prepend=-1))
    added = {
        name: np.add.reduceat(runs[name], first)
        for name in ("num_tokens", "num_nonfinite", "num_finite", *MEANS)
        if name in runs
    }
    num_finite = added.pop("num_finite")
    taken = _finite_tokens(runs, tokens, measure.gate)
    values = measure.values(taken[measure.source_column])
    totals = (
        runs[measure.round_column]
        if measure.round_column
        else run_sums(values, runs["num_finite"])
    )
    summary = {
        "num_samples": _num_distinct(part, runs["sample"]),
        "num_tokens": added["num_tokens"],
        "num_nonfinite": added["num_nonfinite"],
        **{n: means_of_sums(added[n], num_finite) for n in MEANS if n in added},
        **_distribution(values, num_finite),
    }
    for other in _SUMMARY_MEASURES:
        if other.source_column in taken:
            sums = run_sums(other.values(taken[other.source_column]), num_finite)
            summary[other.mean_column.name] = means_of_sums(sums, num_finite)
    return summary, totals


def _num_distinct(part: Array, sample: Array) -> Array:
    width = int(sample.max()) + 1
    pairs = np.unique(part.astype(np.int64) * width + sample)
    return np.bincount(pairs // width)


def _finite_tokens(
    runs: Mapping[str, Array], tokens: Mapping[str, Array], gate: str
) -> dict[str, Array]:
    """Copy the tokens of the runs at which the column `gate` is finite."""
    place = runs["begin"], runs["num_tokens"]
    taken = {name: take_runs(values, *place) for name, values in tokens.items()}
    if not runs["num_nonfinite"].any():
        return taken
    finite = np.isfinite(taken[gate])
    return {name: values[finite] for name, values in taken.items()}


def _distribution(values: Array, counts: Array) -> dict[str, Array]:
    share_zero = 1 - means_of_sums(run_sums(values != 0, counts), counts)
    *quantiles, largest = run_quantiles(values, counts, [*_QUANTILES.values(), 1.0])
    named = dict(zip(_QUANTILES, quantiles, strict=True))
    return {"share_zero": share_zero, "max": largest, **named}
