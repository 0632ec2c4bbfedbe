"""Log-probs that were moved, exchanged, rounded or filled: no pass of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.hypotheses.sampling import LOG_SOFTMAX_BFLOAT16
from rounddiag.proof.scorer import Scorer, StoppedError
from rounddiag.proof.scores import ScoreTable, scale_residuals

_SHIFTS = (-2, -1, 1, 2)  # tokens
_LEAST_FILLED = 6  # tokens with one value, or tokens that two samples share
_LEAST_ROUNDED = 20  # values that rounding leaves as they are
# Another row is tried where this part of |diff| is gone; the judge asks for the noise.
_LEAST_GONE = 0.5
_LOG_SOFTMAX = Hypothesis(
    name="log_softmax_bfloat16",
    cause="low_precision",
    says="the log-softmax in bfloat16",
    processor=LOG_SOFTMAX_BFLOAT16,
    needs=frozenset({"logits"}),
)


def column_scores(
    scorer: Scorer, table: ScoreTable, engine: str
) -> Iterator[tuple[Hypothesis, Array, Array | None]]:
    """Yield hypotheses about a column, with the log-probs that follow from the base.

    And tokens about which a hypothesis says nothing, if there are any.
    """
    for shift in _SHIFTS:
        direction = "later" if shift > 0 else "earlier"
        hypothesis = Hypothesis(
            name=f"shifted_by_{shift}",
            cause="shifted_log_probs",
            says=f"log-probs of the token {abs(shift)} {direction}",
        )
        yield hypothesis, _shift(table, shift), None
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        hypothesis = Hypothesis(
            name=f"stored_in_{name}",
            cause="low_precision",
            says=f"log-probs rounded to {name}",
        )
        yield hypothesis, torch.from_numpy(table.base).to(dtype).double().numpy(), None
    if "logits" in scorer.engine.abilities and _is_bfloat16(table.engines[engine]):
        with suppress(StoppedError):
            yield _LOG_SOFTMAX, scorer.column((_LOG_SOFTMAX,), table.stops), None
    filled = _fill(table, engine)
    if filled is not None:
        value, scores = filled
        hypothesis = Hypothesis(
            name="filled",
            cause="filled_log_probs",
            says=f"the value {value:.6g} in place of log-probs",
        )
        yield hypothesis, scores, None
    exchanged = _exchange_rows(scorer, table, engine)
    if exchanged is not None:
        hypothesis = Hypothesis(
            name="other_row", cause="swapped_rows", says="log-probs of another row"
        )
        yield hypothesis, *exchanged


def _is_bfloat16(values: Array) -> bool:
    known = torch.from_numpy(values[np.isfinite(values)])
    rounded = known.bfloat16().double()
    return len(known) >= _LEAST_ROUNDED and bool((known == rounded).all())


def _shift(table: ScoreTable, shift: int) -> Array:
    shifted = np.full(len(table), np.nan)
    if len(table) > abs(shift):
        source = np.arange(len(table)) + shift
        inside = (source >= 0) & (source < len(table))
        inside[inside] &= table.sample[source[inside]] == table.sample[inside]
        shifted[inside] = table.base[source[inside]]
    return shifted


def _fill(table: ScoreTable, engine: str) -> tuple[float, Array] | None:
    truth = table.engines[engine]
    far = np.abs(scale_residuals(table.base - truth, table.spread)) > 20 * table.floor
    values, counts = np.unique(truth[far & np.isfinite(truth)], return_counts=True)
    if not len(values) or counts.max() < max(_LEAST_FILLED, 0.2 * far.sum()):
        return None
    value = float(values[counts.argmax()])
    return value, np.where(truth == value, value, table.base)


def _exchange_rows(
    scorer: Scorer, table: ScoreTable, engine: str
) -> tuple[Array, Array] | None:
    """Return another engine's row for samples that it explains, and what is not known.

    Tokens are paired by their place in the response, as where rows of a padded tensor
    were exchanged, or by their order, as where lists of log-probs were. Where the other
    row is shorter there is padding, 0. Where its mask is 0, only its engine's own
    values would tell: if they are not 0, they are not known.
    """
    other = next((name for name in scorer.engines if name != engine), None)
    if other is None:
        return None
    batch = scorer.batch
    values = batch.log_probs(other).cpu().double().numpy()
    truths = batch.log_probs(engine).cpu().double().numpy()
    is_written = batch.response_mask.cpu().numpy() != 0
    begins = batch.offsets.cpu().numpy()
    values[~is_written] = np.nan
    rows = [
        (values[begin:end], is_written[begin:end])
        for begin, end in pairwise(begins.tolist())
    ]
    exchanged, unknown = np.full(len(table), np.nan), np.zeros(len(table), dtype=bool)
    for sample in table.stops:
        mine = table.sample == sample
        place, truth = table.at[mine] - begins[sample], truths[table.at[mine]]
        order = np.cumsum(rows[sample][1])[place] - 1
        own = np.minimum(np.abs(table.base[mine] - truth), 1)
        best = 0.0
        for number, (row, written) in enumerate(rows):
            for at, line in ((place, row), (order, row[written])):
                moved = np.zeros(len(at))
                moved[at < len(line)] = line[at[at < len(line)]]
                has_other = (at < len(line)) & np.isfinite(moved)
                moved[np.isnan(moved) & (truth == 0)] = 0
                left = np.minimum(np.abs(moved - truth), 1)
                both = np.isfinite(left) & np.isfinite(own)
                if number == sample or (both & has_other).sum() < _LEAST_FILLED:
                    continue
                gone = float(own[both].sum() - left[both].sum())
                if gone > max(best, _LEAST_GONE * own[both].sum()):
                    best, exchanged[mine], unknown[mine] = gone, moved, np.isnan(moved)
    return None if np.isnan(exchanged).all() else (exchanged, unknown)
