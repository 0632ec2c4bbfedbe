"""A run in which a fault begins: step files of the trajectories of two batches."""

from dataclasses import replace
from pathlib import Path

import numpy as np

import rounddiag as rd

SEED = 0
# Its steps, the first with the fault, samples a step; of these, the longest ones that
# have screenshots.
STEPS, ONSET = range(0, 400, 10), 240
SAMPLES, SHOWN = 48, 2


def save_run(healthy: rd.Batch, image_window: rd.Batch, folder: Path) -> None:
    """Write the step files of a run in which older screenshots are dropped at a step.

    Each step has 48 of the 64 trajectories, drawn anew, so that steps differ by their
    samples. Up to step 230 they are scored as in `healthy`, from step 240 on as in
    `image_window`.
    """
    generator = np.random.default_rng(SEED)
    for step in STEPS:
        batch = image_window if step >= ONSET else healthy
        rows = np.sort(generator.choice(len(batch), SAMPLES, replace=False))
        drawn = batch[rows.tolist()]
        num_rounds = np.bincount(drawn.rounds.sample.numpy(), minlength=SAMPLES)
        shown = np.argsort(-num_rounds, kind="stable")[:SHOWN]
        images = [
            shots if sample in shown else ()
            for sample, shots in enumerate(drawn.images or ())
        ]
        # Of a batch that was read from a file, the file is not its origin.
        meta = {name: fact for name, fact in drawn.meta.items() if name != "source"}
        drawn = replace(drawn, step=step, images=tuple(images), meta=meta)
        rd.save(drawn, folder / f"step_{step}.parquet")
