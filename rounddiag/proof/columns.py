"""Log-probs that were moved, exchanged, rounded or filled: no pass of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.hypotheses.sampling import LOG_SOFTMAX_BFLOAT16
from rounddiag.proof.scorer import Scorer, StoppedError
from rounddiag.proof.scores import ScoreTable, scale_residuals
from rounddiag.proof.trajectory import read_scores

_SHIFTS = (-2, -1, 1, 2)
_LEAST_FILLED = 6
_LEAST_ROUNDED = 20
_LOG_SOFTMAX = Hypothesis(
    name="log_softmax_bfloat16",
    cause="low_precision",
    says="the log-softmax in bfloat16",
    processor=LOG_SOFTMAX_BFLOAT16,
    needs=frozenset({"logits"}),
)


def column_scores(
    scorer: Scorer, table: ScoreTable, engine: str, samples: Sequence[int]
) -> Iterator[tuple[Hypothesis, Array]]:
    """Yield hypotheses about a column, with the log-probs that follow from the base."""
    for shift in _SHIFTS:
        direction = "later" if shift > 0 else "earlier"
        one = Hypothesis(
            name=f"shifted_by_{shift}",
            cause="shifted_log_probs",
            says=f"log-probs of the token {abs(shift)} {direction}",
        )
        yield one, _shift(table, shift)
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        one = Hypothesis(
            name=f"stored_in_{name}",
            cause="low_precision",
            says=f"log-probs rounded to {name}",
        )
        yield one, torch.from_numpy(table.base).to(dtype).double().numpy()
    if "logits" in scorer.engine.abilities and _is_bfloat16(table.engines[engine]):
        with suppress(StoppedError):
            yield _LOG_SOFTMAX, scorer.column((_LOG_SOFTMAX,), samples)
    filled = _fill(table, engine)
    if filled is not None:
        value, scores = filled
        one = Hypothesis(
            name="filled",
            cause="filled_log_probs",
            says=f"the value {value:.6g} in place of log-probs",
        )
        yield one, scores
    exchanged = _exchange_rows(scorer, table, engine, samples)
    if exchanged is not None:
        one = Hypothesis(
            name="other_row",
            cause="swapped_rows",
            says="log-probs of another row",
        )
        yield one, exchanged


def _is_bfloat16(values: Array) -> bool:
    """Return whether all values are numbers of bfloat16: no sound engine's are."""
    known = torch.from_numpy(values[np.isfinite(values)])
    rounded = known.bfloat16().double()
    return len(known) >= _LEAST_ROUNDED and bool((known == rounded).all())


def _shift(table: ScoreTable, shift: int) -> Array:
    found = np.full(len(table), np.nan)
    if len(table) > abs(shift):
        source = np.arange(len(table)) + shift
        inside = (source >= 0) & (source < len(table))
        inside[inside] &= table.sample[source[inside]] == table.sample[inside]
        found[inside] = table.base[source[inside]]
    return found


def _fill(table: ScoreTable, engine: str) -> tuple[float, Array] | None:
    """Return the value that many tokens share exactly, and the column with it."""
    truth = table.engines[engine]
    far = np.abs(scale_residuals(table.base - truth, table.spread)) > 20 * table.floor
    values, counts = np.unique(truth[far & np.isfinite(truth)], return_counts=True)
    if not len(values) or counts.max() < max(_LEAST_FILLED, 0.2 * far.sum()):
        return None
    value = float(values[counts.argmax()])
    return value, np.where(truth == value, value, table.base)


def _exchange_rows(
    scorer: Scorer, table: ScoreTable, engine: str, samples: Sequence[int]
) -> Array | None:
    """Return, for samples that another row explains, that row of another engine."""
    other = next((name for name in scorer.engines if name != engine), None)
    if other is None:
        return None
    batch = scorer.batch
    rows = {}
    for row in range(batch.num_samples):
        begin, size = int(batch.offsets[row]), int(batch.lengths[row])
        part = slice(begin, begin + size)
        mask = batch.response_mask[part] != 0
        rows[row] = batch.log_probs(other)[part][mask].cpu().double().numpy()
    found = np.full(len(table), np.nan)
    for sample in samples:
        mine = table.sample == sample
        truth = read_scores(batch, engine, scorer.samples[sample])
        truth = truth[scorer.is_inside(sample)]
        if not np.isfinite(truth).any():
            continue
        own = np.nanmean(np.minimum(np.abs(table.base[mine] - truth), 1))
        best: tuple[float, Array] | None = None
        for row, values in rows.items():
            size = min(len(values), len(truth))
            both = np.isfinite(values[:size]) & np.isfinite(truth[:size])
            if row == sample or both.sum() < _LEAST_FILLED:
                continue
            left = np.nanmean(np.minimum(np.abs(values[:size] - truth[:size]), 1))
            if best is None or left < best[0]:
                padded = np.full(len(truth), np.nan)
                padded[:size] = values[:size]
                best = float(left), padded
        if best is not None and best[0] < 0.1 * own:
            found[mine] = best[1]
    return None if np.isnan(found).all() else found
