"""CPU seconds of `rd.diagnose`: 295,000 and 2 million tokens, and the same batch again.

python -m tests.benchmarks.diagnose
"""

from __future__ import annotations

import os
import time

import torch

import rounddiag as rd
from tests.batches import padded, random_log_probs

SHAPES = ((128, 3072), (256, 10_240))
ROUND, GAP = 96, 32


def main() -> None:
    torch.set_num_threads(1)
    rd.diagnose(rd.demo())  # imports
    print(f"load {os.getloadavg()[0]:.1f}")
    for shape in SHAPES:
        rollout = random_log_probs(shape, 0)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        old = torch.clamp(rollout + 0.01 * noise, max=0)
        mask = (torch.arange(shape[1]) % (ROUND + GAP) < ROUND).repeat(shape[0], 1)
        batch = padded(mask, old, rollout)
        seconds = []
        for _ in range(2):  # the diagnosis is kept with the batch
            began = time.process_time()
            rd.diagnose(batch)
            seconds.append(time.process_time() - began)
        first, again = seconds
        tokens = f"{int(mask.sum()):,} tokens"
        print(f"{tokens}: {first:.2f} CPU s, again {again:.4f}")


if __name__ == "__main__":
    main()
