"""The run among the sample data is what `sample_data/make.py` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import rounddiag as rd
from rounddiag._version import __version__
from rounddiag.loaders.parquet import load_parquet
from rounddiag.loaders.parquet.metadata import KEY, REVISION
from sample_data.synthetic.run import ONSET, STEPS, save_run

FOLDER = Path("sample_data/run")
TOTALS = b"rounddiag.totals"


pytestmark = pytest.mark.slow  # it writes the run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    healthy, image_window = (
        load_parquet(f"sample_data/{name}.parquet")
        for name in ("healthy", "image_window")
    )
    save_run(healthy, image_window, folder)
    return folder


def numbers(value: Any, name: str = "") -> dict[str, float]:
    """Return the numbers of a JSON value by their paths."""
    if not isinstance(value, dict | list):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = (numbers(part, f"{name}.{key}") for key, part in items)
    return {path: number for part in found for path, number in part.items()}


def test_the_files_are_those_that_make_writes(made: Path) -> None:
    names = sorted(file.name for file in FOLDER.glob("*.parquet"))
    assert names == sorted(file.name for file in made.glob("*.parquet"))
    for name in names:
        one, other = pq.read_table(FOLDER / name), pq.read_table(made / name)
        assert one.equals(other)
        committed, written = one.schema.metadata, other.schema.metadata
        totals = [json.loads(file.pop(TOTALS)) for file in (committed, written)]
        assert [one.pop("weight_version") for one in totals] == ["1584", "1584"]
        # float32 exp differs in its last digit from processor to processor.
        near = pytest.approx(numbers(totals[0]), rel=1e-5, abs=1e-8, nan_ok=True)
        assert numbers(totals[1]) == near
        facts = [json.loads(one.pop(KEY)) for one in (committed, written)]
        # A later revision only adds what these files lack.
        now = {"rounddiag": __version__, "revision": REVISION}
        meta = {**facts[0]["meta"], "reward_scale": [0, 1]}
        assert {**facts[0], **now, "meta": meta} == facts[1]
        assert committed == written
        assert b'"source"' not in one.schema.metadata[KEY]
    assert sum(file.stat().st_size for file in FOLDER.glob("*.parquet")) < 5e6


def test_the_fault_begins_at_a_step(made: Path) -> None:
    run = rd.open_run(made)
    assert run.steps == tuple(STEPS)
    (one,) = run.breaks()
    assert (one.step, one.rounds) == (ONSET, (2, 3, 4, 5, 6, 7))
    before, after = run.batch(ONSET - 10), run.batch(ONSET)
    pd.testing.assert_frame_equal(
        run.summary()
        .query("step == @ONSET")
        .drop(columns="step")
        .reset_index(drop=True),
        rd.round_summary(after),
    )
    assert len(before) == len(after) == 48
    assert not torch.equal(before.response_mask, after.response_mask)
