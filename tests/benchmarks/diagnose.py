"""Speed of `rd.diagnose` on batches of training size, with the load of the machine.

python -m tests.benchmarks.diagnose
"""

from __future__ import annotations

import os
from functools import partial
from timeit import repeat

import torch

import rounddiag as rd
from tests.batches import padded, random_log_probs

SHAPES = ((128, 8192), (512, 32768))
ROUND, GAP = 96, 32


def main() -> None:
    torch.set_num_threads(2)
    print(f"load {os.getloadavg()[0]:.1f}")
    for shape in SHAPES:
        rollout = random_log_probs(shape, 0)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        old = torch.clamp(rollout + 0.01 * noise, max=0)
        mask = (torch.arange(shape[1]) % (ROUND + GAP) < ROUND).repeat(shape[0], 1)
        batch = padded(mask, old, rollout)
        seconds = min(repeat(partial(rd.diagnose, batch), number=1, repeat=3))
        print("{} x {}".format(*shape), f"{seconds:7.2f} s")


if __name__ == "__main__":
    main()
