#!/bin/sh
# pl.DataFrame(rows) cuts a reward of 0.5 down to 0 if the first 100 rows were whole numbers.
#
# Guess, before the run: an error. (It was written for read_ndjson, and taken to hold for a list of
# rows too: strict=True is the default, and "every value must match" is what its name says.)
#
# Versions: polars 2.1.0.
#
# What is so: the schema comes from the first 100 rows. `read_ndjson` raises an error at the first
# 0.5 after them; `pl.DataFrame(rows)` and `pl.from_dicts(rows)` write the whole part into the
# integer column, without a word: 0.5 is 0, 0.99 is 0, -1.5 is -1. A column given as a list
# (`pl.DataFrame({"reward": [...]})`) raises an error. A key that the first 100 rows lack is left
# out, also by read_ndjson. `infer_schema_length=None` is right.
#
# Who meets it: rollouts that are appended to a list of dicts, where the first hundred fail or
# succeed (0 or 1) and a later one earns part of the reward. The mean reward of the step is too low,
# every column has its dtype, and an `error` key that first comes later is gone.
#
# Output seen:
#   read_ndjson: ComputeError
#   DataFrame of columns: TypeError
#   DataFrame of rows: Int64, last rewards [0, 0, -1], sum -1
#   from_dicts: Int64, last rewards [0, 0, -1], sum -1
#   infer_schema_length=None: Float64, last rewards [0.5, 0.99, -1.5], sum -0.01
#   a later key, read by DataFrame of rows: ['reward'], by read_ndjson: ['reward']
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q polars==2.1.0 || exit 3
"$tmp/venv/bin/python" -c "import polars" || exit 3
"$tmp/venv/bin/python" - <<'PY' || exit 1
import io
import json

import polars as pl

rewards = [0] * 100 + [0.5, 0.99, -1.5]
rows = [{"reward": reward} for reward in rewards]
late = [{"reward": 0}] * 100 + [{"reward": 0, "error": "timeout"}]


def as_lines(rows):
    return io.BytesIO("\n".join(json.dumps(row) for row in rows).encode())


def error_of(build):
    try:
        build()
    except Exception as error:
        return type(error).__name__
    return "no error"


def look(name, frame):
    column = frame["reward"]
    last = column.tail(3).to_list()
    print(f"{name}: {column.dtype}, last rewards {last}, sum {round(column.sum(), 2)}")
    return last


read = error_of(lambda: pl.read_ndjson(as_lines(rows)))
print("read_ndjson:", read)
columns = error_of(lambda: pl.DataFrame({"reward": rewards}))
print("DataFrame of columns:", columns)
assert read == "ComputeError" and columns == "TypeError"
assert look("DataFrame of rows", pl.DataFrame(rows)) == [0, 0, -1]
assert look("from_dicts", pl.from_dicts(rows)) == [0, 0, -1]
whole = pl.DataFrame(rows, infer_schema_length=None)
assert look("infer_schema_length=None", whole) == [0.5, 0.99, -1.5]
by_rows, by_lines = pl.DataFrame(late).columns, pl.read_ndjson(as_lines(late)).columns
print(f"a later key, read by DataFrame of rows: {by_rows}, by read_ndjson: {by_lines}")
assert by_rows == by_lines == ["reward"]
PY
