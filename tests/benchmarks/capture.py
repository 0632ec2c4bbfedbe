"""Time what a Recorder costs on the training thread.

    python -m tests.benchmarks.capture [--device cuda]

A figure is the median and the 95th percentile of many calls. `copies` is the ratio of
the median to one copy of all inputs that the file needs, timed in turns with the calls.
What the thread in the background takes is shown below, with the size of a file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rounddiag.capture import Recorder
from tests.benchmarks.core import NUM_ROUNDS, make

REPEATS = 30
PROMPT = 1024
SCREENS, GRID = 4, (1, 52, 92)  # of 1288 x 728 pixels a sample


def step_of(num_samples: int, width: int, device: str) -> dict[str, Any]:
    """What verl's older trainer holds: padded, integers of 64 bits, real token ids."""
    inputs = make(num_samples, width, device=device)
    generator = torch.Generator().manual_seed(0)
    whole = (num_samples, PROMPT + width)
    ids = torch.randint(0, 151_936, whole, generator=generator).to(device)
    return {
        "prompts": ids[:, :PROMPT].contiguous(),
        "responses": ids[:, PROMPT:].contiguous(),
        "attention_mask": torch.ones_like(ids),
        "response_mask": inputs.mask,
        "rollout_log_probs": inputs.rollout,
        "old_log_probs": inputs.old,
        "entropys": -inputs.old,
        "rm_scores": torch.zeros_like(inputs.old),
        "uid": [f"group{sample // 8}" for sample in range(num_samples)],
    }


def with_pixels(step: dict[str, Any]) -> dict[str, Any]:
    """The same with screenshots, which all samples share here."""
    grid = torch.tensor([GRID] * SCREENS)
    pixels = torch.rand(int(grid.prod(1).sum()), 1176).bfloat16()
    row = {"pixel_values": pixels, "image_grid_thw": grid}
    return {**step, "multi_modal_inputs": [row] * len(step["uid"])}


def times(call: Callable[[], object], *, between: Callable[[], object]) -> list[float]:
    """Milliseconds of many calls."""
    found = []
    for _ in range(REPEATS):
        between()
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e3)
    return found


def table_row(name: str, found: list[float], copy: float) -> str:
    """One line of the table."""
    median, p95 = np.percentile(found, [50, 95])
    return f"{name:34} {median:8.2f} {p95:8.2f} {median / copy:8.2f}"


def report(num_samples: int, width: int, device: str) -> None:
    """Print the table of one size."""
    step = step_of(num_samples, width, device)
    tensors = [value for value in step.values() if isinstance(value, torch.Tensor)]
    pictured = with_pixels(step)
    later = {**step, "advantages": step["old_log_probs"]}
    with tempfile.TemporaryDirectory() as folder, Recorder(folder, every=1) as recorder:

        def record() -> None:
            recorder.close()
            recorder.step(0, step)

        copied = times(
            lambda: [tensor.to("cpu", copy=True) for tensor in tensors],
            between=recorder.close,
        )
        copy = float(np.median(copied))
        print(f"\n{num_samples} x {width} on {device}, {NUM_ROUNDS} rounds")
        print(
            f"{'ms on the training thread':34} {'median':>8} {'p95':>8} {'copies':>8}"
        )
        print(table_row("one copy of the inputs", copied, copy))
        found = times(lambda: recorder.step(0, step), between=recorder.close)
        print(table_row("step", found, copy))
        found = times(lambda: recorder.step(0, pictured), between=recorder.close)
        print(table_row(f"step, 8 samples x {SCREENS} screenshots", found, copy))
        found = times(lambda: recorder.finish(0, later), between=record)
        print(table_row("finish, with advantages", found, copy))
        print(in_background(recorder, step, Path(folder)))


def in_background(recorder: Recorder, step: dict[str, Any], folder: Path) -> str:
    """Say what a file takes, and whether anything went wrong."""
    recorder.close()
    begin = time.perf_counter()
    recorder.step(0, step)
    recorder.close()
    seconds = time.perf_counter() - begin
    num_bytes = (folder / "step_0.parquet").stat().st_size
    return (
        f"until the file is whole: {seconds:.2f} s,"
        f" {num_bytes / step['responses'].numel():.1f} bytes a position;"
        f" dropped {recorder.dropped}, errors {recorder.errors}"
    )


def main() -> None:
    """Print one table a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    device = parser.parse_args().device
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread")
    for num_samples, width in ((128, 8192), (512, 32768)):
        report(num_samples, width, device)


if __name__ == "__main__":
    main()
