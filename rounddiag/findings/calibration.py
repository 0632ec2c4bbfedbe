"""From the score of a detector to the confidence of a finding."""

from __future__ import annotations

from bisect import bisect_right

# (score, confidence) by cause or stage, rising; made by `tests/faults` on the half that
# thresholds were set on.
TABLE: dict[str, tuple[tuple[float, float], ...]] = {}


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
