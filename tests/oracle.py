"""Plain float64 loops: what the fast code must equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]


def rounds_of(mask: Sequence[float]) -> list[list[int]]:
    """Positions of each maximal run of nonzero values."""
    rounds: list[list[int]] = []
    for position, value in enumerate(mask):
        if value and (position == 0 or not mask[position - 1]):
            rounds.append([])
        if value:
            rounds[-1].append(position)
    return rounds


def k3(difference: float) -> float:
    if abs(difference) < 1e-2:
        return sum(difference**n / math.factorial(n) for n in range(2, 9))
    return math.exp(difference) - 1 - difference


# A token's value by its diff: every metric of `schema.METRICS` except `prob_diff`.
OF_DIFF: dict[str, Callable[[float], float]] = {
    "abs_diff": abs,
    "diff": float,
    "k1": lambda d: -d,
    "k2": lambda d: d * d / 2,
    "k3": k3,
    "chi2": lambda d: math.exp(2 * min(max(d, -20), 20)) - 1,
    "beyond": lambda d: float(math.exp(d) > 2 or math.exp(d) < 0.5),
    "share_equal": lambda d: float(d == 0),
    "clip_share": lambda d: float(math.exp(d) < 0.8 or math.exp(d) > 1.2),
    "train_rollout_logprob_abs_diff": abs,
    "mismatch_kl": k3,
    "token_mult_prob_error": lambda d: math.exp(abs(d)),
}
OWN_WEIGHT = {
    **dict.fromkeys(("round_length", "round_seconds"), "sample"),
    **dict.fromkeys(("round_reward", "round_change"), "sample"),
    "train_rollout_logprob_abs_diff": "sample",
    "mismatch_kl": "token",
    "token_mult_prob_error": "token",
}


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def round_rows(mask: Any, old: Any, rollout: Any) -> list[Row]:
    """Rows of the round frame, from nested lists."""
    rows = []
    for sample, (marks, a, b) in enumerate(zip(mask, old, rollout, strict=True)):
        for index, positions in enumerate(rounds_of(marks)):
            diffs = [a[p] - b[p] for p in positions]
            finite = [d for d in diffs if math.isfinite(d)]
            rows.append(
                {
                    "sample": sample,
                    "round": index,
                    "start": positions[0],
                    "num_tokens": len(diffs),
                    "num_nonfinite": len(diffs) - len(finite),
                    "mean_abs_diff": mean([abs(d) for d in finite]),
                    "mean_diff": mean(finite),
                    "max_abs_diff": max((abs(d) for d in finite), default=math.nan),
                    "k3": mean([k3(d) for d in finite]),
                }
            )
    return rows


def token_rows(mask: Any, old: Any, rollout: Any) -> list[tuple[int, int, int, float]]:
    """Rows of the token frame: sample, round, token, diff."""
    return [
        (sample, index, token, a[p] - b[p])
        for sample, (marks, a, b) in enumerate(zip(mask, old, rollout, strict=True))
        for index, positions in enumerate(rounds_of(marks))
        for token, p in enumerate(positions)
    ]


def metrics(mask: Any, old: Any, rollout: Any) -> dict[str, float]:
    """verl's scalars for finite log-probs and at least two generated tokens."""
    rows = list(zip(mask, old, rollout, strict=True))
    pairs = [
        (o, r) for marks, a, b in rows for m, o, r in zip(marks, a, b, strict=True) if m
    ]
    x = [math.exp(o) for o, _ in pairs]
    y = [math.exp(r) for _, r in pairs]
    gaps = [abs(p - q) for p, q in zip(x, y, strict=True)]
    diffs = [o - r for o, r in pairs]
    count = len(pairs) + 1e-8

    def row_mean(marks: Any, values: Any) -> float:
        chosen = [v for m, v in zip(marks, values, strict=True) if m]
        return math.fsum(chosen) / (len(chosen) + 1e-8)

    def clipped(value: float) -> float:
        return min(max(value, -20.0), 20.0)

    training = [-row_mean(marks, a) for marks, a, _ in rows]
    sampling = [-row_mean(marks, b) for marks, _, b in rows]
    differences = [t - s for t, s in zip(training, sampling, strict=True)]
    sums = [
        math.fsum(o - r for m, o, r in zip(marks, a, b, strict=True) if m)
        for marks, a, b in rows
    ]
    return {
        "training/rollout_probs_diff_valid": 1,
        "training/rollout_probs_diff_max": max(gaps),
        "training/rollout_probs_diff_mean": mean(gaps),
        "training/rollout_probs_diff_std": _covariance(gaps, gaps) ** 0.5,
        "training/rollout_actor_probs_pearson_corr": _covariance(x, y)
        / (_covariance(x, x) * _covariance(y, y)) ** 0.5,
        "rollout_corr/training_ppl": mean([math.exp(t) for t in training]),
        "rollout_corr/training_log_ppl": mean(training),
        "rollout_corr/kl": math.fsum(-d for d in diffs) / count,
        "rollout_corr/k3_kl": math.fsum(k3(d) for d in diffs) / count,
        "rollout_corr/rollout_ppl": mean([math.exp(s) for s in sampling]),
        "rollout_corr/rollout_log_ppl": mean(sampling),
        "rollout_corr/log_ppl_diff": mean(differences),
        "rollout_corr/log_ppl_abs_diff": mean([abs(d) for d in differences]),
        "rollout_corr/log_ppl_diff_max": max(differences),
        "rollout_corr/log_ppl_diff_min": min(differences),
        "rollout_corr/ppl_ratio": mean([math.exp(d) for d in differences]),
        "rollout_corr/chi2_token": math.fsum(math.exp(clipped(d)) ** 2 for d in diffs)
        / count
        - 1,
        "rollout_corr/chi2_seq": mean([math.exp(2 * clipped(s)) for s in sums]) - 1,
        **_per_round(mask, old, rollout),
    }


def _per_round(mask: Any, old: Any, rollout: Any) -> dict[str, float]:
    sizes: dict[int, list[float]] = {}
    for _, index, _, difference in token_rows(mask, old, rollout):
        sizes.setdefault(index, []).append(abs(difference))
    found: dict[str, float] = {"per_round/total_rounds": len(sizes)}
    for index, values in sizes.items():
        found[f"per_round/round_{index}_abs_diff_mean"] = mean(values)
        found[f"per_round/round_{index}_token_count"] = len(values)
    worst = max(sizes, key=lambda index: (mean(sizes[index]), -index))
    found["per_round/max_round_diff"] = worst
    found["per_round/max_diff_value"] = mean(sizes[worst])
    return found


def _covariance(x: Sequence[float], y: Sequence[float]) -> float:
    mx, my = mean(x), mean(y)
    terms = [(a - mx) * (b - my) for a, b in zip(x, y, strict=True)]
    return math.fsum(terms) / (len(x) - 1)
