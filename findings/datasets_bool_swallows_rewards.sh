#!/bin/sh
# datasets writes a reward of 0.5 as True where the first 1000 rows were True or False.
#
# Guess, before the run: an error, as it is for 1000 times 0 and then 0.5.
#
# Versions: datasets 5.2.0, pyarrow 26.0.1.
#
# What is so: `map` and `from_generator` take a column's type from their first batch of 1000 rows
# and cast the later batches to it. From integer to 0.5 the cast raises an error ("was truncated").
# From bool every number but 0 becomes True, without a word: 0.5, 0.01 and -1 alike. A later batch
# that mixes both (True and 0.5) raises an error, so only a batch of numbers passes.
#
# Who meets it: rollouts in the order of their tasks. The first task's check answers True or False,
# the next task's gives a share of the reward or a penalty: all of them are stored as full success.
# A trial with fewer than 1000 rows never shows it.
#
# Output seen:
#   0, then 0.5: ArrowInvalid
#   False, then True and 0.5: ArrowInvalid
#   map, False, then 0.5, 0.01, -1, 0.0: bool [True, True, True, False]
#   from_generator, the same: bool [True, True, True, False]
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q datasets==5.2.0 pyarrow==26.0.1 || exit 3
HF_HOME="$tmp/home"
export HF_HOME
"$tmp/venv/bin/python" -c "import datasets" || exit 3
"$tmp/venv/bin/python" - <<'PY' || exit 1
import datasets

datasets.disable_progress_bars()


def by_map(first, later):
    rows = datasets.Dataset.from_dict({"row": list(range(1000 + len(later)))})
    table = rows.map(
        lambda row: {"reward": first if row["row"] < 1000 else later[row["row"] - 1000]}
    )
    return table.features["reward"].dtype, table["reward"][1000:]


def by_generator(first, later):
    def rows():
        for reward in [first] * 1000 + later:
            yield {"reward": reward}

    table = datasets.Dataset.from_generator(rows)
    return table.features["reward"].dtype, table["reward"][1000:]


def error_of(build):
    try:
        build()
    except Exception as error:
        return type(error).__name__
    return "no error"


integers = error_of(lambda: by_map(0, [0.5]))
print("0, then 0.5:", integers)
mixed = error_of(lambda: by_map(False, [True, 0.5]))
print("False, then True and 0.5:", mixed)
mapped = by_map(False, [0.5, 0.01, -1, 0.0])
print("map, False, then 0.5, 0.01, -1, 0.0:", *mapped)
generated = by_generator(False, [0.5, 0.01, -1, 0.0])
print("from_generator, the same:", *generated)
assert integers == mixed == "ArrowInvalid"
assert mapped == generated == ("bool", [True, True, True, False])
PY
