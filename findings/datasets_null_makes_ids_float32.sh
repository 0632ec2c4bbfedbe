#!/bin/sh
# One null in an integer column: with_format gives all its ids as float32, in whole batches only.
#
# Guess, before the run: float64, as in pandas, so that ids stay exact up to 2^53.
#
# Versions: datasets 5.2.0, pyarrow 26.0.1, numpy 2.4.6.
#
# What is so: without a null int64. With one null in the batch, `with_format("numpy")` gives
# float32 (and `with_format("torch")` the same): 16777217 is 16777216, a clock in milliseconds is
# off by a minute. A batch that has no null is int64 again, so the dtype changes from batch to batch
# of one column, and a single row is int64. `with_format("pandas")` is float64. A column of float64
# is float64 read row by row and float32 in a batch. `with_format("arrow")` keeps all.
#
# Who meets it: whoever joins by a numeric id or sorts by a time stamp from a batch: two episodes
# get one id, the groups of an advantage are mixed. Token ids (below 2^24) stay right, so the usual
# check on ids passes.
#
# Output seen:
#   batch: float32 [16777216.0, 16777220.0, nan]
#   batch without the null: int64 [16777217, 16777219]
#   row: int64 16777217
#   pandas: float64
#   time stamp 1795867200123 is off by 51835 ms
#   float64 log-prob: row float64, batch float32
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q datasets==5.2.0 pyarrow==26.0.1 numpy==2.4.6 || exit 3
HF_HOME="$tmp/home"
export HF_HOME
"$tmp/venv/bin/python" -c "import datasets" || exit 3
"$tmp/venv/bin/python" - <<'PY' || exit 1
from datasets import Dataset

clock = 1795867200123
table = Dataset.from_dict(
    {
        "episode": [16777217, 16777219, None],
        "time": [clock, None, clock],
        "log_prob": [-0.1, -0.2, -0.3],
    }
)
assert table.features["episode"].dtype == table.features["time"].dtype == "int64"
rows = table.with_format("numpy")
batch, whole, row = rows[:]["episode"], rows[:2]["episode"], rows[0]["episode"]
print("batch:", batch.dtype, batch.tolist())
print("batch without the null:", whole.dtype, whole.tolist())
print("row:", row.dtype, row)
assert batch.dtype == "float32" and batch.tolist()[:2] == [16777216.0, 16777220.0]
assert whole.dtype == row.dtype == "int64" and whole.tolist() == [16777217, 16777219]
pandas = table.with_format("pandas")[:]["episode"].dtype
print("pandas:", pandas)
assert pandas == "float64"
off = abs(int(rows[:]["time"][0]) - clock)
print(f"time stamp {clock} is off by {off} ms")
assert off > 1000
one, many = rows[0]["log_prob"].dtype, rows[:]["log_prob"].dtype
print(f"float64 log-prob: row {one}, batch {many}")
assert (one, many) == ("float64", "float32")
PY
