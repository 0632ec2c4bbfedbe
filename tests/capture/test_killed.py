"""A training that is killed or that fails leaves complete files only."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rounddiag.capture import Recorder
from rounddiag.loaders import load
from rounddiag.loaders.parquet import load_parquet

if TYPE_CHECKING:
    from pathlib import Path

# Trainings that record one step after the other, as fast as the files are written. Each
# is a fork of one process, which imports torch once, and is killed after a while.
KILLED = """
import os, signal, sys, time, torch
torch.set_num_threads(1)
from rounddiag.capture import Recorder

def train(folder, pipe):
    recorder = Recorder(folder, every=1)
    ones = torch.ones(16, 4096)
    for step in range(100_000):
        recorder.step(step, {
            "responses": torch.full((16, 4096), step), "response_mask": ones,
            "rollout_log_probs": -torch.rand(16, 4096), "old_log_probs": -ones,
        })
        recorder.close()
        os.write(pipe, b".")

for moment in sys.argv[2:]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        train(f"{sys.argv[1]}/{moment}", writer)
    os.close(writer)
    os.read(reader, 1)
    time.sleep(float(moment))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
# A training of one step, which ends while the file is still being written.
SHORT = """
import sys, torch
from rounddiag.capture import Recorder

recorder = Recorder(sys.argv[1])
ones = torch.ones(16, 4096)
recorder.step(0, {
    "responses": ones.long(), "response_mask": ones,
    "rollout_log_probs": -ones, "old_log_probs": -ones,
})
"""


def test_kill_9_at_any_moment_leaves_only_complete_files(tmp_path: Path) -> None:
    moments = np.random.default_rng(0).uniform(0, 0.2, 4).astype(str)
    command = [sys.executable, "-c", KILLED, str(tmp_path), *moments]
    subprocess.run(command, check=True, timeout=300)
    for moment in moments:
        files = sorted((tmp_path / moment).glob("step_*.parquet"))
        for file in files:
            step = int(file.stem.removeprefix("step_"))
            batch = load_parquet(file)
            assert (batch.step, batch.response_ids.unique().tolist()) == (step, [step])
        steps = {file.stem for file in files}
        assert steps == {f"step_{step}" for step in range(len(steps))}
        assert steps


def test_a_process_that_ends_finishes_its_files_and_a_partial_file_is_no_step(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", SHORT, str(tmp_path)]
    subprocess.run(command, check=True, timeout=300)
    complete = tmp_path / "step_0.parquet"
    assert load_parquet(complete).step == 0
    partial = tmp_path / f".step_10.parquet.{'0' * 32}.partial"
    partial.write_bytes(complete.read_bytes()[:1000])
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["step_0.parquet"]
    assert load(tmp_path).step == 0


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise RuntimeError"])
def test_a_training_that_fails_finishes_its_files_first(
    tmp_path: Path, end: str
) -> None:
    command = [sys.executable, "-c", SHORT + end, str(tmp_path)]
    failed = subprocess.run(command, check=False, timeout=300, capture_output=True)
    assert failed.returncode != 0
    assert load_parquet(tmp_path / "step_0.parquet").step == 0


def test_partial_files_older_than_an_hour_are_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".step_{i}.parquet.{'0' * 32}.partial" for i in (10, 20))
    other = tmp_path / ".mine.partial"
    for file in (old, new, other):
        file.touch()
    for file in (old, other):
        os.utime(file, (0, 0))
    Recorder(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, new]
