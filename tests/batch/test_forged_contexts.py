"""Files whose ranges of contexts are forged: they load in little memory, or not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rounddiag as rd
from rounddiag.errors import LoadError
from tests.batch.test_steps import ROWS, anthropic_image, text_rows

SHOWN = anthropic_image("red")
SAY = [
    {"role": "user", "content": content}
    for content in (["Go."], ["Stop."], ["Wait.", SHOWN, SHOWN])
]
FAR, MILLION = -(2**31), 1_000_000
MOST = 50 * MILLION  # bytes, of which a file has thousands

FORGED: dict[str, dict[str, object]] = {
    "before the prompt": {"ranges": [-60 * MILLION, 2]},
    "far before the prompt": {"ranges": [FAR, -1]},
    "an answer before it was written": {"ranges": [0, 1000]},
    "the answers of other rounds": {"ranges": [-1, 100], "start": 100},
    "a text again and again": {"ranges": [0, 1] * 100_000},
    "texts again and again": {"ranges": [0, 2] * 100_000},
    "a range that is half in another": {"ranges": [0, 3, 1, 2]},
    "backwards": {"ranges": [2, 0]},
    "half a range": {"ranges": [0, 1, 2]},
    "nothing": {"ranges": [None, None]},
    "a start in the answer": {"start": 1000},
    "a start far before": {"start": FAR},
    "a round that is not": {"round": 3},
    "no round": {"round": -1},
    "the round of another": {"round": 1},
}
# Where ids and texts are left out, these are of a prompt that may be as long as that.
OF_LONG_PROMPTS = {"before the prompt"}
# Nor is it known there which position is a picture.
OF_PICTURES = {
    *("a text again and again", "texts again and again"),
    "a range that is half in another",
}


def saved(kind: str, folder: Path, *, redact: bool) -> Path:
    """Save three rounds whose contexts share nothing."""
    prompts = [[1, 2], [3, 4], [8, 9]]
    rows = [{**row, "prompt_ids": ids} for row, ids in zip(ROWS, prompts, strict=True)]
    rows = rows if kind == "ids" else text_rows(*([said] for said in SAY))
    file = folder / "steps.parquet"
    rd.save(rd.Batch.from_steps(rows), file, redact=redact)
    return file


def forge(file: Path, entries: dict[str, object]) -> None:
    """Replace entries of the last rewritten context in a file."""
    table = pq.read_table(file)
    at = table.schema.get_field_index("contexts")
    field = table.schema.field(at)
    (contexts,) = table.column(at).to_pylist()
    column = pa.array([[*contexts[:-1], {**contexts[-1], **entries}]], field.type)
    metadata = table.schema.metadata
    table = table.set_column(at, field, column).replace_schema_metadata(metadata)
    pq.write_table(table, file, compression="zstd")
    assert file.stat().st_size < MOST / 1000


@pytest.mark.parametrize("redact", [False, True], ids=["whole", "redacted"])
@pytest.mark.parametrize("kind", ["ids", "texts"])
@pytest.mark.parametrize("name", FORGED)
def test_forged_ranges_take_no_memory(
    kind: str, name: str, tmp_path: Path, *, redact: bool
) -> None:
    file = saved(kind, tmp_path, redact=redact)
    forge(file, FORGED[name])
    is_possible = redact and name in OF_LONG_PROMPTS | OF_PICTURES
    tracemalloc.start()
    try:
        if is_possible:
            batch = rd.load(file)
            assert batch.chains(0)[-1] == range(2, 3)
            rd.check(batch)
        else:
            with pytest.raises(LoadError):
                rd.load(file)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["ids", "texts"])
def test_what_is_forged_is_honest_before(kind: str, tmp_path: Path) -> None:
    batch = rd.load(saved(kind, tmp_path, redact=False))
    assert batch.chains(0) == [range(1), range(1, 2), range(2, 3)]
    assert [len(batch.context(0, r).images) for r in range(3)] == (
        [0, 0, 0] if kind == "ids" else [0, 0, 2]
    )
