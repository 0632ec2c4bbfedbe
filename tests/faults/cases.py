"""The batches of the bench: rows of the cache, cut and dressed in many ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

import rounddiag as rd
from tests.faults import arrays
from tests.faults.rows import OPTIONAL, Rows, to_batch
from tests.faults.severity import is_weaker, ratio, severity_of
from tests.faults.store import CACHE, HALVES, broken_rows
from tests.faults.truth import CAUSES

SIZES = (16, 24, 32, 64, 128, 256)
ONE_ROUND = {
    "filled_log_probs", "shifted_log_probs", "swapped_rows", "padding_rows",
    "identical_log_probs", "outlier_tokens", "low_precision", "bad_worker",
    "temperature", "truncated_sampling", "logit_processor", "stale_weights",
    "sync_broken", "model_mismatch", "moe_routing", "mask_punched",
}  # fmt: skip
"""Causes that show in a first round too."""
GRIDS = {"bfloat16_head"}
"""Faults that leave exact signs and hardly any mismatch."""
META = {"sampling": {"dtype": "bfloat16", "temperature": 1.0, "top_p": 1.0}}
ROUTED = {**META, "model": {"model_type": "qwen3_moe"}}
EIGHT_BIT = {"sampling": {**META["sampling"], "quantization": "fp8"}}
"""Weights in 8 bits are other weights: a file has to say that they are meant to be."""


@dataclass(frozen=True)
class Case:
    """One batch, what is wrong with it, and how `rd.diagnose` is called."""

    name: str
    split: str
    causes: tuple[str, ...]
    severity: str
    rows: Rows
    columns: frozenset[str]
    ratio: float = np.nan
    healthy: Rows | None = None
    call: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def batch(self) -> rd.Batch:
        """Return the batch."""
        return to_batch(self.rows, self.columns, **self.meta)

    def arguments(self) -> dict[str, Any]:
        """Return what `rd.diagnose` gets beside the batch."""
        if self.healthy is None:
            return self.call
        healthy = to_batch(self.healthy, self.columns, **self.meta)
        return {**self.call, "healthy": healthy}


def cases(split: str, only: str | None = None) -> Iterator[Case]:
    """Yield every case of a half."""
    names = HALVES[split]
    folders = [one for name in names for one in CACHE.glob(f"*-{name}")]
    for folder in sorted(folders):
        pools = {
            path.stem.removeprefix("healthy."): Rows.load(path)
            for path in sorted(folder.glob("healthy.*.npz"))
        }
        if not pools:
            continue
        if only in (None, "healthy"):
            yield from healthy_cases(folder.name, split, pools)
        yield from _array_cases(folder.name, split, pools, only)
        yield from _real_cases(folder, split, pools, only)
        if only in (None, "batch_shape"):
            yield from _batch_shape_cases(folder.name, split, pools)


def healthy_cases(agent: str, split: str, pools: dict[str, Rows]) -> Iterator[Case]:
    """Yield sound batches: many sizes, one round, odd but harmless ones."""
    for base, rows in pools.items():
        rng = np.random.default_rng([*f"healthy {agent} {base}".encode()])
        for number in range(12):
            if number < 8:
                size = (8, 16, 32, 64, 128, 24, 16, 48)[number]
                part = _part(rows, rng, size)
                part = part.first_round() if number in (4, 6) else part
            else:
                part = _odd(_part(rows, rng, 32), number, rng)
            yield Case(
                f"{agent}/healthy.{base}.{number}",
                split,
                ("healthy",),
                base,
                part,
                _columns(rng),
                1.0,
                meta=_meta(agent, base, rng),
            )


def _meta(agent: str, base: str, rng: Generator) -> dict[str, Any]:
    if base == "fp8":
        return EIGHT_BIT
    known = ROUTED if agent.startswith("moe") else META
    return known if rng.random() < 0.5 else {}


def _odd(rows: Rows, number: int, rng: Generator) -> Rows:
    """Return sound rows that look unusual."""
    if number == 8:  # rows in any order
        return rows.take(rng.permutation(len(rows)).tolist())
    if number == 9:  # very short answers
        return rows.cut([min(len(one), 6) for one in rows.ids])
    if number == 10:  # cut at a length limit, as long rows are
        limit = int(np.quantile([len(one) for one in rows.ids], 0.5))
        return rows.cut([min(len(one), limit) for one in rows.ids])
    # One group dominates.
    return rows.take([*range(len(rows)), *range(4, 8)][: len(rows)])


def _array_cases(
    agent: str, split: str, pools: dict[str, Rows], only: str | None
) -> Iterator[Case]:
    bases = [name for name in ("bf16", "fp8", "both_bf16", "fp32") if name in pools]
    for name, (cause, fault) in arrays.FAULTS.items():
        if only not in (None, cause):
            continue
        for severity in arrays.SHARE:
            for number in range(2):
                label = f"{agent}/{name}.{severity}.{number}"
                rng = np.random.default_rng([*label.encode()])
                base = bases[int(rng.integers(len(bases)))]
                healthy = _sized(pools[base], rng, cause)
                broken = fault(healthy, rng, severity)
                yield Case(
                    label,
                    split,
                    (cause,),
                    severity,
                    broken,
                    _columns(rng, cause),
                    meta=_meta(agent, base, rng),
                )


def _real_cases(
    folder: Path, split: str, pools: dict[str, Rows], only: str | None
) -> Iterator[Case]:
    for path in sorted(folder.glob("*.npz")):
        fault, severity, *_ = path.stem.split(".")
        if fault == "healthy" or only not in (None, CAUSES[fault]):
            continue
        cause = CAUSES[fault]
        broken = broken_rows(folder, path.stem)
        base = pools["bf16"]
        for number in range(2):
            label = f"{folder.name}/{fault}.{severity}.{number}"
            rng = np.random.default_rng([*label.encode()])
            chosen = _choice(len(broken), rng, int(rng.choice(SIZES)))
            rows = broken.take(chosen)
            is_paired = all(
                np.array_equal(broken.ids[i], base.ids[i]) for i in chosen[:3]
            )
            if is_paired:
                before = base.take(chosen)
                if cause in ONE_ROUND and rng.random() < 0.25:
                    rows, before = rows.first_round(), before.first_round()
                value = ratio(before, rows)
            else:  # tokens of its own
                value = rows.mean_abs_diff() / base.mean_abs_diff()
            found = severity_of(value)
            if fault in GRIDS:  # exact, however small
                found = "clear" if severity == "clear" else None
            if found is None or is_weaker(found, severity):
                continue  # between the bands, or as large as the fault can be
            healthy = None
            if rng.random() < 0.25:
                others = [i for i in range(len(base)) if i not in chosen]
                healthy = base.take(others[:32] or range(16))
            yield Case(
                label,
                split,
                (cause,),
                found,
                rows,
                _columns(rng, cause),
                value,
                healthy,
                meta=_meta(folder.name, "bf16", rng),
            )


def _batch_shape(exact: Rows, half: Rows, factor: float) -> Rows:
    """Return a second score that differs by rounding, on some ranks only."""
    count = len(half)
    rows = exact.take(range(count))
    ranks = np.arange(count) * 4 // count
    current = [
        np.minimum(old + factor * (half.old[i] - old) * (ranks[i] in (1, 2)), 0)
        for i, old in enumerate(rows.old)
    ]
    return replace(rows, current=current, sample_columns={"rank": ranks})


def _batch_shape_cases(
    agent: str, split: str, pools: dict[str, Rows]
) -> Iterator[Case]:
    if not {"bf16", "both_bf16"} <= set(pools):
        return
    for severity, factor in (("just_visible", 0.2), ("clear", 1.0), ("gross", 5.0)):
        rows = _batch_shape(pools["bf16"], pools["both_bf16"], factor)
        for number, columns in enumerate((frozenset({"ranks"}), frozenset({"groups"}))):
            if number:
                rows = replace(rows, sample_columns={})
            yield Case(
                f"{agent}/batch_shape.{severity}.{number}",
                split,
                ("batch_shape",),
                severity,
                rows,
                columns,
                call={"a": "current", "b": "old"},
            )


def _part(rows: Rows, rng: Generator, size: int) -> Rows:
    return rows.take(_choice(len(rows), rng, size))


def _choice(total: int, rng: Generator, size: int) -> list[int]:
    """Choose neighbouring rows in whole groups of four."""
    size = min(size, total)
    first = 4 * int(rng.integers(0, (total - size) // 4 + 1))
    return list(range(first, first + size))


def _sized(rows: Rows, rng: Generator, cause: str) -> Rows:
    part = _part(rows, rng, int(rng.choice(SIZES)))
    if cause in ONE_ROUND and rng.random() < 0.2:
        return part.first_round()
    return part


def _columns(rng: Generator, cause: str = "") -> frozenset[str]:
    """Draw which optional columns the batch has."""
    found = {name for name in OPTIONAL if rng.random() < 0.5}
    if cause != "position_ids":
        found.discard("places")
    return frozenset(found)
