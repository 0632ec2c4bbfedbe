"""CPU seconds of what is asked for, beside a peer and beside another checkout.

python -m tests.benchmarks.asked [--beside FOLDER] [--only NAME...]

A peer does the least that gives the same numbers: `torch.load`, a mapped file and one
masked mean, pyarrow and numpy. FOLDER is a checkout of this project, of any commit. One
thread; each figure is the least of several runs of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch

_HERE = Path(__file__).parents[2]
_RUNS = 3
_MEGABYTE = 1e6
_Figures: TypeAlias = Mapping[str, float]


def main() -> None:
    """Print one line per figure."""
    options = _options()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only or _STAGES:
            write, _ = _STAGES[name]
            path = Path(folder, name)
            write(path)
            figures = _in_checkout(_HERE, name, path)
            beside = _in_checkout(options.beside, name, path) if options.beside else {}
            for figure, value in figures.items():
                print(_line(figure, value, beside.get(figure), figures), flush=True)
            path.unlink()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--only", nargs="*", choices=[*_STAGES])
    return parser.parse_args()


def _line(name: str, value: float, before: float | None, all_: _Figures) -> str:
    text = f"{name:42} {value:8.3f}"
    if before and not name.endswith(": peer"):
        text += f"   {value / before:5.2f} of the checkout beside ({before:.3f})"
    peer = all_.get(f"{name}: peer")
    return text + (f"   {value / peer:5.2f} times its peer" if peer else "")


def _in_checkout(folder: Path, name: str, path: Path) -> dict[str, float]:
    """Run a stage in a process of its own that imports the package of a checkout."""
    command = [sys.executable, __file__, name, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, cwd=folder, check=True, stdout=subprocess.PIPE
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _seconds(call: Callable[[], object], runs: int = _RUNS) -> float:
    """Return the least CPU time of a call."""
    seconds = []
    for _ in range(runs):
        began = time.process_time()
        call()
        seconds.append(time.process_time() - began)
    return min(seconds)


def _peak(call: Callable[[], object]) -> float:
    """Return by how many bytes a call raises the memory of the process at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS")
    call()
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith(name))
    return 1024 * float(size)


