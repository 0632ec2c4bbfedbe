"""Makes the trajectories that the bench cuts its batches from.

    python -m tests.faults.make                  all agents
    python -m tests.faults.make dense-tune-0     one

Needs transformers. Agents and trajectories go to `tests/faults/cache`; what is there
already is kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from tests.faults.healthy import pools
from tests.faults.injections import variants
from tests.faults.models import load_agent
from tests.faults.store import CACHE, HALVES

AGENTS = [
    f"{kind}-{half}"
    for halves in HALVES.values()
    for half in halves
    for kind in ("dense", "vision", "moe")
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", default=AGENTS)
    parser.add_argument("--only", help="the variants whose name contains this")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in options.agents:
        make(name, options.only)
    return 0


def make(name: str, only: str | None) -> None:
    """Make the pools and the variants of one agent."""
    began = time.process_time()
    agent = load_agent(name)
    print(f"{name}: trained, {time.process_time() - began:.0f} s", flush=True)
    folder = CACHE / name
    base = pools(agent, folder)
    print(f"{name}: sampled, {time.process_time() - began:.0f} s", flush=True)
    for label, build in variants(base):
        path = folder / f"{label}.npz"
        if path.exists() or (only is not None and only not in label):
            continue
        start = time.process_time()
        rows, ratio = build()
        replace(rows, shots=[]).save(path)
        seconds = time.process_time() - start
        print(f"  {label}: {ratio:.1f} x, {seconds:.1f} s", flush=True)
    print(f"{name}: done, {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
