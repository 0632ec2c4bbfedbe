#!/bin/sh
# safetensors.numpy writes the memory of an array, not its values.
#
# Guess, before the run: an array in Fortran order, a transposed one and a slice come back equal
# (the torch half of the library raises an error for such tensors, the numpy half copies them).
#
# Versions: safetensors 0.8.0 beside 0.7.0; numpy 2.4.6, pandas 3.1.1.
#
# What is so: 0.7.0 is right. 0.8.0 writes the bytes that lie behind the array's first element, in
# the order of memory, under the array's shape. Shape, dtype and the set of numbers often look
# right, the places are wrong, and there is no error and no warning. `DataFrame.to_numpy()` of
# columns of one dtype is such an array. Its docstring asks for contiguous arrays; it does not
# check. `np.ascontiguousarray(a)` before saving is right in both.
#
# Who meets it: whoever stores the log-probs of two engines as one table, (token, engine). After the
# round trip half of each engine's values belong to the other engine and to other tokens. The mean
# over the whole file is right; the mismatch of each token is invented.
#
# Output seen:
#   0.7.0 frame [[-1.0, -5.0], [-2.0, -6.0], [-3.0, -7.0]]
#   0.7.0 equal: rows True, transposed True, columns True, every second True, frame True
#   0.8.0 frame [[-1.0, -2.0], [-3.0, -5.0], [-6.0, -7.0]]
#   0.8.0 equal: rows True, transposed False, columns False, every second False, frame False
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q numpy==2.4.6 pandas==3.1.1 || exit 3
for version in 0.7.0 0.8.0; do
    "$tmp/venv/bin/pip" install -q --no-deps --target "$tmp/$version" "safetensors==$version" || exit 3
done
cat >"$tmp/look.py" <<'PY'
import sys

import numpy as np
import pandas as pd
import safetensors
from safetensors.numpy import load, save

if len(sys.argv) == 1:
    sys.exit()
grid = np.arange(24.0).reshape(4, 6)
frame = pd.DataFrame({"old": [-1.0, -2.0, -3.0], "rollout": [-5.0, -6.0, -7.0]})
arrays = {
    "rows": grid[1:],
    "transposed": grid.T,
    "columns": grid[:, 2:],
    "every second": grid[:, ::2],
    "frame": frame.to_numpy(),
}
back = {name: load(save({"a": array}))["a"] for name, array in arrays.items()}
equal = {name: bool(np.array_equal(back[name], array)) for name, array in arrays.items()}
version = safetensors.__version__
print(version, "frame", back["frame"].tolist())
print(version, "equal:", ", ".join(f"{name} {same}" for name, same in equal.items()))
assert version == sys.argv[1]
if version == "0.7.0":
    assert all(equal.values())
else:
    assert [name for name, same in equal.items() if same] == ["rows"]
    assert back["frame"].tolist() == [[-1.0, -2.0], [-3.0, -5.0], [-6.0, -7.0]]
    assert all(back[name].shape == array.shape for name, array in arrays.items())
    copied = load(save({"a": np.ascontiguousarray(grid.T)}))["a"]
    assert np.array_equal(copied, grid.T)
PY
for version in 0.7.0 0.8.0; do
    PYTHONPATH="$tmp/$version" "$tmp/venv/bin/python" "$tmp/look.py" || exit 3
done
for version in 0.7.0 0.8.0; do
    PYTHONPATH="$tmp/$version" "$tmp/venv/bin/python" "$tmp/look.py" "$version" || exit 1
done
