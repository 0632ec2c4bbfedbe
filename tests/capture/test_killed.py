"""A training that is killed, or ends without a word: what is there is whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rounddiag.capture import Recorder
from rounddiag.loaders import load
from rounddiag.loaders.parquet import load_parquet

if TYPE_CHECKING:
    from pathlib import Path

# Records one step after the other, as fast as the files are written.
ENDLESS = """
import sys, torch
torch.set_num_threads(1)
from rounddiag.capture import Recorder

recorder = Recorder(sys.argv[1], every=1)
ones = torch.ones(16, 4096)
for step in range(100_000):
    recorder.step(step, {
        "responses": torch.full((16, 4096), step), "response_mask": ones,
        "rollout_log_probs": -torch.rand(16, 4096), "old_log_probs": -ones,
    })
    recorder.close()
    print("one more", flush=True)
"""
# Ends right after its last step.
SHORT = ENDLESS.replace("100_000", "1").replace("recorder.close()", "pass")


def test_kill_9_at_any_moment_leaves_only_whole_files(tmp_path: Path) -> None:
    moments = np.random.default_rng(0).uniform(0, 0.2, 4)
    for moment in moments:
        folder = tmp_path / f"{moment}"
        command = [sys.executable, "-c", ENDLESS, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as training:
            assert training.stdout is not None
            training.stdout.readline()
            time.sleep(moment)
            training.kill()
            training.stdout.read()
        files = sorted(folder.glob("step_*.parquet"))
        for file in files:
            step = int(file.stem.removeprefix("step_"))
            batch = load_parquet(file)
            assert (batch.step, batch.response_ids.unique().tolist()) == (step, [step])
        steps = {batch.stem for batch in files}
        assert steps == {f"step_{step}" for step in range(len(steps))}
        assert steps


def test_what_a_killed_run_left_half_written_is_not_a_step(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHORT, str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    whole = tmp_path / "step_0.parquet"
    half = tmp_path / f".step_10.parquet.{'0' * 32}.partial"
    half.write_bytes(whole.read_bytes()[:1000])
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["step_0.parquet"]
    assert load(tmp_path).step == 0


def test_a_process_that_ends_finishes_its_files_first(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHORT, str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    assert load_parquet(tmp_path / "step_0.parquet").step == 0


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise RuntimeError"])
def test_a_training_that_fails_does_too(tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", SHORT + end, str(tmp_path)]
    failed = subprocess.run(command, check=False, timeout=120, capture_output=True)
    assert failed.returncode != 0
    assert load_parquet(tmp_path / "step_0.parquet").step == 0


def test_what_was_left_half_written_an_hour_ago_is_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".step_{i}.parquet.{'0' * 32}.partial" for i in (10, 20))
    other = tmp_path / ".mine.partial"
    for file in (old, new, other):
        file.touch()
    for file in (old, other):
        os.utime(file, (0, 0))
    Recorder(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, new]
