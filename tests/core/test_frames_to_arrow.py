"""Frames as Arrow streams: what polars, DuckDB and pyarrow read without pandas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rounddiag as rd
from tests.batches import hand_batch

FRAMES = {
    "token_frame": lambda batch: rd.token_frame(
        batch, ["position", "rollout_log_prob", "rank", "text"]
    ),
    "round_frame": rd.round_frame,
    "sample_frame": rd.sample_frame,
    "round_summary": rd.round_summary,
    "legs": rd.legs,
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=[*FRAMES])
def test_a_frame_is_a_stream_of_its_columns(
    make: Callable[[rd.Batch], pd.DataFrame],
) -> None:
    ranks = np.array([0, 1, 1])
    batch = hand_batch(
        sample_columns={"rank": ranks}, tokenizer="sample_data/tokenizer.json"
    )
    frame = make(batch)
    stream = pa.RecordBatchReader.from_stream(frame)  # asks for `__arrow_c_stream__`
    table = stream.read_all()
    assert table.column_names == [*frame.columns]
    assert not any(pa.types.is_null(one.type) for one in table.schema)
    back = table.to_pandas()
    assert len(back) > 1
    for name in frame:
        assert [*map(str, back[name])] == [*map(str, frame[name])]
