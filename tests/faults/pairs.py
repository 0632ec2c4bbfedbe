"""Two faults at once: both passes changed, or a pass and the arrays after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tests.faults import arrays
from tests.faults.rows import Rows
from tests.faults.truth import CAUSES

if TYPE_CHECKING:
    from pathlib import Path


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
    base = rows.old
    for name in pair.passes:
        path = folder / f"{name}.{severity}.npz"
        if not path.exists():
            return None
        broken = Rows.load(path)
        if name in ("top_p", "penalty"):  # tokens of its own
            rows, base = broken, broken.old
            continue
        old = [
            np.minimum(values + after - before, 0.0)
            for values, after, before in zip(rows.old, broken.old, base, strict=False)
        ]
        rows = replace(rows, old=old)
    for name in pair.arrays:
        rows = arrays.FAULTS[name][1](rows, rng, "clear")
    return rows
