"""The batches whose sampler is vLLM; `python -m tests.faults.vllm_bench` runs them."""

from __future__ import annotations

from collections import Counter

from tests.faults.severity import severity_of
from tests.faults.vllm_bench import EIGHT_BIT, FOLDER, HIDDEN, load


def test_the_files_have_the_batches_that_they_say() -> None:
    cases = load()
    assert Counter(case.severity for case in cases) == {
        "just_visible": 20,
        "clear": 20,
        "gross": 20,
        "healthy": 40,
        HIDDEN: 8,
        EIGHT_BIT: 1,
    }
    assert len({case.name for case in cases}) == 109
    others = {"healthy", HIDDEN, EIGHT_BIT}
    faulty = [case for case in cases if case.severity not in others]
    assert [severity_of(case.ratio) for case in faulty] == [
        case.severity for case in faulty
    ]
    kinds = Counter(case.name.split("-")[0] for case in faulty)
    assert {*kinds} == {"dense", "moe", "vision"}
    assert len({case.causes for case in faulty}) >= 10


def test_the_files_are_small() -> None:
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    assert max(sizes) < 2_000_000
    assert sum(sizes) < 10_000_000
