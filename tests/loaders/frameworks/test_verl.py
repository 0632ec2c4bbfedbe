"""Files that the released verl wrote, read without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rounddiag.loaders import load

DATA = Path(__file__).parents[2] / "data"
PADDED = sorted(DATA.glob("*_default.pkl")) + sorted(DATA.glob("*_numpy.pkl"))
NESTED = sorted(DATA.glob("*-nested.pkl"))
JAGGED = sorted(DATA.glob("*_v1-jagged.pt"))
DENSE = sorted(DATA.glob("*_v1-dense.pt"))

padded = pytest.mark.parametrize("path", PADDED, ids=lambda path: path.stem)


@padded
def test_a_data_proto_has_its_rounds(path: Path) -> None:
    batch = load(path)

    assert batch.rounds.sample.tolist() == [0, 0, 1, 2]
    assert batch.rounds.round.tolist() == [0, 1, 0, 0]
    assert batch.rounds.start.tolist() == [0, 7, 12, 24]
    assert batch.rounds.num_tokens.tolist() == [3, 2, 4, 2]


@padded
def test_a_data_proto_has_its_tokens_and_both_log_probs(path: Path) -> None:
    batch = load(path)

    assert batch.offsets.tolist() == [0, 12, 24, 36]
    assert batch.lengths.tolist() == [9, 4, 2]
    assert batch.require_ids()[:10].tolist() == [
        *(100, 101, 102, 151652, 151655, 151655, 151653, 200, 201),
        0,
    ]
    assert batch.log_probs("rollout")[:9].tolist() == [
        *(-0.125, -0.25, -0.375),
        *(0.0, 0.0, 0.0, 0.0),
        *(-1.0, -1.125),
    ]
    assert batch.log_probs("old")[:9].tolist() == [
        *(-0.375, -0.5, -0.625),
        *(-0.5, -0.625, -0.75, -0.875),
        *(-1.5, -1.625),
    ]


@padded
def test_a_data_proto_has_prompts_without_padding(path: Path) -> None:
    batch = load(path)

    assert batch.prompt_offsets.tolist() == [0, 6, 12, 15]
    assert batch.prompt_ids[12:].tolist() == [3, 4, 5]


@padded
def test_a_data_proto_has_what_else_it_says_of_samples(path: Path) -> None:
    batch = load(path)

    assert batch.group_ids == ("g0", "g0", "g1")
    assert batch.rewards.tolist() == [1.0, 0.0, 0.0]
    assert batch.sample_columns["__num_turns__"].tolist() == [4, 2, 2]
    assert batch.sample_columns["data_source"].tolist() == ["shop", "shop", "form"]
    assert len(batch.sample_columns) == 2
    assert batch.scores["ref"][:3].tolist() == [-1.375, -1.5, -1.625]
    assert batch.advantages[:4].tolist() == [0.5, 0.5, 0.5, 0.0]


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


@padded
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


@pytest.mark.parametrize("path", NESTED, ids=lambda path: path.stem)
def test_nested_tensors_in_a_data_proto_are_rows_without_padding(path: Path) -> None:
    batch = load(path)

    assert batch.offsets.tolist() == [0, 9, 13, 15]
    assert batch.lengths.tolist() == [9, 4, 2]
    assert batch.log_probs("old")[7:9].tolist() == [-1.5, -1.625]
    assert [tuple(ids.shape) for ids in batch.position_ids] == [
        (4, 15),
        (4, 10),
        (4, 5),
    ]
    assert batch.position_ids[1].tolist() == [list(range(10))] * 4


@pytest.mark.parametrize("path", JAGGED, ids=lambda path: path.stem)
def test_a_v1_payload_opens_without_its_padding_row(path: Path) -> None:
    batch = load(path)

    assert batch.num_samples == 3
    assert batch.meta["num_dropped_rows"] == 1
    assert batch.sample_columns["original_sample"].tolist() == [0, 2, 3]
    assert batch.sample_ids == ("g0_0_0", "g0_2_0", "g1_3_0")
    assert batch.group_ids == ("g0", "g0", "g1")
    assert batch.step == 7
    assert batch.rounds.num_tokens.tolist() == [3, 2, 4, 2]
    assert batch.offsets.tolist() == [0, 9, 13, 15]
    assert batch.log_probs("old")[7:9].tolist() == [-1.5, -1.625]
    assert batch.entropy[9:13].tolist() == [0.0, 0.25, 0.5, 0.75]
    assert batch.loss_mask is not None
    assert torch.equal(batch.loss_mask, batch.response_mask)
    assert batch.position_ids is not None
    assert [tuple(ids.shape) for ids in batch.position_ids] == [
        (4, 15),
        (4, 10),
        (4, 5),
    ]


@pytest.mark.parametrize("path", JAGGED, ids=lambda path: path.stem)
def test_a_v1_payload_has_screenshots(path: Path) -> None:
    batch = load(path)

    assert [[shot.round for shot in row] for row in batch.images] == [[0, 1], [0], []]
    assert batch.images[0][1].image().getpixel((0, 0)) == (157, 150, 139)


@pytest.mark.parametrize("path", DENSE, ids=lambda path: path.stem)
def test_a_dense_v1_payload_opens(path: Path) -> None:
    batch = load(path)

    assert batch.num_samples == 2
    assert "num_dropped_rows" not in batch.meta
    assert batch.lengths.tolist() == [9, 9]
    assert batch.rounds.num_tokens.tolist() == [3, 2, 3, 2]
    assert batch.sample_columns["num_turns"].tolist() == [4, 4]
    assert batch.sample_columns["data_source"].tolist() == ["shop", "shop"]
    assert batch.prompt_offsets.tolist() == [0, 6, 12]


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
