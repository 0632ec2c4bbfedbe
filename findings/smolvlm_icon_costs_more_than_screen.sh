#!/bin/sh
# SmolVLM and Idefics3 spend more image tokens on an icon of 32 x 32 pixels than on a full HD screen.
#
# Guess, taken for granted and not written down before the run: a smaller picture never costs more
# tokens, and an icon is one tile.
#
# Versions: transformers 5.24.0, Pillow 13.0.0, numpy 2.4.6.
#
# What is so: with the values of their classes both processors first enlarge or reduce the longer
# side to four tiles of 364 pixels, then cut. Only the shape decides, never the number of pixels: a
# square is 4 x 4 tiles and the whole, whatever its size, a screen of 16 to 9 is 4 x 3, a phone of
# 1080 x 2400 is 2 x 4. A tile is 169 tokens.
#
# Who meets it: an agent that gets crops (a set of marks, an icon, a zoom) beside the screen. The
# crop is the dearer one of the two, and a budget of tokens by area is wrong by a factor of 2,600.
#
# Output seen (both processors alike; tokens are those of the tiles, without the marks between):
#   32 x 32: 17 tiles, 2873 tokens
#   512 x 512: 17 tiles, 2873 tokens
#   200 x 40: 5 tiles, 845 tokens
#   1920 x 1080: 13 tiles, 2197 tokens
#   1080 x 2400: 9 tiles, 1521 tokens
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q transformers==5.24.0 pillow==13.0.0 numpy==2.4.6 || exit 3
HF_HOME="$tmp/home"
export HF_HOME
"$tmp/venv/bin/python" -W ignore -c "import transformers, PIL" || exit 3
"$tmp/venv/bin/python" -W ignore - <<'PY' || exit 1
from importlib import import_module

from PIL import Image

# `image_seq_len` of both processors: the tokens of a tile.
TOKENS = 169
SIZES = [(32, 32), (512, 512), (200, 40), (1920, 1080), (1080, 2400)]


def tiles(module, name):
    path = f"transformers.models.{module}.image_processing_pil_{module}"
    processor = getattr(import_module(path), name)()
    screens = [Image.new("RGB", size) for size in SIZES]
    return [
        processor([screen], return_tensors="np")["pixel_values"].shape[1]
        for screen in screens
    ]


found = tiles("smolvlm", "SmolVLMImageProcessorPil")
for (width, height), number in zip(SIZES, found):
    print(f"{width} x {height}: {number} tiles, {number * TOKENS} tokens")
assert found == [17, 17, 5, 13, 9]
assert found == tiles("idefics3", "Idefics3ImageProcessorPil")
PY
