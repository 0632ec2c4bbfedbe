"""Count the image tokens that processors write, beside what rounddiag reads from them.

Runs in the environment of `vision`. Each processor, with what its class sets, gets two
pictures of a screen with a word between them. It prints the image tokens of a picture,
the runs in which they stand, and the size to which the picture was resized: as the
processor has written them, and as rounddiag reads them from ids, patches and grids.
It fails where the two differ.
`python processors.py --write FILE` also writes the page of the site.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import transformers
from PIL import Image
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tests.interop.torchvision_operators  # noqa: F401 the wheel lacks two of them
from rounddiag.vision import patch_screenshots
from rounddiag.vision.image_tokens import TokenRuns

SCREENS = [(1920, 1080), (1080, 1920), (384, 1216), (70, 70)]
# Names under which processors ask a tokenizer for its tokens.
SPECIAL = {
    f"{name}_token": f"<|{name}|>"
    for name in (
        *("image", "video", "audio", "vision_start", "vision_end", "fake_image"),
        *("global_image", "start_image", "end_image", "image_start", "image_end"),
        *("video_start", "video_end", "boi", "eoi", "boa", "eoa", "img_line_break"),
        *(
            "slice_start",
            "slice_end",
            "image_id_start",
            "image_id_end",
            "image_thumbnail",
        ),
    )
} | {"context_image_token": "<|image|>"}
ADDED = (  # those that processors name by themselves
    *("<image>", "<|patch|>", "<|image_start|>", "<|image_end|>", "<img>", "</img>"),
    *("<|tile_x_separator|>", "<|tile_y_separator|>", "[IMG]", "[IMG_BREAK]"),
    *("[IMG_END]", "<fake_token_around_image>", "<global-img>", "<|IMG_PATCH|>"),
    *("<|START_OF_IMG|>", "<|END_OF_IMG|>", "TILE_GLOBAL", "TILE", "<IMG_ATOM>"),
    *("<IMG_START>", "<IMG_END>", "<IMG_COL>", "<IMG_ROW>", "<IMG_GRID>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
    *(f"<|img_row_{row}_col_{col}|>" for row in range(1, 11) for col in range(1, 11)),
)


class Kind(NamedTuple):
    """A processor: module and class of it, and of its parts; what configs change."""

    name: str
    processor: str
    image: str
    video: str = ""
    options: Mapping[str, Any] = MappingProxyType({})
    image_options: Mapping[str, Any] = MappingProxyType({})


QWEN = "qwen2_vl.Qwen2VLImageProcessor"
QWEN_VIDEO = "qwen2_vl.Qwen2VLVideoProcessor"
GOT = "got_ocr2.GotOcr2ImageProcessor"
PIXTRAL = "pixtral.PixtralImageProcessor"
KINDS = [
    Kind("Qwen2-VL", "qwen2_vl.Qwen2VLProcessor", QWEN, QWEN_VIDEO),
    Kind("Qwen2.5-VL", "qwen2_5_vl.Qwen2_5_VLProcessor", QWEN, QWEN_VIDEO),
    Kind(
        "Qwen3-VL",
        "qwen3_vl.Qwen3VLProcessor",
        QWEN,
        "qwen3_vl.Qwen3VLVideoProcessor",
        {},
        {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
    ),
    Kind(
        "GLM-4.6V",
        "glm46v.Glm46VProcessor",
        "glm46v.Glm46VImageProcessor",
        "glm46v.Glm46VVideoProcessor",
    ),
    Kind(
        "Kimi-K2.5",
        "kimi_k25.Kimi_K25Processor",
        "kimi_k25.Kimi_K25ImageProcessor",
        "kimi_k25.Kimi_K25VideoProcessor",
    ),
    Kind(
        "PaddleOCR-VL",
        "paddleocr_vl.PaddleOCRVLProcessor",
        "paddleocr_vl.PaddleOCRVLImageProcessor",
    ),
    Kind(
        "ERNIE-4.5-VL",
        "ernie4_5_vl_moe.Ernie4_5_VLMoeProcessor",
        "ernie4_5_vl_moe.Ernie4_5_VLMoeImageProcessor",
        "ernie4_5_vl_moe.Ernie4_5_VLMoeVideoProcessor",
    ),
    Kind(
        "VideoLLaMA 3",
        "video_llama_3.VideoLlama3Processor",
        "video_llama_3.VideoLlama3ImageProcessor",
        "video_llama_3.VideoLlama3VideoProcessor",
    ),
    Kind("Llama 4", "llama4.Llama4Processor", "llama4.Llama4ImageProcessor"),
    Kind(
        "SmolVLM",
        "smolvlm.SmolVLMProcessor",
        "smolvlm.SmolVLMImageProcessor",
        "smolvlm.SmolVLMVideoProcessor",
    ),
    Kind("Idefics3", "idefics3.Idefics3Processor", "idefics3.Idefics3ImageProcessor"),
    Kind("Pixtral", "pixtral.PixtralProcessor", PIXTRAL),
    Kind(
        "InternVL",
        "internvl.InternVLProcessor",
        GOT,
        "internvl.InternVLVideoProcessor",
    ),
    Kind("Gemma 3", "gemma3.Gemma3Processor", "gemma3.Gemma3ImageProcessor"),
    Kind(
        "Gemma 4",
        "gemma4.Gemma4Processor",
        "gemma4.Gemma4ImageProcessor",
        "gemma4.Gemma4VideoProcessor",
    ),
    Kind(
        "LLaVA-OneVision",
        "llava_onevision.LlavaOnevisionProcessor",
        "llava_onevision.LlavaOnevisionImageProcessor",
        "llava_onevision.LlavaOnevisionVideoProcessor",
        {"num_image_tokens": 729, "vision_feature_select_strategy": "full"},
    ),
    Kind(
        "MiniCPM-V 4.6",
        "minicpmv4_6.MiniCPMV4_6Processor",
        "minicpmv4_6.MiniCPMV4_6ImageProcessor",
        "minicpmv4_6.MiniCPMV4_6VideoProcessor",
    ),
    Kind(
        "Command A Vision",
        "cohere2_vision.Cohere2VisionProcessor",
        "cohere2_vision.Cohere2VisionImageProcessor",
    ),
    Kind("Aya Vision", "aya_vision.AyaVisionProcessor", GOT),
    Kind("Ovis2", "ovis2.Ovis2Processor", "ovis2.Ovis2ImageProcessor"),
    Kind("LFM2-VL", "lfm2_vl.Lfm2VlProcessor", "lfm2_vl.Lfm2VlImageProcessor"),
]


def find(path: str, part: str) -> type:
    """Return `Class` of `module.Class`, in the file of a part of a processor."""
    module, name = path.split(".")
    found: type = getattr(
        import_module(f"transformers.models.{module}.{part}_{module}"), name
    )
    return found


def new_tokenizer() -> PreTrainedTokenizerFast:
    """Return one whose tokens are characters, and the special ones of processors."""
    characters = {chr(code): code for code in range(128)}
    text = Tokenizer(models.WordLevel(characters))
    text.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    ends = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "[PAD]"}
    made = PreTrainedTokenizerFast(
        tokenizer_object=text, extra_special_tokens=SPECIAL, **ends
    )
    made.add_tokens([*ADDED], special_tokens=True)
    return made


def new_processor(kind: Kind) -> Any:
    parts: dict[str, Any] = {
        "image_processor": find(kind.image, "image_processing")(**kind.image_options),
        "tokenizer": new_tokenizer(),
    }
    if kind.video:
        parts["video_processor"] = find(kind.video, "video_processing")()
    if kind.name == "Gemma 4":
        sound = find("gemma4.Gemma4AudioFeatureExtractor", "feature_extraction")
        parts["feature_extractor"] = sound()
    return find(kind.processor, "processing")(**parts, **kind.options)


class Counted(NamedTuple):
    """Image tokens and runs of each of two pictures, and their width and height."""

    tokens: list[int]
    runs: list[int]
    size: list[tuple[int, int]]


def write_prompt(processor: Any, screen: tuple[int, int]) -> tuple[Any, int]:
    """Return what a processor makes of two pictures, and its image token."""
    noise = np.random.default_rng(0).integers(0, 256, (*screen[::-1], 3), np.uint8)
    pictures = [
        Image.fromarray(noise),
        Image.fromarray(np.ascontiguousarray(noise[::-1])),
    ]
    mark = processor.image_token
    text = f"look {mark} then {mark} now"
    made = processor(images=pictures, text=[text], return_tensors="pt")
    token = processor.tokenizer.convert_tokens_to_ids(mark)
    ids = made["input_ids"][0]
    if (ids == token).sum() <= len(pictures):  # a mark of the text alone
        token = int(ids.bincount().argmax())
    return made, token


def as_written(made: Any, token: int) -> Counted:
    """Count on both sides of the word in the middle."""
    ids = made["input_ids"][0].numpy()
    word = [*map(ord, " then ")]
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(word))
    (middle,) = np.flatnonzero((windows == word).all(axis=1))
    parts = [part == token for part in (ids[:middle], ids[middle:])]
    starts = [np.diff(part.astype(int), prepend=0) == 1 for part in parts]
    return Counted(
        [int(part.sum()) for part in parts],
        [int(each.sum()) for each in starts],
        resized(made),
    )


def resized(made: Any) -> list[tuple[int, int]]:
    """Return the sizes of patched pictures, from their grids; none of other layouts."""
    grids, values = made.get("image_grid_thw"), made["pixel_values"]
    if grids is None:
        return []
    # A patch has three channels; Qwen's has each twice, as a video has two frames.
    area = values[0].numel() // 3
    side = (
        round(area**0.5) if round(area**0.5) ** 2 == area else round((area / 2) ** 0.5)
    )
    return [(width * side, height * side) for _, height, width in grids.tolist()]


def as_read(made: Any, token: int) -> Counted:
    """Return what rounddiag reads: ids, the number of pictures, patches and grids."""
    ids = made["input_ids"][0].numpy()
    runs = TokenRuns.of_ids(ids, token)
    whole = runs.of_pictures(ids, 2)
    inside = [
        (runs.start >= start) & (runs.start < start + length)
        for start, length in zip(whole.start, whole.length, strict=True)
    ]
    values, grids = made["pixel_values"], made.get("image_grid_thw")
    shots = None
    if grids is not None:
        rows = [(t, h, w) for t, h, w in grids.tolist()]
        shots = patch_screenshots(lambda a, b: values[a:b], values.shape, rows)
    return Counted(
        [int(runs.length[each].sum()) for each in inside],
        [int(each.sum()) for each in inside],
        [shot.size for shot in shots or ()],
    )


def row_of(kind: Kind, screen: tuple[int, int], read: Counted) -> list[str]:
    sizes = {f"{width} x {height}" for width, height in read.size}
    numbers = [{f"{number:,}" for number in column} for column in read[:2]]
    shown = [" or ".join(sorted(each)) for each in (*numbers, sizes)]
    return [kind.name, "{} x {}".format(*screen), *shown]


def write_page(path: Path, rows: list[list[str]]) -> None:
    """Write the page of the site."""
    heads = ["processor", "screen", "image tokens", "runs", "resized to"]
    lines = [
        "# Image tokens of a screen",
        "",
        f"Each processor of transformers {transformers.__version__} got two pictures of"
        " a screen, with the values that its class sets; the config of a model may set"
        " others. In all rows rounddiag reads from the ids what the processor has"
        " written, given the number of pictures. The last column is the size of the"
        " picture that rounddiag rebuilds from patches, where it can. Made by"
        " `tests/interop/processors.py`.",
        "",
        *("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * 5, *rows)),
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    rows, unequal = [], []
    for kind in KINDS:
        processor = new_processor(kind)
        for screen in SCREENS:
            made, token = write_prompt(processor, screen)
            written, read = as_written(made, token), as_read(made, token)
            rows.append(row_of(kind, screen, read))
            print(*rows[-1], sep="\t")
            is_equal = read[:2] == written[:2] and read.size in ([], written.size)
            if not (is_equal and all(written.tokens)):
                unequal.append(f"{kind.name} {screen}: {written}, read as {read}")
    if unequal:
        sys.exit("\n".join(unequal))
    if sys.argv[1:2] == ["--write"]:
        write_page(Path(sys.argv[2]), rows)


if __name__ == "__main__":
    main()
