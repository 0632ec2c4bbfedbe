"""Time and memory of long lists of numbers in pickles, and of a pair of slime's files.

Each is read as it is, and once more with every number read by its own opcode; seconds
are the processor's. Usage:

    python -m tests.benchmarks.pickle_numbers [SAMPLES] [TOKENS]

Memory is read from /proc, so it runs on Linux only.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.source import Source
from tests.loaders.slime_writer import columns, rollout, samples_of, write_payload

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES, TOKENS = 128, 16_384
NUMBERS = 1_000_000
VOCABULARY = 152_064
MEASURE = """
import sys, time
import rounddiag as rd
from rounddiag.loaders.pickle.unpickler import PickleMachine

def most_megabytes():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024

rd.load  # imports torch
if sys.argv[2] == "one by one":
    PickleMachine.push_numbers = lambda machine: None
before = most_megabytes()
start = time.process_time()
batch = rd.load(sys.argv[1])
seconds = time.process_time() - start
assert batch.rollout_ids is not None, batch.meta
print(f"{sys.argv[2]}: {seconds:.2f} s, {most_megabytes() - before:.0f} MB, {batch!r}")
"""


class OneByOne(PickleMachine):
    """Reads every number by its own opcode."""

    def push_numbers(self) -> None:
        """Leave them."""


def items_a_second(
    machine: type[PickleMachine], numbers: list[object], protocol: int
) -> float:
    """Return how many items of a list are read in a second, at best of three."""
    stream = pickle.dumps(numbers, protocol)
    source = Source(path=Path("list.pkl"), size=len(stream), data=stream)

    def read() -> None:
        with source.whole().open() as opened:
            machine(source.whole(), opened).run()

    return len(numbers) / min(seconds(read) for _ in range(3))


def seconds(function: Callable[[], object]) -> float:
    """Return how long the processor takes for one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def lists() -> dict[str, list[object]]:
    """Return a list of each kind that slime stores."""
    generator = torch.Generator().manual_seed(0)
    return {
        "token ids": torch.randint(
            VOCABULARY, (NUMBERS,), generator=generator
        ).tolist(),
        "a mask": torch.randint(2, (NUMBERS,), generator=generator).tolist(),
        "log-probs": (-torch.rand(NUMBERS, generator=generator)).tolist(),
    }


def write_pair(folder: Path, num_samples: int, num_tokens: int) -> Path:
    """Write a rollout file of lists and its train file, and return the latter."""
    generator = torch.Generator().manual_seed(0)
    log_probs = -torch.rand(num_samples, num_tokens, generator=generator)
    ids = torch.randint(VOCABULARY, log_probs.shape, generator=generator)
    mask = (torch.arange(num_tokens) // 64 % 2 == 0).int().tolist()
    rollouts = [
        rollout(index // 8, index, row.tolist(), mask[1:], log_prob[1:].tolist())
        for index, (row, log_prob) in enumerate(zip(ids, log_probs, strict=True))
    ]
    write_payload(
        folder / "rollout_data" / "3.pt", {"rollout_id": 3, "samples": rollouts}
    )
    old_log_probs = [row[1:] * 1.01 for row in log_probs]
    trained = columns(rollouts, range(num_samples), old_log_probs)
    payload = {"format_version": 2, "rollout_id": 3, "samples": samples_of(trained, 0)}
    return write_payload(folder / "train_data" / "3.pt", payload)


def main() -> None:
    """Measure lists, then the pair of files in an interpreter of its own."""
    torch.set_num_threads(1)
    for name, numbers in lists().items():
        for protocol in (2, 4):
            at_once, one_by_one = (
                items_a_second(machine, numbers, protocol) / 1e6
                for machine in (PickleMachine, OneByOne)
            )
            print(
                f"{name}, protocol {protocol}: {at_once:.1f} M items/s,"
                f" one by one {one_by_one:.1f}"
            )
    num_samples, num_tokens = map(int, sys.argv[1:] or (SAMPLES, TOKENS))
    with tempfile.TemporaryDirectory() as folder:
        path = write_pair(Path(folder), num_samples, num_tokens)
        files = [file.stat().st_size for file in Path(folder).rglob("*.pt")]
        print(f"slime, {num_samples} x {num_tokens} tokens: {sum(files) / 1e6:.0f} MB")
        for how in ("at once", "one by one"):
            subprocess.run([sys.executable, "-c", MEASURE, str(path), how], check=True)


if __name__ == "__main__":
    main()
