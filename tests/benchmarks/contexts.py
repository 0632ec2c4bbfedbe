"""Memory and time of rows that are steps: joining them, and the context of a round.

128 trajectories of 50 steps; a row has 7,340 tokens: system text, the text of the last
nine steps around the last five screenshots of 1,200 image tokens. Run

    python -m tests.benchmarks.contexts [TRAJECTORIES]
"""

from __future__ import annotations

import gc
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rounddiag import Batch
from rounddiag.batch.trajectories import join_rows
from rounddiag.vision import PatchScreenshot

NUM_STEPS, NUM_WRITTEN, STEP_TOKENS = 50, 40, 130
PICTURE_TOKENS, PICTURES, HISTORY = 1200, 5, 9
PAD = 5


def memory() -> float:
    """Return the resident memory of this process, in GB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e9


def patches(number: int) -> torch.Tensor:
    """Return pixels that tell a picture apart; few, to measure the contexts alone."""
    return torch.full((4, 8), float(number))


def rows_of(rng: np.random.Generator) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return prompt and response of each step of a trajectory."""
    system = rng.integers(10, 150_000, 400)
    rows: list[tuple[torch.Tensor, torch.Tensor]] = []
    steps = rng.integers(10, 150_000, (NUM_STEPS, STEP_TOKENS))
    for step in range(NUM_STEPS):
        text = steps[max(0, step + 1 - HISTORY) : step + 1].ravel()
        parts = [system, text[: len(text) // 2]]
        for shown in range(max(0, step + 1 - PICTURES), step + 1):
            parts += [np.array([3]), np.full(PICTURE_TOKENS, PAD), steps[shown, :20]]
        prompt = np.concatenate([*parts, text[len(text) // 2 :]])
        rows.append((torch.from_numpy(prompt), torch.from_numpy(steps[step, :40])))
    return rows


def screenshots(
    trajectory: int, step: int, prompt: torch.Tensor
) -> tuple[PatchScreenshot, ...]:
    """Return the screenshots in a prompt."""
    starts = np.flatnonzero(np.diff((prompt.numpy() == PAD) * 1, prepend=0) == 1)
    first = trajectory * NUM_STEPS + max(0, step + 1 - PICTURES)
    return tuple(
        PatchScreenshot(
            patches=partial(patches, first + index),
            grid_thw=(1, 60, 80),
            position=start - len(prompt),
        )
        for index, start in enumerate(starts.tolist())
    )


def build(num_trajectories: int) -> Batch:
    """Return the batch of all rows, as a file gives it."""
    rng = np.random.default_rng(0)
    places = [(t, step) for t in range(num_trajectories) for step in range(NUM_STEPS)]
    rows = [row for _ in range(num_trajectories) for row in rows_of(rng)]
    ones = torch.ones(NUM_WRITTEN)
    return Batch.from_rows(
        response_ids=[response for _, response in rows],
        response_mask=[ones.byte()] * len(rows),
        rollout_log_probs=[-ones] * len(rows),
        old_log_probs=[-ones] * len(rows),
        prompt_ids=[prompt for prompt, _ in rows],
        images=tuple(
            screenshots(*place, prompt)
            for place, (prompt, _) in zip(places, rows, strict=True)
        ),
        sample_columns={
            "traj_uid": np.array([t for t, _ in places]),
            "step_idx": np.array([step for _, step in places]),
        },
    )


def main() -> None:
    """Print the figures."""
    num_trajectories = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    before = memory()
    rows = build(num_trajectories)
    gc.collect()
    print(f"{len(rows):,} rows: {memory() - before:.2f} GB")
    start = time.process_time()
    joined = join_rows(rows, "traj_uid")
    print(f"joined in {time.process_time() - start:.1f} s of CPU")
    num_prompt = 0 if rows.prompt_ids is None else len(rows.prompt_ids)
    num_ids = rows.num_positions + num_prompt
    print(f"{joined.num_positions:,} positions of {num_ids:,} ids")
    del rows
    gc.collect()
    print(f"{len(joined)} samples: {memory() - before:.2f} GB")
    for name, places in (
        ("the first of a sample", [(at % len(joined), 25) for at in range(100)]),
        ("the next round", [(0, at % NUM_STEPS) for at in range(100)]),
    ):
        start = time.process_time()
        for place in places:
            joined.context(*place)
        mean = 1000 * (time.process_time() - start) / len(places)
        print(f"context, {name}: {mean:.2f} ms of CPU")


if __name__ == "__main__":
    main()
