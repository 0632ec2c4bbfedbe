"""Rows that are steps: the verdict is the same whether they are joined or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rounddiag import Batch, diagnose
from rounddiag.batch.trajectories import join_rows
from rounddiag.loaders.assembly.join_hint import with_join_hint

NUM_TRAJECTORIES, NUM_STEPS, NUM_TOKENS = 16, 8, 16


def step_rows(scale: np.ndarray[Any, Any]) -> Batch:
    """Rows whose |diff| has the mean `scale` of their step, in a balanced batch."""
    rng = np.random.default_rng(0)
    num = NUM_TRAJECTORIES * NUM_STEPS
    order = rng.permutation(num)
    trajectory, step = order // NUM_STEPS, order % NUM_STEPS
    rollout = -rng.exponential(0.7, (num, NUM_TOKENS)) - 0.05
    size = rng.exponential(scale[step][:, None], rollout.shape)
    old = rollout + size * rng.choice([-1, 1], rollout.shape)
    ids = rng.integers(100, 5000, (num, NUM_TOKENS))
    history: dict[tuple[int, int], list[int]] = {}
    for row in np.lexsort((step, trajectory)):
        before = history.get((trajectory[row], step[row] - 1), [])
        history[trajectory[row], step[row]] = [*before, *ids[row].tolist(), 7]
    prompts = [
        [1, *history.get((trajectory[row], step[row] - 1), [])] for row in range(num)
    ]
    return Batch.from_rows(
        response_ids=[torch.tensor(row) for row in ids],
        response_mask=[torch.ones(NUM_TOKENS)] * num,
        rollout_log_probs=[torch.tensor(row, dtype=torch.float32) for row in rollout],
        old_log_probs=[
            torch.tensor(np.minimum(row, 0), dtype=torch.float32) for row in old
        ],
        prompt_ids=[torch.tensor(row) for row in prompts],
        group_ids=tuple(f"task-{name // 4}" for name in trajectory),
        sample_columns={
            "traj_uid": np.array([f"traj-{name}" for name in trajectory], object),
            "step_idx": step,
            "prompt_length": np.array([*map(len, prompts)]),
        },
    )


GROWS = np.linspace(0.004, 0.008, NUM_STEPS)  # the noise of longer contexts


@pytest.mark.parametrize(
    ("scale", "verdict"),
    [
        (GROWS, "healthy"),
        (np.where(np.arange(NUM_STEPS) >= 6, 0.3, GROWS), "broken"),
        (np.where(np.arange(NUM_STEPS) >= 1, 0.03, GROWS), "suspicious"),
    ],
)
def test_rows_get_the_verdict_of_the_samples_that_they_make(
    scale: np.ndarray[Any, Any], verdict: str
) -> None:
    rows = with_join_hint(step_rows(scale))
    joined = join_rows(step_rows(scale), "traj_uid")

    assert len(joined) == NUM_TRAJECTORIES
    assert [diagnose(batch).verdict for batch in (rows, joined)] == [verdict] * 2
