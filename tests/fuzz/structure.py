"""Damage that keeps the carrier whole: other names, types and values inside it.

Bytes alone rarely get past a checksum or a parser. These functions open a file with the
library that wrote it, change what it holds, and write it again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

_NUMBERS = (0, -1, 1 << 40, 1 << 63, -(1 << 63), 1e308, float("nan"), float("inf"))
_TEXTS = ("", "\x00", "<script>", "../../etc/passwd", "a" * 10_000, "\ud800")
_TYPES = (pa.int8(), pa.int64(), pa.float16(), pa.float64(), pa.string(), pa.bool_())


def odd(random: Random) -> Any:
    """Return a value that stands where nobody expects it."""
    made: tuple[Callable[[], Any], ...] = (
        lambda: random.choice(_NUMBERS),
        lambda: random.choice(_TEXTS),
        lambda: None,
        list,
        dict,
        lambda: [random.choice(_NUMBERS)] * random.choice((1, 3, 1000)),
        lambda: [[]] * 5,
        lambda: {"a": [1]},
    )
    return random.choice(made)()


def mapping_changed(random: Random, values: dict[Any, Any]) -> dict[Any, Any]:
    """Swap two values, drop one, put an odd one in, or change one below."""
    keys = list(values)
    if not keys:
        return {"a": odd(random)}
    one, two = random.choice(keys), random.choice(keys)
    kind = random.randrange(5)
    if kind == 0:
        return {**values, one: values[two], two: values[one]}
    if kind == 1:
        return {key: value for key, value in values.items() if key != one}
    if kind == 2:
        return {**values, one: odd(random)}
    return {**values, one: value_changed(random, values[one])}


def value_changed(random: Random, value: Any) -> Any:
    """Return something near a value: other length, type, dtype or shape."""
    if isinstance(value, dict):
        return mapping_changed(random, value)
    if isinstance(value, torch.Tensor) and not value.is_nested:
        return tensor_changed(random, value)
    if isinstance(value, list) and value:
        at = random.randrange(len(value))
        rest = value[:at] + value[at + 1 :]
        changed = value_changed(random, value[at])
        return random.choice(
            (rest, value * 2, [*value[:at], changed, *value[at + 1 :]])
        )
    return odd(random)


def tensor_changed(random: Random, tensor: torch.Tensor) -> Any:
    dtypes = (torch.int8, torch.float16, torch.float64, torch.bool, torch.int64)
    changes = (
        lambda: tensor.to(random.choice(dtypes)),
        lambda: tensor[..., :-1],
        lambda: tensor.unsqueeze(0),
        lambda: tensor.reshape(-1),
        lambda: tensor[:0],
        lambda: tensor.T if tensor.dim() == 2 else tensor,
        lambda: torch.full_like(tensor, -1),
        lambda: tensor.float() * float("nan"),
        lambda: tensor.float().sub(1e30),
        lambda: tensor.reshape(-1)[:1].expand(1 << 16),
        lambda: torch.empty(0),
    )
    return random.choice(changes)()


def json_lines_changed(random: Random, data: bytes) -> bytes:
    """Change one record, or write one that no parser likes."""
    lines = data.splitlines()
    at = random.randrange(len(lines))
    kind = random.randrange(12)
    if kind == 0:
        lines[at] = b'{"a": ' + b"9" * 10_000_000 + b"}"
    elif kind == 1:
        lines[at] = b'{"a": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    elif kind == 2:
        lines[at] = b'{"a": [' + b"[]," * 2_000_000 + b"[]]}"
    else:
        record = mapping_changed(random, json.loads(lines[at]))
        lines[at] = json.dumps(record).encode("utf-8", "surrogatepass")
    return b"\n".join(lines) + b"\n"


def torch_changed(random: Random, data: bytes) -> bytes:
    """Change one value of a dictionary that `torch.save` wrote."""
    root = torch.load(io.BytesIO(data), weights_only=True)
    changed = mapping_changed(random, root)
    buffer = io.BytesIO()
    torch.save(changed, buffer)
    return buffer.getvalue()


def parquet_changed(random: Random, data: bytes) -> bytes:
    """Rename, drop, double, cast or empty a column, or lose the metadata."""
    table = pq.read_table(io.BytesIO(data))
    at = random.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    others = [f"{n}?" if n == name else n for n in table.column_names]
    other = random.choice(_TYPES)
    kind = random.choice(
        (column.type, other, pa.list_(other), pa.list_(pa.list_(other)))
    )
    changes = (
        lambda: table.rename_columns(others),
        lambda: table.remove_column(at),
        lambda: table.append_column(name, column),
        lambda: table.replace_schema_metadata(None),
        lambda: table.slice(random.randrange(table.num_rows + 1), random.randrange(3)),
        lambda: table.set_column(at, name, pa.nulls(table.num_rows, kind)),
    )
    sink = io.BytesIO()
    pq.write_table(random.choice(changes)(), sink)
    return sink.getvalue()
