#!/bin/sh
# pyarrow finds no NaN in a Parquet file while it filters on reading, and finds it after reading.
#
# Guess, before the run: a filter gives the same rows while a file is read and afterwards.
#
# Versions: pyarrow 26.0.1.
#
# What is so: Parquet's statistics (smallest and largest value of a row group) leave NaN out, and
# the reader takes them for all values. Where the other values of a row group are equal, it knows
# "x is 5.0" and answers `is_nan(x)` with no row. Where all others are at most 7, `~(x <= 7)` has no
# row, and has the NaN rows after reading. The same by `pyarrow.dataset` and by
# `pyarrow.parquet.read_table(filters=...)`. Values that differ and `is_nan`: right.
#
# Who meets it: a check of a run's saved steps for NaN that reads only the rows it looks for. In a
# column that is nearly constant (advantage 0.0, temperature 1.0, reward 0) the one NaN that ended
# the run is not found; "not within the bound" does not find it in any column.
#
# Output seen:
#   constant but for one NaN: is_nan while reading 0, by read_table 0, after reading 1
#   constant but for one NaN: not <= 7 while reading 0, by read_table 0, after reading 1
#   values that differ: is_nan while reading 1, by read_table 1, after reading 1
#   values that differ: not <= 7 while reading 0, by read_table 0, after reading 1
#   the same, written without statistics: 1, 1, 1, 1
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q pyarrow==26.0.1 || exit 3
"$tmp/venv/bin/python" -c "import pyarrow.dataset, pyarrow.parquet" || exit 3
cd "$tmp"
"$tmp/venv/bin/python" - <<'PY' || exit 1
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

field = ds.field("x")
conditions = {"is_nan": pc.is_nan(field), "not <= 7": ~(field <= 7)}
columns = {
    "constant but for one NaN": [float("nan")] + [5.0] * 999,
    "values that differ": [float("nan")] + [5.0, 0.0, -2.0] * 333,
}


def rows(values, condition, statistics=True):
    path = "steps.parquet"
    pq.write_table(pa.table({"x": values}), path, write_statistics=statistics)
    while_reading = ds.dataset(path).to_table(filter=condition).num_rows
    by_read_table = pq.read_table(path, filters=condition).num_rows
    after_reading = pq.read_table(path).filter(condition).num_rows
    return while_reading, by_read_table, after_reading


seen, without = [], []
for name, values in columns.items():
    for text, condition in conditions.items():
        seen.append(rows(values, condition))
        without.append(rows(values, condition, statistics=False))
        print(
            "{}: {} while reading {}, by read_table {}, after reading {}".format(
                name, text, *seen[-1]
            )
        )
print("the same, written without statistics:", ", ".join(str(each[0]) for each in without))
assert seen == [(0, 0, 1), (0, 0, 1), (1, 1, 1), (0, 0, 1)]
assert without == [(1, 1, 1)] * 4
PY
