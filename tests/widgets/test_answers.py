"""What a model has answered, as the page gets it: values by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rounddiag as rd
from rounddiag.errors import BatchError, FrameError
from rounddiag.proof import Answer
from rounddiag.proof.alternatives import as_frame
from rounddiag.proof.answer import TABLES, identify
from rounddiag.widgets.answers import answer_payload
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.session import Session
from tests.batches import hand_batch

HOSTILE = "<img src=x onerror=alert(1)>"


def make_answer(**changes: Any) -> Answer:
    """Two likely tokens and the sampled one of sample 1, round 0, token 1; two maps."""
    places = {
        "sample": 1,
        "round": 0,
        "token": 1,
        "rank": [1, 2, 57],
        "token_id": [3, 4, 8],
        "text": [HOSTILE, "b", "c"],
        "log_prob": np.log([0.5, 0.25, 0.125]),
        "hypothesis": "",
        "is_sampled": [False, False, True],
        "kl": np.nan,
    }
    tiles = {
        "sample": [1, 1, 0],
        "round": [0, 0, 1],
        "picture": [2, 2, 0],
        "x0": [0, 10, 0],
        "y0": 0,
        "x1": [20, 20, 5],
        "y1": 10,
        "drop": [1.0, 0.5, -4.0],
        "is_divided": [True, False, False],
    }
    frames: dict[str, Any] = {n: as_frame(table, {}) for n, table in TABLES.items()}
    frames["alternatives"] = as_frame(TABLES["alternatives"], places)
    frames["tiles"] = as_frame(TABLES["tiles"], tiles)
    asked = tuple(identify(hand_batch(), *place) for place in ((1, 0), (0, 1)))
    answer = Answer(**frames, statements=(), asked=asked, model="a model", seconds=1.0)
    return replace(answer, **changes)


def test_the_page_gets_the_places_and_maps_of_a_sample() -> None:
    found = answer_payload(make_answer(), 1)
    (place,) = found["places"]
    assert (place["round"], place["token"], place["hypothesis"]) == (0, 1, "")
    assert place["mass"] == pytest.approx(0.75)
    assert place["prob"] == pytest.approx([0.5, 0.25, 0.125])
    assert place["rank"] == [1, 2, 57]
    assert place["is_sampled"] == [False, False, True]
    (map_,) = found["maps"]
    assert (map_["round"], map_["picture"]) == (0, 2)
    assert [tile["drop"] for tile in map_["tiles"]] == [1.0, 0.5]
    assert found["most"] == 4.0  # of all rounds of the answer
    assert answer_payload(make_answer(), 2)["places"] == []


def test_each_hypothesis_has_its_own_tokens() -> None:
    rows = make_answer().alternatives
    both = [rows, rows.assign(hypothesis="no_images", log_prob=np.log(0.25))]
    answer = make_answer(alternatives=pd.concat(both))
    found = answer_payload(answer, 1)["places"]
    assert [place["hypothesis"] for place in found] == ["", "no_images"]
    assert [place["mass"] for place in found] == pytest.approx([0.75, 0.5])


def test_what_cannot_be_asked_about_is_not_offered() -> None:
    def can_ask(batch: rd.Batch, answer: Answer | None = None) -> bool:
        handler = RequestHandler(Session(batch, {}), lambda: None, answer)
        reply: Any = handler("trajectory", {"sample": 1})
        found: bool = reply["can_ask"]
        return found

    batch = hand_batch()
    assert can_ask(batch)
    assert not can_ask(batch, make_answer())
    assert not can_ask(replace(batch, response_ids=None))


def test_an_answer_is_one_about_the_batch() -> None:
    batch, answer = hand_batch(), make_answer()
    with rd.explore(batch, answer=answer, sight=True) as explorer:
        assert explorer.state["sight"] is True
        assert explorer.to_code().endswith(", answer=answer)")
        assert "sight=True" in explorer.to_code()
    with pytest.raises(BatchError, match="expected an answer about this batch"):
        rd.explore(batch, answer=make_answer(alternatives=_other(answer)))
    with pytest.raises(FrameError, match="`answer`: expected an Answer; found a str"):
        rd.explore(batch, answer="answer")  # type: ignore[arg-type]
    with pytest.raises(FrameError, match="expected a batch, to show an answer"):
        rd.explore("sample_data/run", answer=answer)


def _other(answer: Answer) -> Any:
    return answer.alternatives.assign(token_id=9)