def _fields(
    rows: int, positions: int, write: int, read: int, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Return a padded batch: rounds of `write` tokens, `read` tokens between them."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, positions)
    rollout = -torch.rand(shape, generator=generator).pow(-0.5).sub(1).clamp(max=20)
    noise = 0.01 * torch.randn(shape, generator=generator)
    mask = (torch.arange(positions) % (write + read) < write).repeat(rows, 1)
    ids = torch.randint(0, 150_000, shape, generator=generator)
    return {
        "responses": ids,
        "response_mask": mask.long(),
        "rollout_log_probs": rollout,
        "old_log_probs": (rollout + noise).clamp(max=0),
    }


def _write_padded(path: Path) -> None:
    torch.save(_fields(256, 32_768, 400, 231), path)


def _write_parquet(path: Path) -> None:
    import rounddiag as rd

    padded = path.with_suffix(".pt")
    torch.save(_fields(256, 10_240, 96, 32), padded)
    whole = path.with_suffix(".parquet")
    rd.save(rd.load(padded), whole)
    whole.rename(path)
    padded.unlink()


def _write_tokens(path: Path) -> None:
    torch.save(_fields(256, 10_240, 96, 32), path)


def _write_step(path: Path) -> None:
    """A step of real size: up to 30 rounds, most positions are of screenshots."""
    fields = _fields(512, 46_000, 290, 1_210)
    num_rounds = torch.randint(1, 31, (512, 1), generator=torch.Generator())
    fields["response_mask"][torch.arange(46_000) >= 1_500 * num_rounds] = 0
    fields["attention_mask"] = torch.ones_like(fields["response_mask"])
    torch.save(fields, path)


def _write_report(path: Path) -> None:
    torch.save(_fields(32, 10_000, 96, 32), path)


def _load(path: Path) -> Iterator[tuple[str, float]]:
    import rounddiag as rd

    yield "load", _seconds(lambda: rd.load(path))
    yield "load: peer", _seconds(lambda: torch.load(path))
    yield "load and round_frame", _seconds(lambda: rd.round_frame(rd.load(path)))
    yield "load and round_frame: peer", _seconds(lambda: _masked_mean(path))


def _masked_mean(path: Path) -> torch.Tensor:
    fields = torch.load(path, mmap=True)
    diff = fields["old_log_probs"] - fields["rollout_log_probs"]
    return diff.abs()[fields["response_mask"].bool()].mean()


def _parquet(path: Path) -> Iterator[tuple[str, float]]:
    import rounddiag as rd

    yield "Parquet to token_frame", _seconds(lambda: rd.token_frame(rd.load(path)))
    yield "Parquet to token_frame: peer", _seconds(lambda: _columns(path))


def _columns(path: Path) -> dict[str, object]:
    """Read masks and log-probs with pyarrow, and number tokens with numpy."""
    import numpy as np
    import pyarrow.parquet as pq

    names = ["response_mask", "rollout_log_probs", "old_log_probs"]
    table = pq.read_table(path, columns=names)
    column = {name: table[name].combine_chunks() for name in names}
    flat = {name: np.asarray(column[name].flatten()) for name in names}
    lengths = np.diff(np.asarray(column["response_mask"].offsets))
    sample = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    mask = flat["response_mask"].astype(bool)
    first = mask.copy()
    first[1:] &= ~mask[:-1] | (sample[1:] != sample[:-1])
    starts = np.flatnonzero(first)
    segment = (np.cumsum(first) - 1)[mask]
    of_sample = sample[starts]
    round_ = np.arange(len(starts)) - np.searchsorted(of_sample, of_sample)
    return {
        "sample": of_sample[segment],
        "round": round_.astype(np.int32)[segment],
        "token": (np.flatnonzero(mask) - starts[segment]).astype(np.int32),
        "diff": (flat["old_log_probs"] - flat["rollout_log_probs"])[mask],
    }


def _diagnose(path: Path) -> Iterator[tuple[str, float]]:
    import rounddiag as rd

    fields = torch.load(path)
    yield "diagnose 2 M tokens, sound", _least_fresh(fields)
    planted = torch.Generator().manual_seed(1)
    hit = torch.rand(fields["responses"].shape, generator=planted) < 0.03
    hit[::2] = False
    fields["old_log_probs"][hit] -= 1
    yield "diagnose 2 M tokens, planted", _least_fresh(fields)
    batch = _batch(fields)
    num_tokens = int(fields["response_mask"].sum())
    yield (
        "diagnose: peak, bytes a token",
        _peak(lambda: rd.diagnose(batch)) / num_tokens,
    )


def _batch(fields: dict[str, torch.Tensor]) -> Any:
    import rounddiag as rd

    plain = {name: values for name, values in fields.items() if name != "responses"}
    return rd.Batch.from_padded(response_ids=fields["responses"], **plain)


def _least_fresh(fields: dict[str, torch.Tensor]) -> float:
    """Return the least time of a diagnosis; it is kept with its batch."""
    import rounddiag as rd

    batches = iter([_batch(fields) for _ in range(_RUNS)])
    return _seconds(lambda: rd.diagnose(next(batches)))


def _step(path: Path) -> Iterator[tuple[str, float]]:
    import rounddiag as rd

    batches = []
    peak = _peak(lambda: batches.append(rd.load(path)))
    yield "step of real size: load, peak in MB", peak / _MEGABYTE
    yield "step of real size: load", _seconds(lambda: batches.append(rd.load(path)), 2)
    fresh = iter(batches)
    yield "step of real size: diagnose", _seconds(lambda: rd.diagnose(next(fresh)), 2)
    yield "step of real size: explore", _seconds(lambda: rd.explore(batches[0]), 1)


def _report(path: Path) -> Iterator[tuple[str, float]]:
    import rounddiag as rd

    batches = iter([rd.load(path) for _ in range(_RUNS)])
    pages = iter([path.with_suffix(f".{number}.html") for number in range(_RUNS)])
    seconds = _seconds(lambda: rd.report(next(batches), next(pages)))
    yield "report of 32 x 10,000 tokens", seconds


_STAGES: dict[
    str,
    tuple[Callable[[Path], None], Callable[[Path], Iterator[tuple[str, float]]]],
] = {
    "load": (_write_padded, _load),
    "parquet": (_write_parquet, _parquet),
    "diagnose": (_write_tokens, _diagnose),
    "step": (_write_step, _step),
    "report": (_write_report, _report),
}


def _child(name: str, path: str) -> None:
    import rounddiag as rd

    torch.set_num_threads(1)
    rd.diagnose(rd.demo())  # imports
    print(json.dumps(dict(_STAGES[name][1](Path(path)))))


if __name__ == "__main__":
    _child(*sys.argv[1:]) if sys.argv[1:2] and sys.argv[1] in _STAGES else main()
