"""Faults of the sampling engine: its tokens are drawn anew, from what it believes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from tests.faults import engine, heads
from tests.faults.engine import Head
from tests.faults.pools import Pool, make_pool
from tests.faults.rows import Rows

COUNT = 24
SETTINGS: dict[str, tuple[Callable[[float], Head], dict[str, float]]] = {
    "drawn_tempered": (heads.tempered, {"clear": 0.6, "gross": 0.3}),
    "top_p": (heads.nucleus, {"just_visible": 0.97, "clear": 0.8}),
    "top_k": (lambda k: heads.best(round(k)), {"clear": 6}),
    "penalty": (heads.repetition, {"just_visible": 1.02, "clear": 1.1, "gross": 1.5}),
}


def variants(base: Pool) -> Iterator[tuple[str, Callable[[], tuple[Rows, float]]]]:
    """Yield a label `fault.severity` and how to make its rows."""
    for name, (make_head, values) in SETTINGS.items():
        for severity, value in values.items():
            if base.agent.kind != "dense":
                continue
            seed = int(np.random.default_rng([*name.encode()]).integers(2**31))
            yield f"{name}.{severity}", _builder(base, make_head(value), seed)


def _builder(base: Pool, head: Head, seed: int) -> Callable[[], tuple[Rows, float]]:
    def build() -> tuple[Rows, float]:
        net = engine.precise(base.weights, torch.bfloat16)
        how = engine.Sampling([(0, net)], seed, drawn=head, recorded=head)
        pool = make_pool(base.agent, base.weights, how, COUNT)
        return pool.rows, pool.rows.mean_abs_diff() / base.rows.mean_abs_diff()

    return build
