"""Healthy runs of many kinds: the base of every fault, and the batches without one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import torch

from tests.faults import engine
from tests.faults.heads import tempered
from tests.faults.models import Agent
from tests.faults.pools import Pool, eight_bit, make_pool
from tests.faults.rows import Rows

SIZES = {"dense": 128, "moe": 64, "vision": 64}
BEHIND = 20
"""Healthy engines have the weights of so many steps before the end: a fault that needs
newer or older ones finds them on either side."""


def pools(agent: Agent, folder: Path) -> Pool:
    """Make the healthy rows that are missing; return the base pool."""
    weights = agent.older[BEHIND]
    net = engine.precise(agent.net, torch.float32, weights)
    base = _base(agent, net, folder)
    for name, build in _others(base).items():
        path = folder / f"healthy.{name}.npz"
        if not path.exists():
            build().save(path)
    return base


def _base(agent: Agent, net: object, folder: Path) -> Pool:
    path = folder / "base.pkl"
    if path.exists():
        with path.open("rb") as file:
            episodes, rows = pickle.load(file)  # noqa: S301 our own
        contexts = [engine.context(row, one) for row, one in enumerate(episodes)]
        return Pool(agent, net, episodes, contexts, rows)
    half = engine.precise(net, torch.bfloat16)
    pool = make_pool(agent, net, engine.Sampling([(0, half)], 0), SIZES[agent.kind])
    pool.rows.save(folder / "healthy.bf16.npz")
    with path.open("wb") as file:
        pickle.dump((pool.episodes, pool.rows), file)
    return pool


def _others(base: Pool) -> dict[str, Callable[[], Rows]]:
    """Return more healthy rows: other precisions, temperatures and weights."""
    agent, net = base.agent, base.weights
    half = engine.precise(net, torch.bfloat16)
    count = 24

    def both_half() -> Rows:
        part = base.part(48)
        return part.rescored(engine.score(half, part.contexts, part.lengths))

    def sampled(sampler: object, seed: int, scorer: object = net) -> Rows:
        how = engine.Sampling([(0, sampler)], seed)
        return make_pool(agent, scorer, how, count).rows

    def at_temperature(value: float, seed: int) -> Rows:
        head = tempered(value)
        how = engine.Sampling([(0, half)], seed, drawn=head, recorded=head)
        pool = make_pool(agent, net, how, count)
        scores = engine.score(net, pool.contexts, pool.lengths, head=head)
        return pool.rescored(scores)

    precisions: dict[str, Callable[[], Rows]] = {
        "both_bf16": both_half,
        "fp8": lambda: sampled(eight_bit(net), 11),
    }
    if agent.kind != "dense":
        return precisions
    younger = engine.precise(agent.net, torch.float32, agent.older[60])
    return {
        **precisions,
        "fp32": lambda: sampled(net, 12),
        "hot": lambda: at_temperature(1.5, 13),
        "cold": lambda: at_temperature(0.6, 14),
        "young": lambda: sampled(engine.precise(younger, torch.bfloat16), 15, younger),
    }
