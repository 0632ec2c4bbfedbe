"""Time and memory of opening a verl file with 20 GB of `pixel_values`.

The file is sparse: its pixels are a hole that takes no disk. Usage:

    python -m tests.benchmarks.load_sparse

Memory is read from /proc, so it runs on Linux only.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

import torch

from tests.loaders.verl_writer import pickled

SAMPLES, IMAGES, GRID = 16, 15, (1, 118, 150)  # about 1652 x 2100 pixels a screenshot
PATCHES, DIM = GRID[0] * GRID[1] * GRID[2], 1176
IMAGE_TOKENS, ROUND = PATCHES // 4, 64
IMAGE, MARK = 151655, 151652
MEASURE = """
import sys, time
import rounddiag as rd

def most_megabytes():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024

def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start

rd.load  # imports torch
before = most_megabytes()
first = seconds(lambda: rd.load(sys.argv[1]))
resident = most_megabytes()
best = min(seconds(lambda: rd.load(sys.argv[1])) for _ in range(5))
batch = rd.load(sys.argv[1])
rounds = [shot.round for shot in batch.images[0]]
print(f"{batch!r}, {sum(map(len, batch.images))} screenshots")
print(f"load: {first:.2f} s the first time, {best:.2f} s the best of 5")
print(f"resident: {before:.0f} MB after the imports, {resident:.0f} MB after load")
print(f"rounds of the first sample's screenshots: {rounds}")
print(f"one screenshot: {seconds(batch.images[-1][-1].image):.2f} s")
"""


class Hole:
    """Pickles as a storage does, with a file of its own inside: a marker at first."""

    def __init__(self, marker: bytes) -> None:
        self.marker = bytes(bytearray(marker))  # a new object, or the memo is used

    def __reduce__(self) -> tuple[object, ...]:
        return torch.storage._load_from_bytes, (self.marker,)


class Pixels:
    """Pickles as the `pixel_values` of one sample do."""

    def __init__(self, marker: bytes) -> None:
        self.hole = Hole(marker)

    def __reduce__(self) -> tuple[object, ...]:
        shape, stride = (IMAGES * PATCHES, DIM), (DIM, 1)
        hooks: OrderedDict[str, object] = OrderedDict()
        return torch._utils._rebuild_tensor_v2, (
            self.hole,
            0,
            shape,
            stride,
            False,
            hooks,
        )


def storage_header() -> bytes:
    """Return what stands before the number of elements in a stored storage."""
    buffer = io.BytesIO()
    storage = torch.storage.TypedStorage(
        wrap_storage=torch.zeros(1).untyped_storage(),
        dtype=torch.float32,
        _internal=True,
    )
    torch.save(storage, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()[:-12]


def tensors() -> dict[str, torch.Tensor]:
    """Return the other fields: fifteen rounds, a screenshot before each."""
    screen = [MARK] + [IMAGE] * IMAGE_TOKENS
    prompt, response, mask = [1, *screen, 2], [], []
    for number in range(IMAGES):
        seen = screen if number else []
        response += [*seen, *range(100, 100 + ROUND)]
        mask += [0] * len(seen) + [1] * ROUND
    ids = torch.tensor(prompt + response).repeat(SAMPLES, 1)
    written = torch.tensor(mask).repeat(SAMPLES, 1)
    log_probs = -torch.rand(written.shape, generator=torch.Generator().manual_seed(0))
    return {
        "prompts": ids[:, : len(prompt)],
        "responses": ids[:, len(prompt) :],
        "response_mask": written,
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "position_ids": torch.arange(ids.shape[1]).repeat(SAMPLES, 4, 1),
        "rollout_log_probs": log_probs * written,
        "old_log_probs": log_probs * 1.01,
    }


def write(path: Path) -> None:
    """Write the file: where a marker stands, a hole as large as the pixels."""
    header = storage_header()
    marker = header + b"a hole goes here" * 16
    count = IMAGES * PATCHES * DIM
    grid = torch.tensor([GRID] * IMAGES)
    inputs = [
        {"pixel_values": Pixels(marker), "image_grid_thw": grid.clone()}
        for _ in range(SAMPLES)
    ]
    data = pickled(tensors(), {"multi_modal_inputs": inputs}, protocol=3)
    first, *rest = data.split(b"B" + len(marker).to_bytes(4, "little") + marker)
    with path.open("wb") as file:
        file.write(first)
        for piece in rest:
            size = len(header) + 8 + 4 * count
            file.write(b"\x8e" + size.to_bytes(8, "little"))  # BINBYTES8
            file.write(header + count.to_bytes(8, "little"))
            file.seek(4 * count, 1)
            file.write(piece)


def main() -> None:
    """Write the file, and open it in an interpreter of its own."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sparse.pkl"
        write(path)
        disk = path.stat().st_blocks * 512 / 1e6
        print(f"{path.stat().st_size / 1e9:.1f} GB, of which {disk:.0f} MB on disk")
        subprocess.run([sys.executable, "-c", MEASURE, str(path)], check=True)


if __name__ == "__main__":
    main()
