"""Healthy trajectories of an agent: sampled by one engine, scored by the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.faults import engine
from tests.faults.episodes import GROUP, Episode, draw_episodes
from tests.faults.models import Agent
from tests.faults.rows import STEP, Rows


@dataclass
class Pool:
    """Episodes with what the scoring engine reads of each, and both scores."""

    agent: Agent
    weights: Any
    episodes: list[Episode]
    contexts: list[engine.Context]
    rows: Rows

    @property
    def lengths(self) -> list[int]:
        """Numbers of tokens, prompts included."""
        return [len(one.ids) for one in self.episodes]

    def part(self, count: int) -> Pool:
        """Return the first episodes."""
        return Pool(
            self.agent,
            self.weights,
            self.episodes[:count],
            self.contexts[:count],
            self.rows.take(range(count)),
        )

    def rescored(self, scores: tuple[list[Tensor], list[Tensor]]) -> Rows:
        """Return the rows with other old log-probs and entropies."""
        old, entropy = responses(self.episodes, scores)
        changed = copy.copy(self.rows)
        return Rows(**{**vars(changed), "old": old, "entropy": entropy})


def responses(
    episodes: Sequence[Episode], scores: tuple[list[Tensor], list[Tensor]]
) -> tuple[list[Any], list[Any]]:
    """Cut scores of whole sequences down to the responses."""
    old, entropy = (
        [
            values[one.start :].float().numpy()
            for one, values in zip(episodes, part, strict=True)
        ]
        for part in scores
    )
    return old, entropy


def make_pool(agent: Agent, net: Any, how: engine.Sampling, count: int) -> Pool:
    """Let an agent act with one engine, and score what it wrote in float32."""
    episodes = draw_episodes(agent, count, how.seed)
    engine.sample(episodes, how)
    contexts = [engine.context(row, one) for row, one in enumerate(episodes)]
    scores = engine.score(net, contexts, [len(one.ids) for one in episodes])
    return Pool(agent, net, episodes, contexts, as_rows(episodes, contexts, scores))


def as_rows(
    episodes: Sequence[Episode],
    contexts: Sequence[engine.Context],
    scores: tuple[list[Tensor], list[Tensor]],
) -> Rows:
    """Return episodes and their scores as arrays."""
    rollout = []
    for one in episodes:
        values = np.zeros(len(one.ids), np.float32)
        values[list(one.log_probs)] = list(one.log_probs.values())
        rollout.append(values[one.start :])
    old, entropy = responses(episodes, scores)
    return Rows(
        ids=[np.array(one.ids[one.start :], np.int16) for one in episodes],
        mask=[np.array(one.mask[one.start :], np.int8) for one in episodes],
        rollout=rollout,
        old=old,
        entropy=entropy,
        prompt=[np.array(one.ids[: one.start], np.int16) for one in episodes],
        group=[f"task-{i // GROUP:03d}" for i in range(len(episodes))],
        reward=[float(one.status == "solved") for one in episodes],
        shots=[one.shots for one in episodes] if episodes[0].sees else [],
        places=[one.places.numpy().astype(np.int16) for one in contexts]
        if episodes[0].sees
        else [],
        version=[np.full(len(one.ids) - one.start, STEP, np.int16) for one in episodes],
    )


def eight_bit(net: Any) -> Any:
    """Return a bfloat16 copy whose matrices went through 8-bit floats, by row."""
    found = engine.precise(net, torch.bfloat16)
    for name, value in found.named_parameters():
        if value.ndim > 1 and "embed_tokens" not in name and "visual" not in name:
            scale = value.float().abs().amax(-1, keepdim=True).clamp(min=1e-6) / 448
            small = (value.float() / scale).to(torch.float8_e4m3fn).float()
            value.data = (small * scale).to(torch.bfloat16)
    return found
