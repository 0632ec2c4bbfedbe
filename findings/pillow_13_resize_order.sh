#!/bin/sh
# Pillow 13 resizes the same picture to other pixels than Pillow 12.
#
# Guess, before the run: resize() gives the same bits in all versions of the last years.
#
# Versions: Pillow 13.0.0 beside 12.3.0 (10.4, 11.3, 12.0 and 12.2 are equal to it); numpy 2.4.6.
#
# What is so: where the width grows and the height shrinks, every pixel may differ: bicubic by up to
# 28 of 255 levels at the edges of drawn text and boxes, Lanczos by up to 46, bilinear by 1. The
# other three combinations are equal to the bit. Between the two passes Pillow rounds and clips to
# 8 bit, so the order of the passes shows: Pillow 12 scales the width first, Pillow 13 here the
# height first. In 13.0.0 a resize of the height and then one of the width give the same bits as
# the resize of both.
#
# Who meets it: 1366 x 768, a common size of screens, is one: multiples of 28, as Qwen2.5-VL wants
# them, are 1372 x 756 (below its limit of pixels). An engine's container with Pillow 12 and a
# trainer's with 13 have equal ids, equal counts of image tokens and other pixels; nothing that
# compares shapes sees it. transformers' processors on torchvision stay within 2 levels of Pillow
# 12; those on Pillow give what is installed.
#
# Output seen:
#   1366x768 -> 1372x756 bicubic: largest difference 28, pixels that differ 1.2 %
#   1366x768 -> 1372x756 lanczos: largest difference 46, pixels that differ 3.2 %
#   1366x768 -> 1372x756 bilinear: largest difference 1, pixels that differ 0.2 %
#   768x1366 -> 756x1372 bicubic: largest difference 0, pixels that differ 0.0 %
#   1920x1080 -> 1092x616 bicubic: largest difference 0, pixels that differ 0.0 %
#   1000x999 -> 1008x1008 bicubic: largest difference 0, pixels that differ 0.0 %
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q numpy==2.4.6 || exit 3
cat >"$tmp/draw.py" <<'PY'
import sys

import numpy as np
import PIL
from PIL import Image, ImageDraw

assert PIL.__version__ == sys.argv[1]


def screen(width, height):
    """Draw a white page of black, grey and coloured boxes, a few pixels each, as text is."""
    random = np.random.default_rng(0)
    picture = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(picture)
    for y in range(5, height - 10, 14):
        for x in range(4, width - 30, 40):
            right, low = x + int(random.integers(2, 30)), y + int(random.integers(1, 8))
            colour = tuple(int(level) for level in random.choice([0, 255, 40], 3))
            pen.rectangle([x, y, right, low], fill=colour)
    return picture


names = ("BICUBIC", "LANCZOS", "BILINEAR")
bicubic, lanczos, bilinear = (Image.Resampling[name] for name in names)
laptop = screen(1366, 768)
np.savez(
    sys.argv[2],
    **{
        "1366x768 -> 1372x756 bicubic": laptop.resize((1372, 756), bicubic),
        "1366x768 -> 1372x756 lanczos": laptop.resize((1372, 756), lanczos),
        "1366x768 -> 1372x756 bilinear": laptop.resize((1372, 756), bilinear),
        "768x1366 -> 756x1372 bicubic": screen(768, 1366).resize((756, 1372), bicubic),
        "1920x1080 -> 1092x616 bicubic": screen(1920, 1080).resize((1092, 616), bicubic),
        "1000x999 -> 1008x1008 bicubic": screen(1000, 999).resize((1008, 1008), bicubic),
        "width first": laptop.resize((1372, 768), bicubic).resize((1372, 756), bicubic),
        "height first": laptop.resize((1366, 756), bicubic).resize((1372, 756), bicubic),
    },
)
PY
for version in 12.3.0 13.0.0; do
    "$tmp/venv/bin/pip" install -q --no-deps --target "$tmp/$version" "pillow==$version" || exit 3
    PYTHONPATH="$tmp/$version" "$tmp/venv/bin/python" "$tmp/draw.py" "$version" "$tmp/$version.npz" ||
        exit 3
done
cd "$tmp"
"$tmp/venv/bin/python" - <<'PY' || exit 1
import numpy as np

old, new = dict(np.load("12.3.0.npz")), dict(np.load("13.0.0.npz"))
largest = {}
for name in old:
    if "->" in name:
        gap = np.abs(old[name].astype(int) - new[name].astype(int))
        largest[name] = int(gap.max())
        share = 100 * float((gap.max(axis=2) > 0).mean())
        print(f"{name}: largest difference {largest[name]}, pixels that differ {share:.1f} %")
both = "1366x768 -> 1372x756 bicubic"
assert largest[both] > 20
assert largest["1366x768 -> 1372x756 lanczos"] > 40
assert largest["1366x768 -> 1372x756 bilinear"] == 1
assert sum(largest.values()) == sum(list(largest.values())[:3])
assert np.array_equal(old[both], old["width first"])
assert np.array_equal(new[both], new["height first"])
PY
