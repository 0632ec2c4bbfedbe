#!/bin/sh
# TensorDict.to(torch.bfloat16) makes one id of Qwen's end of turn and end of text, and rounds positions.
#
# Guess, before the run: integers and masks stay as they are, as with torch.nn.Module.to and the
# BatchFeature.to of transformers, which cast floating-point values only.
#
# Versions: tensordict 0.15.3, torch 2.13.0 (CPU), numpy 2.4.6.
#
# What is so: every leaf is cast, nested ones too; the docstring says so. .bfloat16() and .half() do
# the same. Casting back with .to(torch.int64) raises nothing and keeps the rounding. To move to the
# device of another TensorDict, .to(other) leaves dtypes alone; .to(other=other) casts all leaves if
# those of the other share a dtype (a second guess, that both are one call, missed too).
#
# Who meets it: whoever casts a batch of a trainer as they cast the output of a processor. Above 256
# bfloat16 has not every whole number: ids 151645 (<|im_end|>) and 151643 (<|endoftext|>) of Qwen
# are both 151552, counts and versions are others. An embedding refuses such ids; rotary embeddings
# take such positions without a word (tried once with Qwen3 of transformers 5.24.0: other logits).
#
# Output seen:
#   nn.Module.to(bfloat16): ids torch.int64, values torch.bfloat16
#   to(bfloat16): ids torch.bfloat16 [151552.0, 151552.0], positions [256.0, 4096.0], mask torch.bfloat16
#   and back: ids torch.int64 [151552, 151552]
#   half(): ids [inf, inf]
#   to(other): ids torch.int64 [151645, 151643]
#   to(other=other): ids torch.bfloat16 [151552.0, 151552.0]
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 tensordict==0.15.3 || exit 3
"$tmp/venv/bin/python" -c "import tensordict" || exit 3
"$tmp/venv/bin/python" -W ignore - <<'PY' || exit 1
import torch
from tensordict import TensorDict

ids = torch.tensor([[151645, 151643]])
batch = TensorDict(
    {
        "ids": ids,
        "positions": torch.tensor([[257, 4097]]),
        "mask": torch.tensor([[True, False]]),
        "turns": {"num_tokens": torch.tensor([1001])},
    },
    batch_size=[1],
)
module = torch.nn.Module()
module.register_buffer("ids", ids)
module.register_buffer("values", torch.zeros(2))
module.to(torch.bfloat16)
print(f"nn.Module.to(bfloat16): ids {module.ids.dtype}, values {module.values.dtype}")
assert module.ids.dtype == torch.int64 and module.values.dtype == torch.bfloat16

cast = batch.to(torch.bfloat16)
rows = {name: cast[name][0].tolist() for name in ("ids", "positions")}
print(
    f"to(bfloat16): ids {cast['ids'].dtype} {rows['ids']}, positions {rows['positions']},"
    f" mask {cast['mask'].dtype}"
)
assert rows == {"ids": [151552.0, 151552.0], "positions": [256.0, 4096.0]}
assert cast["mask"].dtype == cast["turns", "num_tokens"].dtype == torch.bfloat16
back = cast.to(torch.int64)["ids"]
print(f"and back: ids {back.dtype} {back[0].tolist()}")
assert back.tolist() == [[151552, 151552]]
halved = batch.half()["ids"][0].tolist()
print(f"half(): ids {halved}")
assert halved == [float("inf")] * 2 and torch.equal(batch.bfloat16()["ids"], cast["ids"])

other = TensorDict({"log_probs": torch.zeros(1, 2, dtype=torch.bfloat16)}, batch_size=[1])
moved, named = batch.to(other)["ids"], batch.to(other=other)["ids"]
print(f"to(other): ids {moved.dtype} {moved[0].tolist()}")
print(f"to(other=other): ids {named.dtype} {named[0].tolist()}")
assert torch.equal(moved, ids) and torch.equal(named, cast["ids"])
PY
