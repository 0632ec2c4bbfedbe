"""A training that is killed or that fails leaves complete files only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rounddiag.capture import Recorder
from rounddiag.loaders import load
from rounddiag.loaders.parquet import load_parquet

# Trainings that record one step after the other, as fast as the files are written, and
# are killed after a while; then trainings of one step, which end in several ways while
# the file is still being written. Each is a fork of one process, which imports torch
# once, and ends as a process does.
TRAININGS = """
import os, signal, sys, time, torch
torch.set_num_threads(1)
from rounddiag.capture import Recorder

ones = torch.ones(16, 4096)

def train(folder, pipe):
    recorder = Recorder(folder, every=1)
    for step in range(100_000):
        recorder.step(step, {
            "responses": torch.full((16, 4096), step), "response_mask": ones,
            "rollout_log_probs": -torch.rand(16, 4096), "old_log_probs": -ones,
        })
        recorder.close()
        os.write(pipe, b".")

folder, moments, ends = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
for moment in moments:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        train(f"{folder}/{moment}", writer)
    os.close(writer)
    os.read(reader, 1)
    time.sleep(float(moment))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
for end in ends:
    child = os.fork()
    if not child:
        recorder = Recorder(f"{folder}/{end}")
        recorder.step(0, {
            "responses": ones.long(), "response_mask": ones,
            "rollout_log_probs": -ones, "old_log_probs": -ones,
        })
        exec(end)
        break
    status = os.waitpid(child, 0)[1]
    print(end, os.waitstatus_to_exitcode(status), sep=",", flush=True)
"""
MOMENTS = np.random.default_rng(0).uniform(0, 0.2, 4).astype(str)
EXIT_CODES = {"pass": 0, "sys.exit(3)": 3, "raise RuntimeError": 1}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all trainings; return the folder that has a folder of each."""
    folder = tmp_path_factory.mktemp("trainings")
    arguments = [str(folder), " ".join(MOMENTS), *EXIT_CODES]
    done = subprocess.run(
        [sys.executable, "-c", TRAININGS, *arguments],
        check=True,
        timeout=300,
        stdout=subprocess.PIPE,
        text=True,
    )
    codes = dict(line.split(",") for line in done.stdout.splitlines())
    assert codes == {end: str(code) for end, code in EXIT_CODES.items()}
    return folder


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_only_complete_files(trainings: Path) -> None:
    for moment in MOMENTS:
        files = sorted((trainings / moment).glob("step_*.parquet"))
        for file in files:
            step = int(file.stem.removeprefix("step_"))
            batch = load_parquet(file)
            assert (batch.step, batch.require_ids().unique().tolist()) == (step, [step])
        steps = {file.stem for file in files}
        assert steps == {f"step_{step}" for step in range(len(steps))}
        assert steps


@pytest.mark.slow
@pytest.mark.parametrize("end", EXIT_CODES)
def test_a_process_finishes_its_files_however_it_ends(
    trainings: Path, end: str
) -> None:
    assert load_parquet(trainings / end / "step_0.parquet").step == 0


@pytest.mark.slow
def test_a_partial_file_is_no_step(trainings: Path, tmp_path: Path) -> None:
    complete = Path(shutil.copy(trainings / "pass" / "step_0.parquet", tmp_path))
    partial = tmp_path / f".step_10.parquet.{'0' * 32}.partial"
    partial.write_bytes(complete.read_bytes()[:1000])
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["step_0.parquet"]
    assert load(tmp_path).step == 0


def test_partial_files_older_than_an_hour_are_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".step_{i}.parquet.{'0' * 32}.partial" for i in (10, 20))
    other = tmp_path / ".mine.partial"
    for file in (old, new, other):
        file.touch()
    for file in (old, other):
        os.utime(file, (0, 0))
    Recorder(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, new]
