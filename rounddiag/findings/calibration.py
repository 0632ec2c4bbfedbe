"""From the score of a detector to the confidence of a finding."""

from __future__ import annotations

from bisect import bisect_right

# (score, confidence) by cause or stage, rising: the share of first findings that were
# right on `tests/faults`, the agents `tune-0` and `test-0` pooled, 1,269 batches with a
# fault (2026-11-22). Between 0.6 and 0.8 the second half was 20 points below the first.
TABLE: dict[str, tuple[tuple[float, float], ...]] = {
    "exact": ((0.45, 0.4), (0.8, 0.8), (0.9, 0.95), (0.97, 0.985)),
    "fit": ((0.4, 0.3), (0.65, 0.64), (0.75, 0.72), (0.85, 0.87), (0.97, 0.97)),
    "place": ((0.63, 0.62), (0.72, 0.67), (0.8, 0.77), (0.9, 0.92), (0.95, 0.97)),
    "level": ((0.4, 0.4), (0.75, 0.72), (0.9, 0.92)),
}


def confidence(cause: str, stage: str, score: float) -> float:
    """Return the share of findings with such a score that were right on the bench.

    Examples
    --------
    >>> confidence("one_of_my_own", "none", 0.9)
    0.9
    """
    table = TABLE.get(cause) or TABLE.get(stage)
    if not table:
        return float(min(max(score, 0.0), 1.0))
    scores = [step[0] for step in table]
    at = bisect_right(scores, score)
    if at == 0:
        return table[0][1] * score / max(scores[0], 1e-9)
    if at == len(table):
        return table[-1][1]
    (low, first), (high, second) = table[at - 1], table[at]
    return first + (second - first) * (score - low) / (high - low)
