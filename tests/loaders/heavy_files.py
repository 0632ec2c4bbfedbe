"""Small files whose batch is large, or whose names or texts are: the kinds of issue 29.

They are whole files of their formats, so that what reads them in the child ends well;
`size` scales what the parent is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rounddiag._typing import Array
from rounddiag.loaders import save
from tests.loaders.hostile_files import MILLION, OWN, with_tokenizer
from tests.loaders.parquet.tables import FOOTER
from tests.loaders.wide_files import ROWS, own


def write_rows(path: Path, mask: Array, log_probs: Array, length: int) -> None:
    """Write our own layout: rows of this length, with ids of 0."""
    offsets = pa.array(np.arange(0, len(mask) + 1, length), pa.int32())
    flat = {
        "response_ids": np.zeros(len(mask), np.int32),
        "response_mask": mask,
        "rollout_log_probs": log_probs,
        "old_log_probs": log_probs - np.float32(1),
    }
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(values))
        for name, values in flat.items()
    }
    table = pa.table(lists).replace_schema_metadata(OWN)
    pq.write_table(table, path, compression="zstd", row_group_size=1 << 30)


def many_rounds(path: Path, size: float) -> None:
    count = int(20 * MILLION * size)
    mask = np.tile([True, False], count)
    write_rows(path, mask, np.zeros(2 * count, np.float32), 2 * count)


def many_holes(path: Path, size: float) -> None:
    """Write rounds of one token, between which the sampler wrote others."""
    count = int(12 * MILLION * size)
    mask = np.tile([True, False], count)
    write_rows(path, mask, np.full(2 * count, -1, np.float32), 2 * count)


def one_long_sample(path: Path, size: float) -> None:
    count = int(60 * MILLION * size)
    write_rows(path, np.ones(count, bool), np.full(count, -1, np.float32), count)


def many_short_samples(path: Path, size: float) -> None:
    count = int(4 * MILLION * size)
    write_rows(path, np.ones(count, bool), np.full(count, -1, np.float32), 1)


def slow_to_encode() -> dict[str, Any]:
    """Return a tokenizer that decodes at once and encodes in the square of a length."""
    vocabulary = {"[UNK]": 0, "a" * 65_000 + "x": 5, "##b": 6}
    return {
        "version": "1.0",
        "added_tokens": [],
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 1 << 40,
            "vocab": vocabulary,
        },
        # So that the text is not in the vocabulary, and each of its starts is tried.
        "decoder": {"type": "Replace", "pattern": {"String": "x"}, "content": "y"},
    }


def slow_tokenizer(path: Path, size: float) -> None:
    """Write rounds of one token with a text of 65 kB, which is slow to encode."""
    with_tokenizer(path, slow_to_encode())
    count = max(int(60 * size), 2)
    mask = np.tile([True, False], count)
    write_rows(path, mask, np.full(2 * count, -1.5, np.float32), 2 * count)
    table = pq.read_table(path)
    ids = pa.array([[5] * (2 * count)], pa.list_(pa.int32()))
    at = table.column_names.index("response_ids")
    footer = {**FOOTER, "tokenizer": "tokenizer.json"}
    table = table.set_column(at, "response_ids", ids)
    pq.write_table(
        table.replace_schema_metadata({"rounddiag": json.dumps(footer)}), path
    )


def doubled(times: int) -> dict[str, Any]:
    """Return a tokenizer whose tokens have a text of 2 to the power of this."""
    twice = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    vocabulary = {"a" * (i + 1): i for i in range(9)}
    return {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"},
        "decoder": {"type": "Sequence", "decoders": [twice] * times},
    }


def long_token_texts(path: Path, size: float) -> None:
    with_tokenizer(path, doubled(int(20 + np.log2(size))))


def one_text_many_times(path: Path, size: float) -> None:
    """Write 1,800 samples with one text of 500 kB, which Parquet has once."""
    count = int(1800 * size)
    write_texts(path, ["x" * 500_000] * count)


def many_long_texts(path: Path, size: float) -> None:
    """Write texts of 500 kB that differ in a few letters, which compresses well."""
    count = int(1800 * size)
    write_texts(path, [f"{i:8}" + "x" * 500_000 for i in range(count)])


def write_texts(path: Path, texts: list[str]) -> None:
    count = len(texts)
    save(own(1), path)
    table = pq.read_table(path)
    row = table.slice(0, 1)
    table = pa.concat_tables([row] * count)
    field = pa.field("sample:text", pa.string())
    kept = [name for name in table.column_names if not name.startswith("sample:")]
    table = table.select(kept).append_column(field, pa.array(texts))
    table = table.replace_schema_metadata(OWN)
    pq.write_table(table, path, compression="zstd")


def long_meta(path: Path, size: float) -> None:
    """Write `meta` of 95 MB, in the footer."""
    save(own(1), path)
    footer = {**FOOTER, "meta": {"facts": "x" * int(95 * MILLION * size)}}
    metadata = {"rounddiag": json.dumps(footer)}
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)


def long_name(path: Path, size: float) -> None:
    """Write a column whose name has 150 MB, as JSON lines."""
    name = "n" * int(150 * MILLION * size)
    rows = [{key: values[i] for key, values in ROWS.items()} for i in range(2)]
    rows[0][name] = rows[1][name] = [1]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


def many_names(path: Path, size: float) -> None:
    """Write 200,000 columns of one number a sample, as JSON lines."""
    more: dict[str, Any] = {f"{i:x}": 0 for i in range(int(200_000 * size))}
    rows = [{key: values[i] for key, values in ROWS.items()} for i in range(2)]
    text = "".join(json.dumps({**row, **more}) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


KINDS: dict[str, tuple[str, Callable[[Path, float], object]]] = {
    "20 million rounds": ("a.parquet", many_rounds),
    "12 million holes": ("a.parquet", many_holes),
    "60 million tokens": ("a.parquet", one_long_sample),
    "4 million samples": ("a.parquet", many_short_samples),
    "60 tokens, slow to encode": ("a.parquet", slow_tokenizer),
    "1,800 times one text": ("a.parquet", one_text_many_times),
    "1,800 long texts": ("a.parquet", many_long_texts),
    "texts of tokens": ("a.parquet", long_token_texts),
    "meta of 95 MB": ("a.parquet", long_meta),
    "a name of 150 MB": ("a.jsonl", long_name),
    "200,000 names": ("a.jsonl", many_names),
}
