#!/bin/sh
# polars sums a 32-bit integer column in 32 bit: the total turns negative, or starts again at 0.
#
# Guess (not asked beforehand: met beside another question, and taken for granted until then): the
# sum of a 32-bit column is 64-bit, as in numpy, pandas and pyarrow, and as polars itself does it
# for 8-bit and 16-bit columns. For sums by group, over(), SQL and unsigned columns the guess was
# written after that, and was right: they wrap too.
#
# Versions: polars 2.1.0 beside numpy 2.4.6, pandas 3.1.1, pyarrow 26.0.1.
#
# What is so: sum() of Int32 is Int32 and of UInt32 is UInt32, and wraps without an error: of a
# column, by group, over(), in SQL, of the lists in a column, lazily and eagerly. Int8, Int16, UInt8
# and UInt16 become Int64. mean() is right, so mean times count is not the sum. Lengths are UInt32:
# `list.len()` and `str.len_chars()`, whose sums start again at 0 at 4,294,967,296.
#
# Who meets it: whoever adds up pixels or tokens of a run. An image size that a processor wrote as
# int32 is enough: from the 1036th full HD screenshot on, the pixels of a task are negative, and a
# cost or a budget computed from them is as well. Below that size every test is green.
#
# Output seen:
#   1035 screenshots: polars 2146176000
#   1036 screenshots: polars -2146717696 (by group, over, SQL and lists: the same)
#   1036 screenshots: numpy, pandas, pyarrow 2148249600
#   dtypes of sums: Int8 Int64, Int16 Int64, UInt16 Int64, Int32 Int32, UInt32 UInt32
#   two lengths of 2147483648: sum 0, dtype of list.len() UInt32
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q polars==2.1.0 numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1 || exit 3
"$tmp/venv/bin/python" -c "import numpy, pandas, polars, pyarrow.compute" || exit 3
"$tmp/venv/bin/python" - <<'PY' || exit 1
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

full_hd = 1920 * 1080


def totals(num_screenshots):
    pixels = np.full(num_screenshots, full_hd, dtype=np.int32)
    frame = pl.DataFrame({"task": ["a"] * num_screenshots, "pixels": pixels})
    column = pl.col("pixels").sum()
    ways = {
        frame["pixels"].sum(),
        frame.lazy().select(column).collect().item(),
        frame.group_by("task").agg(column)["pixels"][0],
        frame.select(column.over("task"))["pixels"][0],
        pl.SQLContext(frame=frame).execute("SELECT SUM(pixels) FROM frame").collect().item(),
        pl.Series([pixels.tolist()], dtype=pl.List(pl.Int32)).list.sum()[0],
    }
    others = {int(pixels.sum()), int(pd.Series(pixels).sum()), pc.sum(pa.array(pixels)).as_py()}
    assert frame["pixels"].mean() == full_hd
    return ways, others


ways, others = totals(1035)
print("1035 screenshots: polars", *ways)
assert ways == others == {1035 * full_hd}
ways, others = totals(1036)
print("1036 screenshots: polars", *ways, "(by group, over, SQL and lists: the same)")
print("1036 screenshots: numpy, pandas, pyarrow", *others)
assert ways == {1036 * full_hd - 2**32} and others == {1036 * full_hd}

summed = {}
for name in ("Int8", "Int16", "UInt16", "Int32", "UInt32"):
    one = pl.DataFrame({"n": pl.Series([1], dtype=getattr(pl, name))})
    summed[name] = str(one.select(pl.col("n").sum()).dtypes[0])
print("dtypes of sums:", ", ".join(f"{name} {dtype}" for name, dtype in summed.items()))
assert list(summed.values()) == ["Int64", "Int64", "Int64", "Int32", "UInt32"]
wrapped = pl.Series([2**31, 2**31], dtype=pl.UInt32).sum()
length = pl.Series([[1, 2]]).list.len().dtype
print(f"two lengths of 2147483648: sum {wrapped}, dtype of list.len() {length}")
assert wrapped == 0 and length == pl.UInt32
PY
