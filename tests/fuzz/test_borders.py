"""A short run over odd things of others, and proof that it would notice."""

from __future__ import annotations

import json
from random import Random

import pytest

from rounddiag.loaders import trajectory_files
from rounddiag.runs import index
from tests.fuzz import borders
from tests.fuzz.borders import KINDS, changed, outcome


def test_odd_things_of_others_end_in_results_or_errors_of_ours() -> None:
    found = [(number, *outcome(number, 0)) for number in range(40)]
    assert [one for one in found if one[2] == "fault"] == []
    ends = {(kind, end) for _, kind, end, _ in found}
    wanted = {(kind.__name__, "result") for kind in KINDS}
    wanted |= {(k, "refused") for k in ("answers", "run_folders", "trajectories")}
    assert ends == wanted


def test_a_fault_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr(trajectory_files, "_shots", fail)
    ends = {outcome(number, 0)[1] for number in range(2, 42, 4)}
    assert "fault" in ends


def with_wrong_rows(random: Random, data: bytes) -> bytes:
    """An index whose means are 1 too large, as a reader without a digest takes it."""
    del random
    head, _, rest = data[32:].partition(b"\n")
    tables = {}
    for name, size in json.loads(head).items():
        contents, frame = index._decode(rest[:size])
        means = frame.select_dtypes("float") + 1
        tables[name], rest = (
            index._encode((contents, frame.assign(**means))),
            rest[size:],
        )
    sizes = {name: len(table) for name, table in tables.items()}
    return b"".join([data[:32], json.dumps(sizes).encode(), b"\n", *tables.values()])


def test_wrong_rows_of_an_index_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_digest", lambda *_: b"." * 32)
    monkeypatch.setattr(borders, "DAMAGES", (with_wrong_rows,))
    ends = {outcome(number, 0)[1] for number in range(3, 163, 4)}
    assert "fault" in ends


def test_a_number_gives_the_same_case_again() -> None:
    document = {"a": [1, {"b": 2}], "c": "x"}
    one, other = (
        changed(Random(7), json.loads(json.dumps(document)))  # noqa: S311 no secret
        for _ in range(2)
    )
    assert repr(one) == repr(other) != repr(document)
