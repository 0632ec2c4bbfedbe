"""Time a run: ingestion, summaries with and without the index, a step, a sample.

    python -m tests.benchmarks.run [--steps 50] [--samples 256] [--positions 8192]
    python -m tests.benchmarks.run --steps --raw 12 --ray      # ingestion alone
    python -m tests.benchmarks.run --raw 0                     # no ingestion

All on one thread, in a temporary folder that is filled with one step under many names.
Seconds are those of the processor, which other work on the machine does not lengthen;
those of Ray and of the summary from columns, which reads files in threads, are by the
clock. Memory is the peak of the process.

Ratios are to `torch.load` of the same files in the same run. They are in the page
cache, so that `torch.load` is a copy of memory: from a disk, both wait for the same
bytes. With `mmap=True` it reads nothing, and is printed for that reason alone.

`--ray` adds ingestion on 1 and 2 workers of a local Ray. The best of three counts: the
first one starts the workers, which import everything. What remains are tasks, files and
the driver's bookkeeping.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import torch

import rounddiag as rd
from tests.benchmarks.core import make
from tests.runs.ray_nodes import node_options


def seconds(
    call: Callable[[], object],
    repeats: int = 3,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """The least seconds of several calls, of the processor by default."""
    found = []
    for _ in range(repeats):
        begin = clock()
        call()
        found.append(clock() - begin)
    return min(found)


def write_raw(folder: Path, num_steps: int, samples: int, positions: int) -> None:
    """Dictionaries of padded tensors, as a trainer saves them."""
    inputs = make(samples, positions)
    generator = torch.Generator().manual_seed(0)
    dump = {
        "responses": torch.randint(0, 151_936, inputs.mask.shape, generator=generator),
        "response_mask": inputs.mask,
        "rollout_log_probs": inputs.rollout,
        "old_log_probs": inputs.old,
        "entropys": -inputs.old,
    }
    folder.mkdir()
    for step in range(num_steps):
        torch.save(dump, folder / f"global_step_{step}.pt")


def fill(folder: Path, num_steps: int, samples: int, positions: int) -> None:
    """Step files, which are copies of one."""
    inputs = make(samples, positions)
    groups = tuple(f"group-{sample // 8}" for sample in range(samples))
    batch = replace(inputs.batch(), group_ids=groups, step=0)
    rd.save(batch, folder / "step_0.parquet")
    for step in range(1, num_steps):
        shutil.copy(folder / "step_0.parquet", folder / f"step_{step}.parquet")


def line(name: str, value: float, per: float, unit: str = "step") -> None:
    """Print seconds, in all and each."""
    print(f"{name:42} {value:8.3f} s {value / per * 1e3:9.1f} ms a {unit}", flush=True)


def time_run(folder: Path, num_steps: int, options: argparse.Namespace) -> None:
    """Time what a user waits for."""
    fill(folder, num_steps, options.samples, options.positions)
    index = folder.with_name(f"{folder.name}_index")
    os.environ["ROUNDDIAG_CACHE"] = str(index)

    def without_index() -> None:
        shutil.rmtree(index, ignore_errors=True)
        rd.open_run(folder).summary()

    line(
        f"{num_steps} steps: open_run", seconds(lambda: rd.open_run(folder)), num_steps
    )
    line("summary without the index", seconds(without_index, 1), num_steps)
    line("summary with it", seconds(lambda: rd.open_run(folder).summary()), num_steps)
    for metric, clock in (("k3", time.process_time), ("beyond", time.perf_counter)):
        summary = partial(rd.open_run(folder).summary, metric=metric)
        of_columns = seconds(summary, 1, clock)
        name = "processor" if clock is time.process_time else "clock"
        line(f"summary of {metric} from columns, {name}", of_columns, num_steps)
    run = rd.open_run(folder)
    line("run.batch(step)", seconds(lambda: run.batch(num_steps - 1)), 1)
    one = seconds(lambda: run.sample(0, options.samples // 2), 10)
    line("run.sample(step, sample)", one, 1, "sample")
    line("run.changes()", seconds(run.changes, 1), num_steps)
    size = (folder / "step_0.parquet").stat().st_size
    num = options.samples * options.positions
    files = (one for one in index.rglob("*") if one.is_file())
    of_index = sum(file.stat().st_size for file in files)
    print(
        f"a step file {size / 1e6:.1f} MB, {size / num:.1f} bytes a position;"
        f" index {of_index / num_steps:.0f} bytes a step"
    )


def time_ingestion(home: Path, options: argparse.Namespace) -> None:
    """Time ingestion beside `torch.load` of the same files."""
    raw, num = home / "raw", options.raw
    write_raw(raw, num, options.samples, options.positions)
    files = sorted(raw.iterdir())
    loaded = seconds(lambda: [torch.load(file) for file in files], 1)
    line("torch.load alone", loaded, num)
    mapped = seconds(lambda: [torch.load(file, mmap=True) for file in files], 1)
    line("torch.load with mmap, which reads nothing", mapped, num)
    read = seconds(lambda: [rd.load(file) for file in files], 1)
    line("rounddiag.load, with its checks", read, num)

    done = seconds(partial(rd.ingest, raw, home / "out", images="none"), 1)
    line("ingest", done, num)
    print(f"ingest is {loaded / done:.2f} of the speed of torch.load")
    if options.ray:
        time_ray(raw, home, num)


def time_ray(raw: Path, home: Path, num: int) -> None:
    """Time ingestion by 1 and by 2 workers."""
    import ray
    from ray.cluster_utils import Cluster

    found = []
    for workers in (1, 2):
        cluster = Cluster(initialize_head=True, head_node_args=node_options(workers))
        ray.init(address=cluster.address, log_to_driver=False)
        folders = (home / f"out{workers}_{number}" for number in count())

        def convert(folders: Iterator[Path] = folders) -> None:
            rd.ingest(raw, next(folders), engine="ray")

        found.append(seconds(convert, 3, time.perf_counter))
        line(f"ingest, Ray with {workers} workers", found[-1], num)
        ray.shutdown()
        cluster.shutdown()
    print(f"two workers are {found[0] / found[1]:.2f} times as fast as one")


def main() -> None:
    """Print seconds, ratios, sizes and the peak of memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="*", default=[10, 50])
    parser.add_argument("--raw", type=int, default=5)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--positions", type=int, default=8192)
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for num_steps in options.steps:
            time_run(home / f"run{num_steps}", num_steps, options)
        if options.raw:
            time_ingestion(home, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
