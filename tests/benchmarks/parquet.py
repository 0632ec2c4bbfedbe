"""Size and speed of our file, 128 x 16384 positions, 1 thread.

The log-probs are random floats: the mantissa does not compress, as with real ones.
Eight rounds a sample, 40 % of the positions generated; an observation is a screenshot,
which is one image token many times. Usage:

    python -m tests.benchmarks.parquet
"""

from __future__ import annotations

import io
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from rounddiag.batch import Batch
from rounddiag.loaders.parquet import load_parquet, save
from rounddiag.vision import EncodedScreenshot

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES, LENGTH, ROUNDS, SHARE = 128, 16384, 8, 0.4
IMAGE = 151655
SCREENSHOT = (200, 167)  # pixels of noise: 100 kB as PNG


def synthetic() -> Batch:
    rng = np.random.default_rng(0)
    period = LENGTH // ROUNDS
    mask = np.tile(np.arange(LENGTH) % period < SHARE * period, (SAMPLES, 1))
    words = rng.permutation(IMAGE)[rng.zipf(1.3, mask.shape).clip(max=IMAGE - 1)]
    rollout = np.log(rng.random(mask.shape)).astype(np.float32)
    old = rollout + rng.normal(0, 0.005, mask.shape).astype(np.float32)
    fields = {
        "response_ids": np.where(mask, words, IMAGE),
        "response_mask": mask.astype(np.int64),
        "rollout_log_probs": rollout * mask,
        "old_log_probs": old,
    }
    return Batch.from_padded(**{k: torch.from_numpy(v) for k, v in fields.items()})


def with_screenshots(batch: Batch) -> Batch:
    rng = np.random.default_rng(1)
    noise = rng.bytes(3 * SCREENSHOT[0] * SCREENSHOT[1])
    buffer = io.BytesIO()
    Image.frombytes("RGB", SCREENSHOT, noise).save(buffer, format="PNG")
    shots = tuple(
        EncodedScreenshot(data=buffer.getvalue(), round=number)
        for number in range(ROUNDS)
    )
    return replace(batch, images=(shots,) * batch.num_samples)


def best_ms(function: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def check(batch: Batch, again: Batch) -> None:
    for name, values in batch.per_token.items():
        assert torch.equal(getattr(again, name), values.to(getattr(again, name).dtype))


def read_one_sample(path: Path) -> None:
    with pq.ParquetFile(path) as source:
        source.read_row_group(source.num_row_groups // 2, use_threads=False)


def print_size(batch: Batch, path: Path, what: str) -> None:
    save(batch, path)
    size = path.stat().st_size
    print(
        f"{what:42}{size / len(batch.response_ids):6.2f} bytes a position,"
        f"{size / batch.num_tokens:6.2f} a generated token"
    )


def print_time(what: str, function: Callable[[], object]) -> None:
    print(f"{what:42}{best_ms(function):7.1f} ms")


def main() -> None:
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    batch = synthetic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batch.parquet"
        silent = batch.old_log_probs * batch.response_mask
        what = "old log-probs 0 at observations"
        print_size(replace(batch, old_log_probs=silent), path, what)
        print_size(batch, path, "old log-probs at every position")
        check(batch, load_parquet(path))
        inputs = batch.per_token.values()
        print_time("copy of the inputs", lambda: [v.clone() for v in inputs])
        print_time("write, with fsync", lambda: save(batch, path))
        print_time("read all, as a Batch", lambda: load_parquet(path))
        print_time("read the row group of a sample", lambda: read_one_sample(path))
        save(with_screenshots(batch), path)
        print(f"with {SAMPLES * ROUNDS} screenshots of 100 kB:")
        print_time("read all, as a Batch", lambda: load_parquet(path))
        images = load_parquet(path).images
        assert images is not None
        print_time("read one screenshot", images[-1][-1].png)


if __name__ == "__main__":
    main()
