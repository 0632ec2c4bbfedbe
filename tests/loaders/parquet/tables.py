"""A small table that is a batch, to be spoiled."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOOTER: dict[str, object] = {"version": 1, "step": None, "tokenizer": None, "meta": {}}
INTS, FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())
COLUMNS = {
    "response_ids": pa.array([[1, 2]], INTS),
    "response_mask": pa.array([[True, False]]),
    "rollout_log_probs": pa.array([[-1.0, 0.0]], FLOATS),
    "old_log_probs": pa.array([[-1.5, 0.0]], FLOATS),
}


def write(path: Path, footer: bytes | None = None, **changes: pa.Array | None) -> Path:
    columns = {k: v for k, v in {**COLUMNS, **changes}.items() if v is not None}
    text = json.dumps(FOOTER).encode() if footer is None else footer
    table = pa.table(columns).replace_schema_metadata({b"rounddiag": text})
    pq.write_table(table, path)
    return path


def write_table(path: Path, columns: dict[pa.Field, pa.Array]) -> Path:
    """Write columns with fields of their own in place of those of the same name."""
    given = {field.name: (field, array) for field, array in columns.items()}
    known = {name: (pa.field(name, a.type), a) for name, a in COLUMNS.items()}
    fields, arrays = zip(*{**known, **given}.values(), strict=True)
    metadata = {"rounddiag": json.dumps(FOOTER)}
    schema = pa.schema(fields, metadata=metadata)
    pq.write_table(pa.Table.from_arrays(list(arrays), schema=schema), path)
    return path
