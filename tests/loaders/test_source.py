"""A file that changes after it was opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.pickle.unpickler import PickleMachine
from tests.loaders.table_cases import says
from tests.loaders.verl_writer import small_batch, write


def test_a_file_that_changed_shows_no_screenshots(tmp_path: Path) -> None:
    pixels = {
        "pixel_values": torch.zeros(8, 1176),
        "image_grid_thw": torch.tensor([[1, 2, 4]]),
    }
    columns = {"multi_modal_inputs": [pixels, {}]}
    path = write(tmp_path / "a.pkl", small_batch(), columns)
    batch = load(path)
    assert batch.images[0][0].image().size == (56, 28)

    os.utime(path, ns=(0, 0))
    message = (
        f"{path}: expected the file as it was when it was loaded; found another size or"
        " time. Load it again. Copy a file first if a trainer overwrites it."
    )
    with says(message):
        batch.images[0][0].image()
    path.unlink()
    with pytest.raises(LoadError, match="found No such file or directory"):
        batch.images[0][0].image()


def test_the_batch_outlives_a_file_that_is_overwritten_in_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pkl", small_batch())
    batch = load(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\xff" * size)
        file.truncate(0)

    assert batch.log_probs("old")[:4].tolist() == [-1.5, -2.0, -9.0, -0.5]


@pytest.mark.parametrize("share", [0.2, 0.6, 0.97])
def test_a_file_that_shrinks_while_it_is_open_is_a_load_error(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.pkl", small_batch())
    size = path.stat().st_size
    run = PickleMachine.run

    def run_and_truncate(machine: PickleMachine) -> object:
        root = run(machine)
        os.truncate(path, int(size * share))
        return root

    monkeypatch.setattr(PickleMachine, "run", run_and_truncate)
    with pytest.raises(LoadError, match="found another size or time"):
        load(path)
