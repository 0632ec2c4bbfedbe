"""Two faults at once: both passes changed, or a pass and the arrays after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.faults import arrays
from tests.faults.rows import Array, Rows
from tests.faults.store import broken_rows
from tests.faults.truth import CAUSES


@dataclass(frozen=True)
class Pair:
    """Faults of passes, whose effects on old log-probs add up, and faults of arrays."""

    kind: str
    passes: tuple[str, ...]
    arrays: tuple[str, ...]

    @property
    def causes(self) -> tuple[str, ...]:
        """Both causes."""
        real = [CAUSES[name] for name in self.passes]
        return (*real, *(arrays.FAULTS[name][0] for name in self.arrays))


PAIRS = [
    Pair("dense", ("temperature",), ("shifted_rows",)),  # ms-swift PR 8196
    Pair("dense", ("temperature", "stale_weights"), ()),
    Pair("dense", ("temperature",), ("copied_rows",)),
    Pair("dense", ("stale_weights",), ("filled_tails",)),
    Pair("dense", ("stale_weights",), ("mask_on_observations",)),
    Pair("dense", ("stale_weights",), ("bad_worker",)),
    Pair("dense", ("mixed_weights",), ("filled_ends",)),
    Pair("dense", ("observations_masked",), ("filled_tails",)),
    Pair("dense", ("packing_leak", "temperature"), ()),
    Pair("dense", ("top_p",), ("shifted_rows",)),
    Pair("dense", ("penalty",), ("swapped_rows",)),
    Pair("dense", (), ("coarse_values", "shifted_rows")),
    Pair("dense", (), ("swapped_rows", "mask_on_observations")),
    Pair("dense", (), ("filled_tails", "mask_punched")),
    Pair("dense", (), ("bad_worker", "shifted_tails")),
    Pair("vision", ("window_2", "temperature"), ()),
    Pair("vision", ("window_2",), ("filled_tails",)),
    Pair("vision", ("wrong_pictures",), ("shifted_tails",)),
    Pair("vision", ("plain_places",), ("swapped_rows",)),
    Pair("moe", ("router_noise",), ("filled_tails",)),
]


def build(
    pair: Pair, folder: Path, pools: dict[str, Rows], severity: str
) -> Rows | None:
    """Return rows with both faults; None where a fault is not in the cache."""
    rng = np.random.default_rng([*f"{folder.name} {pair} {severity}".encode()])
    rows = pools["bf16"].take(range(min(48, len(pools["bf16"]))))
    base, base_entropy = rows.old, rows.entropy
    for name in pair.passes:
        label = f"{name}.{severity}"
        if not (folder / f"{label}.npz").exists():
            return None
        broken = broken_rows(folder, label)
        if name in ("top_p", "penalty"):  # tokens of its own
            rows, base, base_entropy = broken, broken.old, broken.entropy
            continue
        old = [
            _moved(values, before, after)
            for values, before, after in zip(rows.old, base, broken.old, strict=False)
        ]
        # The engine that scores reports the entropy of what it scores with.
        entropy = [
            np.maximum(values + after - before, 0.0)
            for values, before, after in zip(
                rows.entropy, base_entropy, broken.entropy, strict=False
            )
        ]
        rows = replace(rows, old=old, entropy=entropy)
    for name in pair.arrays:
        rows = arrays.FAULTS[name][1](rows, rng, "clear")
    return rows


def _moved(values: Array, before: Array, after: Array) -> Array:
    """Add the effect of a fault to log-probs that another fault has changed.

    The log-odds add up: sums of log-probs would pass 0, and cut off there would be the
    exact values that a fill leaves.
    """
    odds = _log_odds(values) + _log_odds(after) - _log_odds(before)
    return np.asarray(-np.logaddexp(0.0, -odds), np.float32)


def _log_odds(values: Array) -> Array:
    log_probs = np.minimum(values.astype(float), -1e-7)
    return np.asarray(log_probs - np.log(-np.expm1(log_probs)))
