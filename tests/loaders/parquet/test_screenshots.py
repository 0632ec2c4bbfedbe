from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet import load_parquet, save
from rounddiag.vision import StoredScreenshot


@pytest.fixture
def path(full: Batch, tmp_path: Path) -> Path:
    save(full, tmp_path / "batch.parquet")
    return tmp_path / "batch.parquet"


def test_encoded_bytes_are_kept_and_read_when_asked_for(
    full: Batch, path: Path
) -> None:
    images = load_parquet(path).images
    assert [[shot.round for shot in row] for row in images] == [[0, None], [], [0]]
    sizes = [[shot.seen_size for shot in row] for row in images]
    assert sizes == [[(40, 30), None], [], [(40, 30)]]
    places = [[shot.position for shot in row] for row in images]
    assert places == [[-3, None], [], [-3]]
    assert [[shot.png() for shot in row] for row in images] == [
        [shot.png() for shot in row] for row in full.images
    ]
    assert images[0][1].size == (4, 3)
    assert images[0][1].image().convert("RGB").getpixel((0, 0)) == (0, 0, 255)


def test_a_picture_that_was_read_knows_its_place(full: Batch, path: Path) -> None:
    images = load_parquet(path).images
    assert isinstance(images[0][0], StoredScreenshot)
    assert images[0][0].read() == full.images[0][0]


def test_they_are_found_in_every_row_group(full: Batch, path: Path) -> None:
    pq.write_table(pq.read_table(path), path, row_group_size=1)
    images = load_parquet(path).images
    assert images[2][0].png() == full.images[2][0].png()


def test_loading_reads_no_pictures(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = pq.ParquetFile.read_row_groups

    def recorded(
        self: pq.ParquetFile, groups: object, columns: list[str], **options: bool
    ) -> object:
        read.extend(columns)
        return original(self, groups, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", recorded)
    load_parquet(path)
    assert [name for name in read if name.startswith("screenshot")] == [
        "screenshots.list.element.path",
        "screenshot_facts",
    ]


def test_a_file_that_changed_is_an_error(path: Path) -> None:
    images = load_parquet(path).images
    os.utime(path, ns=(0, 0))
    expected = re.escape(
        f"{path}: `screenshots`: expected the file as it was when the batch was loaded;"
        " found another size or time. Load the batch again."
    )
    with pytest.raises(LoadError, match=f"^{expected}$"):
        images[0][0].png()
    path.unlink()
    with pytest.raises(LoadError, match=r"found .*No such file or directory"):
        images[0][0].size  # noqa: B018 reads the file


def test_pixels_that_are_rebuilt_are_stored_as_png(path: Path, full: Batch) -> None:
    from dataclasses import replace

    import torch

    from rounddiag.vision import PatchScreenshot

    patches = torch.zeros(4, 2 * 3 * 14 * 14)
    shot = PatchScreenshot(
        patches=lambda: patches, grid_thw=(1, 2, 2), round=1, position=7
    )
    save(replace(full, images=((shot,), (), ())), path)
    images = load_parquet(path).images
    assert (images[0][0].round, images[0][0].position) == (1, 7)
    assert images[0][0].png() == shot.png()
