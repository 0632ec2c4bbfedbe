"""Compare rebuilt screenshots with what the processors of transformers were given.

Runs in an environment with transformers, torch, torchvision and Pillow (see `vision`,
which makes it), and rounddiag on its path. Prints the mean absolute error per
processor, of 255, against the original that Pillow resized.
`python screenshots.py --write FOLDER` also writes small files for the test suite.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file

# The wheel of torchvision is built for CUDA: without it, its compiled operators are
# missing, and two must be known by name. The processors use none of them.
_NAMES = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    signature = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    _NAMES.define(signature)

import transformers  # noqa: E402
from transformers import Qwen2VLImageProcessor  # noqa: E402
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (  # noqa: E402
    Qwen2VLImageProcessorPil,
)
from transformers.models.qwen2_vl.video_processing_qwen2_vl import (  # noqa: E402
    Qwen2VLVideoProcessor,
)
from transformers.models.qwen3_vl.video_processing_qwen3_vl import (  # noqa: E402
    Qwen3VLVideoProcessor,
)

from rounddiag.vision import patch_screenshots  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rounddiag.vision import PatchScreenshot

    Found = Iterator[tuple[str, torch.dtype, list[float]]]

torch.set_num_threads(1)
SIZES = [(1920, 1080), (1280, 720), (1080, 2400), (448, 336), (333, 777), (64, 64)]
DTYPES = (torch.float32, torch.bfloat16)
MAX_ERROR = 2.0
# What Qwen3-VL's preprocessor_config.json says; the class is Qwen2-VL's.
QWEN3 = {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
KINDS: dict[str, dict[str, Any]] = {"Qwen2-VL, Qwen2.5-VL": {}, "Qwen3-VL": QWEN3}


def screen(width: int, height: int) -> Image.Image:
    """Draw what a screen has: areas, fine lines, text, and a photo's noise."""
    rng = random.Random(width * height)  # noqa: S311 no secrets
    picture = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    for _ in range(40):
        x, y = rng.randrange(width), rng.randrange(height)
        colour = f"#{rng.randrange(1 << 24):06x}"
        draw.rectangle((x, y, x + width // 6, y + height // 9), fill=colour)
        draw.line((x, 0, x, height), fill="black")
        draw.text((x, y), "Search settings", fill="black")
    noise = Image.effect_noise((max(1, width // 4), max(1, height // 4)), 60)
    picture.paste(noise.convert("RGB"), (width // 2, height // 2))
    return picture


def noise(width: int, height: int) -> Image.Image:
    """Draw what rounds worst: no two pixels alike."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def resized(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    return picture.resize(size, Image.Resampling.BICUBIC)


def error(rebuilt: Image.Image, original: Image.Image) -> float:
    """Return the mean absolute error, of 255, against the resized original."""
    expected = np.asarray(resized(original, rebuilt.size)).astype(float)
    return float(np.abs(np.asarray(rebuilt) - expected).mean())


def shots_of(values: torch.Tensor, grids: torch.Tensor) -> Sequence[PatchScreenshot]:
    rows = [(t, h, w) for t, h, w in grids.tolist()]
    shots = patch_screenshots(
        lambda start, stop: values[start:stop], values.shape, rows
    )
    assert shots is not None
    return shots


def of_images() -> Found:
    pictures = [*(screen(*size) for size in SIZES), noise(640, 480)]
    for cls in (Qwen2VLImageProcessorPil, Qwen2VLImageProcessor):
        for kind, options in KINDS.items():
            made = cls(**options)(images=pictures, return_tensors="pt")
            for dtype in DTYPES:
                values = made["pixel_values"].to(dtype)
                shots = shots_of(values, made["image_grid_thw"])
                found = [
                    error(s.image(), p) for s, p in zip(shots, pictures, strict=True)
                ]
                yield f"{cls.__name__}, {kind}", dtype, found


def of_videos() -> Found:
    """Compare every frame; all frames of a video have one size."""
    frames = [screen(640, 480), noise(640, 480)] * 2
    video = torch.from_numpy(np.stack([np.asarray(frame) for frame in frames]))
    for cls in (Qwen2VLVideoProcessor, Qwen3VLVideoProcessor):
        made = cls()(
            videos=[video.permute(0, 3, 1, 2)],
            do_sample_frames=False,
            cap_pixels_per_frame=False,
            return_tensors="pt",
        )
        for dtype in DTYPES:
            values = made["pixel_values_videos"].to(dtype)
            (shot,) = shots_of(values, made["video_grid_thw"])
            found = [error(shot.image(i), frame) for i, frame in enumerate(frames)]
            yield cls.__name__, dtype, found


def write(folder: Path) -> None:
    """Write what a processor made of a small screen, and the screen resized."""
    cases = list(zip(DTYPES, (screen(170, 80), screen(75, 170)), strict=True))
    kinds = zip(("qwen2-vl", "qwen3-vl"), KINDS.values(), strict=True)
    for kind, options in kinds:
        side = 2 * options.get("patch_size", 14)
        size = {"shortest_edge": side * side, "longest_edge": 2.1 * side * side}
        processor = Qwen2VLImageProcessorPil(**options, size=size)
        for dtype, picture in cases:
            made = processor(images=[picture], return_tensors="pt")
            ((_, height, width),) = made["image_grid_thw"].tolist()
            picture_shown = resized(picture, (width * side // 2, height * side // 2))
            tensors = {
                "pixel_values": made["pixel_values"].to(dtype),
                "image_grid_thw": made["image_grid_thw"],
                "resized": torch.tensor(np.asarray(picture_shown)),
            }
            name = f"transformers-{transformers.__version__}_{kind}_{str(dtype)[6:]}"
            save_file(tensors, folder / f"{name}.safetensors")


def main() -> None:
    worst = 0.0
    for found in (of_images(), of_videos()):
        for name, dtype, values in found:
            worst = max(worst, *values)
            text = " ".join(f"{value:.3f}" for value in values)
            print(f"{name:48} {str(dtype)[6:]:9} max {max(values):.3f}  [{text}]")
    if worst >= MAX_ERROR:
        sys.exit(f"an error of {worst} of 255 is not under {MAX_ERROR}")
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
