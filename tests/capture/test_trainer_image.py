"""In a trainer's image, with torch, numpy and pyarrow alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rounddiag.loaders.parquet import load_parquet

CODE = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = {
    "pandas", "PIL", "plotly", "ipywidgets", "anywidget", "tokenizers", "transformers",
    "safetensors", "tqdm", "fsspec", "verl", "tensordict", "ray", "IPython",
}
sys.meta_path.insert(0, Blocker())

import torch
from rounddiag.capture import Recorder, save_batch

ones = torch.ones(2, 3)
grid = torch.tensor([[1, 2, 2]])
patches = {"pixel_values": torch.zeros(4, 1176), "image_grid_thw": grid}
fields = {
    "responses": ones.long(), "response_mask": ones.long(),
    "rollout_log_probs": -ones, "old_log_probs": -ones / 2,
    "multi_modal_inputs": [patches, patches],
}
save_batch(fields, sys.argv[1], images=0)
save_batch(fields, sys.argv[2])
with Recorder(sys.argv[3], max_samples=1) as recorder:
    recorder.step(0, fields)
    recorder.finish(0, fields)
"""


@pytest.mark.slow
def test_a_batch_is_saved_without_screenshots(tmp_path: Path) -> None:
    files = [tmp_path / "none.parquet", tmp_path / "default.parquet"]
    paths = map(str, [*files, tmp_path])
    command = [sys.executable, "-W", "error", "-c", CODE, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for file in files:
        batch = load_parquet(file)
        assert batch.log_probs("old").tolist() == [-0.5] * 6
        assert batch.images is None
    recorded = load_parquet(tmp_path / "step_0.parquet")
    assert recorded.log_probs("old").tolist() == [-0.5] * 3
    assert recorded.meta["capture"]["num_samples"] == 2
