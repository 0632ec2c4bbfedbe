"""Passes that go on from a kept one give what whole passes give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.proof.engines import prefix
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses import all_registered
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trajectory import Picture, Request

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"
IDS = torch.tensor([*range(20), *[99] * 4, *range(30, 46), *[99] * 4, 50, 51])


def test_every_hypothesis_scores_as_in_whole_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = rd.load(SAMPLE_DATA / "image_window.parquet")[:2]
    engine = LocalEngine.open(str(SAMPLE_DATA / "model"), dtype="float32")
    known = [
        hypothesis
        for hypothesis in all_registered()
        if "resolution" not in hypothesis.needs
    ]
    lengths: list[int] = []  # of the tokens that were computed
    forward = LocalEngine._forward

    def counted(self: Any, request: Request, *args: Any) -> Any:
        lengths.append(len(request.ids))
        return forward(self, request, *args)

    monkeypatch.setattr(LocalEngine, "_forward", counted)

    def score_all() -> dict[str, Any]:
        scorer = Scorer(batch, engine)
        engine.forget()
        return {
            hypothesis.name: scorer.column((hypothesis,), {0: None, 1: None})
            for hypothesis in known
            if not scorer.lacks(hypothesis)
        }

    fast, short = score_all(), sum(lengths)
    lengths.clear()
    monkeypatch.setattr(prefix.KeptPasses, "add", lambda *_: None)
    whole = score_all()
    assert len(fast) > 60
    assert short < 0.8 * sum(lengths)
    for name, expected in whole.items():
        np.testing.assert_allclose(fast[name], expected, atol=2e-4, err_msg=name)


def request(ids: torch.Tensor, *indices: int) -> Request:
    return Request(
        sample=0,
        ids=ids,
        source=torch.arange(len(ids)),
        is_scored=torch.ones(len(ids), dtype=torch.bool),
        pictures=tuple(Picture(0, index) for index in indices),
    )


def changed(at: int) -> torch.Tensor:
    ids = IDS.clone()
    ids[at] = 7
    return ids


@pytest.mark.parametrize(
    ("other", "begins", "expected"),
    [
        (request(IDS, 0, 1), [20, 40], 46),
        (request(IDS[:30], 0), [20], 30),
        (request(changed(33), 0, 1), [20, 40], 33),
        (request(IDS, 0, 2), [20, 40], 40),  # the second is another picture
        (request(IDS, 2, 1), [20, 40], 20),
        (request(changed(42), 0, 1), [20, 40], 42),
        (request(torch.cat([IDS[:24], IDS[23:]]), 3, 1), [20, 41], 20),
        (request(IDS[:22], 0), [20], 22),
        (request(changed(3), 0, 1), [20, 40], 3),
    ],
)
def test_the_tokens_in_common_end_before_another_picture(
    other: Request, begins: list[int], expected: int
) -> None:
    places = torch.arange(50)[None]
    samples: Any = object()
    earlier = prefix.Pass(request(IDS, 0, 1), samples, places[:, : len(IDS)], IDS, None)
    assert earlier.common(other, places[:, : len(other.ids)], begins) == expected


def test_positions_and_samples_have_to_be_the_same() -> None:
    samples: Any = object()
    places = torch.arange(len(IDS))[None]
    moved = places.clone()
    moved[0, 18:] += 1
    passes = prefix.KeptPasses()
    passes.add(prefix.Pass(request(IDS, 0, 1), samples, places, IDS, None))
    same = request(IDS, 0, 1)
    assert passes.find(same, samples, places, [20, 40])[0] == 46
    assert passes.find(same, samples, moved, [20, 40])[0] == 18
    other: Any = object()
    assert passes.find(same, other, places, [20, 40])[1] is None
    late = replace(same, ids=changed(10))  # too few to save anything
    assert passes.find(late, samples, places, [20, 40])[1] is None


def test_the_pass_that_was_not_used_for_longest_is_forgotten() -> None:
    samples: Any = object()
    places = torch.arange(20)[None]
    passes = prefix.KeptPasses()
    rows = [request(torch.arange(20) + 100 * number) for number in range(6)]
    for number in (0, 1, 2, 3):
        passes.add(prefix.Pass(rows[number], samples, places, IDS, None))
    assert passes.find(rows[0], samples, places, [])[0] == 20
    passes.add(prefix.Pass(rows[4], samples, places, IDS, None))
    remembered = [passes.find(row, samples, places, [])[1] is not None for row in rows]
    assert remembered == [True, False, True, True, True, False]
