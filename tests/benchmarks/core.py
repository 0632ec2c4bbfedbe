"""Time the core against one copy of its inputs, and against the plain loop.

    python tests/benchmarks/core.py [--device cuda]

Checks the results first. `mc` is the time of one copy of the mask and both
log-probabilities, taken right before and after each stage; a figure is the best of
several runs. The plain loop runs over a few samples and is scaled to all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from rounddiag import Batch, round_frame, round_summary, token_frame
from rounddiag.core import round_and_token_frames, take_runs
from rounddiag.core.aggregation import run_quantiles
from rounddiag.core.sums import sum_rounds

REPEATS = 9
PATIENCE = 3.0  # seconds a stage, once it ran three times
NUM_ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a trainer holds: padded tensors."""

    mask: torch.Tensor
    old: torch.Tensor
    rollout: torch.Tensor

    def batch(self) -> Batch:
        """A new batch, so that nothing is remembered from the last run."""
        return Batch.from_padded(
            response_ids=self.mask,
            response_mask=self.mask,
            old_log_probs=self.old,
            rollout_log_probs=self.rollout,
        )


def make(
    num_samples: int, width: int, *, length: int | None = None, device: str = "cpu"
) -> Inputs:
    """40 % generated, in 8 rounds or in rounds of this mean length; heavy-tailed diffs.

    Rounds of length 1 are every second position: the worst case.
    """
    generator = np.random.default_rng(0)
    mask = torch.zeros(num_samples, width, dtype=torch.int64)
    if length == 1:
        mask[:, ::2] = 1
    elif length is None:
        length = int(0.4 * width / NUM_ROUNDS)
        for begin in range(width // 64, width, width // NUM_ROUNDS):
            mask[:, begin : begin + length] = 1
    else:
        for row in mask:
            begin = 0
            while begin < width:
                num = int(generator.integers(length // 2, 3 * length // 2 + 1))
                row[begin : begin + num] = 1
                begin += int(num / 0.4)
    old = -generator.exponential(1.0, mask.shape).astype(np.float32)
    noise = 0.004 * generator.standard_t(3, mask.shape).astype(np.float32)
    tensors = mask, torch.from_numpy(old), torch.from_numpy(old - noise)
    names = "mask", "old", "rollout"
    return Inputs(**{n: t.to(device) for n, t in zip(names, tensors, strict=True)})


def plain_loop(inputs: Inputs) -> dict[tuple[int, int], tuple[float, int]]:
    """Mean |diff| and count of each sample's rounds, one position at a time."""
    found: dict[tuple[int, int], tuple[float, int]] = {}
    for sample in range(len(inputs.mask)):
        index, total, count, inside = -1, 0.0, 0, False
        for position in range(inputs.mask.shape[1]):
            if inputs.mask[sample, position].item() != 1:
                inside = False
                continue
            if not inside:
                index, total, count, inside = index + 1, 0.0, 0, True
            old = inputs.old[sample, position].item()
            total += abs(old - inputs.rollout[sample, position].item())
            count += 1
            found[sample, index] = total / count, count
    return found


def few(inputs: Inputs, num_samples: int) -> Inputs:
    """The first samples."""
    return Inputs(
        mask=inputs.mask[:num_samples],
        old=inputs.old[:num_samples],
        rollout=inputs.rollout[:num_samples],
    )


def check(inputs: Inputs) -> float:
    """Compare with the plain loop; return its seconds for all samples."""
    some = few(inputs, 2)
    begin = time.perf_counter()
    wanted = plain_loop(some)
    seconds = time.perf_counter() - begin
    frame = round_frame(some.batch())
    assert len(frame) == len(wanted)
    np.testing.assert_allclose(
        frame["mean_abs_diff"], [mean for mean, _ in wanted.values()], rtol=1e-6
    )
    assert frame["num_tokens"].tolist() == [count for _, count in wanted.values()]
    tokens = token_frame(some.batch())
    assert len(tokens) == sum(count for _, count in wanted.values())
    return seconds * len(inputs.mask) / len(some.mask)


def best(call: Callable[[], object], device: str) -> float:
    """Seconds of the fastest of several runs."""
    times: list[float] = []
    while len(times) < REPEATS and (len(times) < 3 or sum(times) < PATIENCE):
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times)


def peak_mb(call: Callable[[], object]) -> float:
    """Megabytes of resident memory at the peak of a call, beyond what was there."""
    with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123 a kernel switch
        file.write("5")
    before = resident_mb("VmRSS")
    result = call()
    peak = resident_mb("VmHWM") - before
    del result
    return peak


def resident_mb(name: str) -> float:
    """Read a line of the kernel's account of this process."""
    with open("/proc/self/status") as file:  # noqa: PTH123 a kernel file
        line = next(line for line in file if line.startswith(name))
    return int(line.split()[1]) / 1024


def round_matrix(
    inputs: Inputs,
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray[Any, Any]]:
    """Both frames and the sample x round matrix."""
    rounds, tokens = round_and_token_frames(inputs.batch())
    matrix = np.full((len(inputs.mask), int(rounds["round"].max()) + 1), np.nan)
    matrix[rounds["sample"], rounds["round"]] = rounds["mean_abs_diff"]
    return rounds, tokens, matrix


def with_quantiles(inputs: Inputs) -> list[np.ndarray[Any, Any]]:
    """What `round_matrix` makes, and p50, p95 and p99 of every round."""
    rounds, tokens, _ = round_matrix(inputs)
    ends = rounds["num_tokens"].cumsum()
    spans = rounds.assign(begin=ends - rounds["num_tokens"])
    diff = tokens["diff"].to_numpy()
    found = []
    for _, part in spans.groupby("round"):
        values = take_runs(
            diff, part["begin"].to_numpy(), part["num_tokens"].to_numpy()
        )
        found.append(
            run_quantiles(np.abs(values), np.array([len(values)]), [0.5, 0.95, 0.99])
        )
    return found


def stages(inputs: Inputs) -> dict[str, Callable[[], object]]:
    """What is timed, from the tensors to the result, each stage from the start."""
    return {
        "rounds of the mask": lambda: inputs.batch().rounds,
        "+ per round |diff|, diff, k3, max": lambda: sum_rounds(inputs.batch()),
        "token frame alone": lambda: token_frame(inputs.batch()),
        "+ matrix and token frame": lambda: round_matrix(inputs),
        "+ p50, p95, p99 per round": lambda: with_quantiles(inputs),
        "round_summary, with intervals": lambda: round_summary(inputs.batch()),
        "round_summary of k2, by sample": lambda: round_summary(
            inputs.batch(), metric="k2", weight="sample"
        ),
    }


def report(name: str, inputs: Inputs, device: str) -> None:
    """Print the table of one batch."""
    naive = check(inputs)
    tensors = inputs.mask, inputs.old, inputs.rollout
    copies = [torch.empty_like(tensor) for tensor in tensors]

    def copy() -> None:
        for target, source in zip(copies, tensors, strict=True):
            target.copy_(source)

    num_tokens = int(inputs.mask.sum())
    print(f"\n{name}: {num_tokens:,} tokens; naive loop {naive:.0f} s")
    print(f"{'stage':36} {'ms':>7} {'mc':>6} {'naive':>8} {'M tok/s':>8} {'MB':>6}")
    for stage, call in stages(inputs).items():
        peak = peak_mb(call)
        copied = best(copy, device)
        seconds = best(call, device)
        copied = min(copied, best(copy, device))
        print(
            f"{stage:36} {seconds * 1e3:7.1f} {seconds / copied:6.2f}"
            f" {naive / seconds:7.0f}x {num_tokens / seconds / 1e6:8.0f} {peak:6.0f}"
        )
    print(f"one copy of the inputs (mc): {best(copy, device) * 1e3:.1f} ms")


def main() -> None:
    """Print one table a batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    device = parser.parse_args().device
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, numpy {np.__version__}, {device}, 1 thread")
    for num_samples, width in ((512, 32768), (128, 16384)):
        inputs = make(num_samples, width, device=device)
        report(f"{num_samples} x {width}, 8 rounds, 40 % generated", inputs, device)
    for length in (1, 30, 100, 400, 4000):
        inputs = make(256, 32768, length=length, device=device)
        report(f"256 x 32768, mean round length {length}", inputs, device)


if __name__ == "__main__":
    main()
