"""What the product answers is what it answered before: see `tests/snapshot`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshot import answers
from tests.snapshot.cases import Make, cases
from tests.snapshot.description import describe

BEFORE = answers.read()
ADVICE = (
    "If this is what you want: `python -m tests.snapshot`, and say why in the commit."
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("snapshot")


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, Make]:
    return dict(cases(folder))


def test_every_case_has_an_answer(made: dict[str, Make]) -> None:
    assert sorted(made) == sorted(BEFORE), ADVICE


@pytest.mark.parametrize("name", BEFORE)
def test_the_product_answers_as_before(
    name: str, made: dict[str, Make], folder: Path
) -> None:
    changed = [*answers.differences(BEFORE[name], describe(name, made[name], folder))]
    assert not changed, "\n".join([*changed, ADVICE])


@pytest.mark.parametrize(
    ("before", "now", "number"),
    [
        ({"a": 1}, {"a": 1}, 0),
        ({"a": 1}, {"a": 2}, 1),  # counts exactly
        ({"a": 1.0}, {"a": 1.0000005}, 0),
        ({"a": 1.0}, {"a": 1.000002}, 1),
        ({"a": [1, 2]}, {"a": [1]}, 1),
        ({"a": None}, {"b": 0}, 1),
        ({"a": "x"}, {"a": None}, 1),
    ],
)
def test_differences_are_found(before: object, now: object, number: int) -> None:
    assert len([*answers.differences(before, now)]) == number
