"""pandas, DuckDB and Hugging Face `datasets` read our file without us."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL.Image import Image

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.loaders.parquet import save


@pytest.fixture
def path(full: Batch, tmp_path: Path) -> Path:
    save(full, tmp_path / "batch.parquet")
    return tmp_path / "batch.parquet"


def test_pandas(path: Path) -> None:
    frame = pd.read_parquet(path)
    assert frame["group_id"].tolist() == ["a", "a", "ü"]
    assert frame["sample:rank"].tolist() == [0, 1, 1]
    np.testing.assert_array_equal(
        frame["old_log_probs"][2], np.array([np.nan, -2.5]), strict=True
    )
    assert [shot["bytes"][:4] for shot in frame["screenshots"][0]] == [b"\x89PNG"] * 2
    assert frame["screenshot_facts"][2][0]["round"] == 0
    assert frame["round_columns"][2][0]["version"] == 7


def test_duckdb(path: Path) -> None:
    import duckdb

    query = """
        SELECT group_id, "sample:rank", response_ids, old_log_probs[2],
               octet_length(screenshots[1].bytes) > 50,
               [fact.position FOR fact IN screenshot_facts]
        FROM read_parquet(?)
    """
    with duckdb.connect() as connection:
        rows = connection.execute(query, [str(path)]).fetchall()
    assert rows == [
        ("a", 0, [5, 6, 7], -1.0, True, [-3, None]),
        ("a", 1, [], None, None, []),
        ("ü", 1, [8, 151655], -2.5, True, [-3]),
    ]


def test_the_query_of_the_docstring_gives_the_means_of_rounds(tmp_path: Path) -> None:
    import duckdb

    batch = rd.load("sample_data/image_window.parquet")
    save(batch, tmp_path / "batch.parquet")
    _, _, after = (save.__doc__ or "").partition(".. code-block:: sql\n")
    query, _, _ = after.partition("Examples\n")
    with duckdb.connect() as connection:
        connection.execute(f"SET file_search_path = '{tmp_path}'")
        found = connection.execute(query).df()
    tokens = rd.token_frame(batch)
    groups = tokens["diff"].abs().groupby(tokens["round"])
    assert found["round"].tolist() == list(range(8))
    assert found["num_tokens"].tolist() == groups.size().tolist()
    np.testing.assert_allclose(found["mean_abs_diff"], groups.mean(), rtol=1e-5)


def test_datasets_shows_the_screenshots(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    data = datasets.load_dataset(
        "parquet", data_files=str(path), cache_dir=str(tmp_path), split="train"
    )
    assert data.features["screenshots"] == datasets.List(datasets.Image())
    row = data[0]
    assert all(isinstance(shot, Image) for shot in row["screenshots"])
    colours = [shot.convert("RGB").getpixel((0, 0)) for shot in row["screenshots"]]
    assert colours == [(255, 0, 0), (0, 0, 255)]
    assert [fact["position"] for fact in row["screenshot_facts"]] == [-3, None]
    assert data[2]["response_ids"] == [8, 151655]


def test_datasets_reads_a_file_without_screenshots(tmp_path: Path) -> None:
    import datasets

    batch = rd.load("sample_data/healthy.parquet")
    save(batch, tmp_path / "batch.parquet", redact=True)
    data = datasets.Dataset.from_parquet(
        str(tmp_path / "batch.parquet"), cache_dir=str(tmp_path)
    )
    assert len(data) == 64
    assert "screenshots" not in data.features
