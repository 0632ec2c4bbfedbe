"""Files that the released verl wrote, read without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rounddiag.loaders import load

DATA = Path(__file__).parents[2] / "data"
PADDED = sorted(DATA.glob("*_default.pkl")) + sorted(DATA.glob("*_numpy.pkl"))
NESTED = sorted(DATA.glob("*-nested.pkl"))
JAGGED = sorted(DATA.glob("*_v1-jagged.pt"))

padded = pytest.mark.parametrize("path", PADDED, ids=lambda path: path.stem)


@padded
def test_a_data_proto_says_where_its_numbers_come_from(path: Path) -> None:
    batch = load(path)

    assert batch.step == 7
    assert {k: v for k, v in batch.meta.items() if k != "checks"} == {
        "source": str(path),
        "mask_source": "response_mask",
        "input_ids": "equal",
        "old_log_probs_source": "a pass of its own",
        "sampling": {"temperature": 1.0, "top_p": 0.95},
        "left_out": ["raw_prompt", "timing"],
    }


@pytest.mark.parametrize("path", [*PADDED, *NESTED, *JAGGED], ids=lambda p: p.stem)
def test_position_ids_keep_their_four_rows_and_lose_their_padding(path: Path) -> None:
    batch = load(path)

    assert [tuple(ids.shape) for ids in batch.position_ids] == [
        (4, 15),
        (4, 10),
        (4, 5),
    ]
    assert batch.position_ids[2].tolist() == [[0, 1, 2, 3, 4]] * 4


@padded
def test_screenshots_stand_before_the_round_that_sees_them(path: Path) -> None:
    batch = load(path)

    assert [[shot.round for shot in row] for row in batch.images] == [[0, 1], [0], []]
    assert [shot.size for shot in batch.images[0]] == [(56, 28), (56, 28)]
    # Patch i of a sample has the value i / 16; CLIP's scale makes 0.5 a colour of
    # 0.5 * 0.26862954 + 0.48145466 = 0.6158 of 255.
    assert batch.images[0][1].image().getpixel((0, 0)) == (157, 150, 139)
    assert batch.images[0][0].image().getpixel((0, 0)) == (123, 117, 104)


@pytest.mark.slow
def test_no_framework_and_no_pandas_is_imported() -> None:
    code = (
        "import sys, rounddiag\n"
        "batch = rounddiag.load(sys.argv[1])\n"
        "names = {'verl', 'ray', 'tensordict', 'pandas', 'pyarrow', 'pickle5'}\n"
        "print(sorted(names & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(PADDED[0])],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n"
