"""What an engine reads under a hypothesis, worked out by hand on one short sample."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.trajectory import Request, Trajectory

OPEN, PAD = 1, 9
# A system message, a picture of two tokens, round 0, a second picture, round 1.
IDS = [OPEN, 20, OPEN, PAD, PAD, 21, 30, 31, 22, PAD, PAD, 23, 32, 33]
ONE = Trajectory(
    sample=0,
    ids=torch.tensor(IDS),
    start=6,
    rounds=((6, 8), (12, 14)),
    spans=((3, 5), (9, 11)),
)
OTHER_IDS = torch.tensor([OPEN, 40, 41, *IDS[2:]])
OTHER = replace(ONE, sample=1, ids=OTHER_IDS, start=7)


class Others:
    """Two samples, a tokenizer with a system prompt, prompts padded to 9 tokens."""

    chat = SimpleNamespace(open_user_message=lambda: [OPEN, 50, OPEN, 51])
    longest_prompt = 9
    count = None

    def __len__(self) -> int:
        return 2

    def __getitem__(self, sample: int) -> Trajectory:
        return (ONE, OTHER)[sample]


def requests(name: str, trajectory: Trajectory = ONE) -> Any:
    edit = next(each.edit for each in all_registered() if each.name == name)
    assert edit is not None
    edited = edit(trajectory, Others())  # type: ignore[arg-type]
    return [edited] if isinstance(edited, Request) else edited


def positions(request: Any) -> list[int]:
    plain = torch.arange(len(request.ids))[None]
    whole = torch.arange(len(IDS))[None]
    moved = plain if request.places is None else request.places(plain, whole)
    return [int(each) for each in moved[0]]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("template_system_prompt", [OPEN, 50, *IDS[2:]]),
        ("next_rows_first_message", [OPEN, 40, 41, *IDS[2:]]),
        ("first_message_removed", IDS[2:]),
        ("prompt_masked", IDS[5:]),
        ("last_image_removed", [*IDS[:9], *IDS[11:]]),
        ("next_row_attended", [*OTHER.ids.tolist(), *IDS]),
        ("responses_alone", [*IDS[:8], *IDS[12:]]),
    ],
)
def test_ids(name: str, ids: list[int]) -> None:
    (request,) = requests(name)
    assert request.ids.tolist() == ids
    assert int(request.is_scored.sum()) == 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("positions_restart_at_observations", [*range(8), *range(6)]),
        ("response_positions_after_padding", [*range(6), *range(9, 17)]),
        ("responses_alone", [*range(8), 12, 13]),
    ],
)
def test_positions(name: str, expected: list[int]) -> None:
    (request,) = requests(name)
    assert positions(request) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("images_reversed", [[1, 0]]),
        ("last_image_removed", [[0]]),
        ("images_reversed_in_each_request", [[0], [1, 0]]),
    ],
)
def test_pictures(name: str, expected: list[list[int]]) -> None:
    passes = requests(name)
    assert [[each.index for each in request.pictures] for request in passes] == expected
    assert sum(int(request.is_scored.sum()) for request in passes) == 4
