"""Requests of the page, and the payload of each reply."""

from __future__ import annotations

import json
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import pytest

from rounddiag import explore, load, token_frame
from rounddiag.core.weights import token_weights
from rounddiag.errors import FrameError
from rounddiag.widgets import requests
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.serialization import serialize
from rounddiag.widgets.session import Session
from tests.batches import hand_batch

OVERVIEW = {
    *("head", "options", "state", "figures", "note", "counts"),
    *("groups", "has_onset", "corrected"),
    *("num_tokens", "num_rounds"),
}


class Asked:
    """RequestHandler from the hand batch, and how often something was chosen."""

    def __init__(self) -> None:
        self.num_choices = 0
        self.session = Session(hand_batch(sample_ids=("x", "y", "z")), {})
        self.requests = RequestHandler(self.session, self._choose)

    def _choose(self) -> None:
        self.num_choices += 1

    def __call__(self, request: str, /, **args: Any) -> Any:
        return self.requests(request, args)


@pytest.fixture
def ask() -> Asked:
    return Asked()


def test_the_page_asks_what_the_filter_keeps_and_where_tokens_are_beyond(
    ask: Asked,
) -> None:
    ask.session.change({"filter": {"round": [1]}, "threshold": 1.5})
    assert ask("kept", sample=0)["is_kept"].tolist() == [False, False, True]
    assert ask("kept", sample=2)["is_kept"].tolist() == [False]
    assert ask("beyond")["samples"].tolist() == [1]


def test_values_have_means_and_ignore_their_own_condition(ask: Asked) -> None:
    ask.session.change({"filter": {"round": [1]}})
    assert ask("values", name="round") == {
        "name": "round",
        "num_rows": 2,
        "rows": [
            {
                "text": text,
                "condition": [round_],
                "mean": pytest.approx(mean),
                "low": pytest.approx(nan, nan_ok=True),  # of 3 samples
                "high": pytest.approx(nan, nan_ok=True),
                "num_tokens": num,
            }
            for text, round_, mean, num in (("1", 1, 1.5, 2), ("0", 0, 2.5 / 6, 6))
        ],
    }
    (row,) = ask("values", name="sample")["rows"][1:]  # of the rounds 1
    assert (row["text"], row["mean"]) == ("0", 1.0)
    ask.session.change({"filter": {}, "by": "sample"})
    groups = ask("overview", theme="light")["groups"]
    assert [one["text"] for one in groups["rows"]] == ["2", "1", "0"]


def test_what_a_correction_does_to_the_step_and_to_tokens(ask: Asked) -> None:
    assert ask("overview", theme="light")["corrected"] is None
    assert ask("fates", sample=0) == {"fate": None}
    changes = {"correction": "icepop", "limit": None}
    found = ask("set", changes=changes, theme="light")["corrected"]
    weights = token_weights(ask.session.batch, "icepop")
    num = int((weights == 0).sum())
    assert num > 0
    assert found["limit"] == 5.0
    assert found["text"].startswith(f"drops {num} token")
    fates = [ask("fates", sample=one)["fate"].tolist() for one in range(3)]
    marks = {0.0: 2}
    known = weights[~np.isnan(weights)]
    expected = [marks.get(float(one), 0) for one in known]
    assert [one for own in fates for one in own if one != 3] == expected
    with pytest.raises(FrameError, match="`limit`: expected a ratio above 1"):
        ask("set", changes={"limit": 0.5}, theme="light")
    with pytest.raises(FrameError, match="`correction`: expected one of"):
        ask("set", changes={"correction": "ppo_clip"}, theme="light")
    assert ask.session.state.limit is None


def test_an_overview_is_all_that_a_page_needs_at_first(ask: Asked) -> None:
    found = ask("overview", theme="dark")
    assert set(found) == OVERVIEW
    assert found["head"]["num_tokens"] == 8
    # A token beyond 1 nat is no warning: the diagnosis judges it.
    assert found["head"]["verdict"]["tone"] == "plain"
    assert found["counts"] == {
        "num_tokens": 8,
        "num_tokens_beyond": 3,
        "num_samples_beyond": 3,
        "empty_reason": "",
    }
    assert found["state"] == ask.session.state.as_dict()
    figure = json.loads(found["figures"]["rounds"])
    assert figure["layout"]["meta"]["title"] == "Mismatch per round"
    assert json.dumps(serialize(found)[0])


def test_a_choice_that_is_taken_back_is_not_drawn_again(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def draw(session: Session, theme: str) -> dict[str, bytes]:
        drawn.append(f"{session.state.metric} {theme}")
        return {"rounds": drawn[-1].encode()}

    monkeypatch.setattr(requests, "overview_figures", draw)
    first = ask("overview", theme="light")
    ask("select", changes={"current": {"sample": 1, "round": 0, "token": 0}})
    assert ask("overview", theme="light")["figures"] is first["figures"]
    ask("set", changes={"metric": "diff"}, theme="light")
    found = ask("set", changes={"metric": "abs_diff"}, theme="light")
    assert found["figures"] is first["figures"]
    assert drawn == ["abs_diff light", "diff light"]
    ask("overview", theme="dark")
    ask.requests.clear_cache()
    ask("overview", theme="light")
    assert drawn[2:] == ["abs_diff dark", "abs_diff light"]


def test_the_overviews_seen_last_are_kept(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []

    def draw(session: Session, theme: str) -> dict[str, bytes]:
        drawn.append(session.state.threshold)
        return {"rounds": theme.encode()}

    monkeypatch.setattr(requests, "overview_figures", draw)
    for threshold in (1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 1, 2):  # 9 takes the place of 2
        ask("set", changes={"threshold": threshold}, theme="light")
    assert drawn == [1, 2, 3, 4, 5, 6, 7, 8, 9, 2]


def test_the_head_has_the_facts_of_the_run() -> None:
    facts = {"rollout_engine": "vllm", "parallel": {"nodes": 2}}
    session = Session(hand_batch(meta={"facts": facts}), {})
    overview: Any = RequestHandler(session, lambda: None)("overview", {"theme": "dark"})
    head = overview["head"]
    assert "rollout_engine vllm, parallel (nodes 2)" in json.dumps(head["chips"])


@pytest.mark.parametrize(
    ("samples", "state", "why"),
    [
        ([0, 1, 2], {"filter": {"token": {"from": 9}}}, "the filter keeps no token"),
        ([], {}, "the batch has no samples"),
    ],
)
def test_where_there_is_no_token_all_parts_say_why(
    samples: list[int], state: dict[str, Any], why: str
) -> None:
    answers = RequestHandler(Session(hand_batch()[samples], state), lambda: None)
    found: Any = answers("overview", {"theme": "light"})
    assert found["counts"]["empty_reason"] == why
    layout = json.loads(found["figures"]["heatmap"])["layout"]
    assert why in layout["annotations"][0]["text"]
    assert why in layout["meta"]["notes"][-1]


def test_requests_of_callers_before_0_3_0_are_answered() -> None:
    ask = RequestHandler(Session({"name": hand_batch()}, {}), lambda: None)
    args = {"sample": 0, "round": 1}
    assert ask("context", {**args, "batch": 0}) == ask("context", args)


def test_what_cannot_be_drawn_is_not_set(ask: Asked) -> None:
    before = ask.session.state
    with pytest.raises(FrameError, match=r"`order`: expected one of \['sample'"):
        ask("set", changes={"order": "colour"}, theme="light")
    assert ask.session.state == before
    assert (
        ask("set", changes={"metric": "diff"}, theme="light")["state"]["metric"]
        == "diff"
    )
    assert ask.num_choices == 0


def test_a_token_that_was_chosen_is_the_current_one(ask: Asked) -> None:
    place = {"sample": 1, "round": 0, "token": 2}
    found = ask("select", changes={"current": place})
    assert found["state"]["current"] == place
    assert (found["num_rounds"], found["num_tokens"]) == (1, 3)
    assert ask.num_choices == 1


def test_of_chosen_cells_the_worst_token_is_the_current_one(ask: Asked) -> None:
    cells = {"samples": [0, 1], "rounds": [0, 1]}
    place = {"sample": 1, "round": 1, "token": 0}
    assert ask("worst", cells=cells) == place
    found = ask("select", changes={"cells": cells})
    assert found["state"]["current"] == place
    assert (found["num_rounds"], found["num_tokens"]) == (4, 7)
    nothing = ask("select", changes={"cells": {"samples": [2], "rounds": [1, 1]}})
    assert nothing["state"]["current"] == found["state"]["current"]
    assert nothing["num_tokens"] == 0


def test_the_list_of_a_selection_begins_with_the_worst(ask: Asked) -> None:
    ask("select", changes={"cells": {"samples": [0, 2], "rounds": [0, 0]}})
    found = ask("list", list="selection")
    assert found["columns"][-1]["values"].tolist() == [-1, 0.5, -0.25]
    assert found["num_rows"] == 3


def test_the_diagnosis_is_left_to_be_computed(ask: Asked) -> None:
    work = ask("diagnosis")
    found = work()
    assert found["verdict"] == ask.session.diagnosis.verdict
    assert found["text"] == ask.session.diagnosis.text
    assert found["num_findings"] == len(ask.session.diagnosis)


def test_it_opens_at_the_first_finding_unless_a_place_was_chosen() -> None:
    batch = load("sample_data/image_window.parquet")
    for state, opens in (({}, 0), ({"current": {"sample": 3}}, None)):
        ask: Any = RequestHandler(Session(batch, state), lambda: None)
        assert ask("diagnosis", {})()["opens"] == opens
        ask("select", {"changes": {"finding": 0}})
        assert ask("diagnosis", {})()["opens"] is None


def test_marks_are_the_tokens_of_the_finding_in_a_sample() -> None:
    batch = load("sample_data/image_window.parquet")
    session = Session(batch, {})
    ask: Any = RequestHandler(session, lambda: None)
    assert ask("marks", {"sample": 33}) == {"round": [], "token": []}
    ask("select", {"changes": {"finding": 0}})
    own = session.diagnosis[0].tokens()
    own = own[own["sample"] == 33]
    found = ask("marks", {"sample": 33})
    assert found["round"].tolist() == own["round"].tolist()
    assert found["token"].tolist() == own["token"].tolist()


def test_roles_are_the_same_before_and_after_all_tokens_have_theirs() -> None:
    batch = load("sample_data/image_window.parquet")
    session = Session(batch, {})
    requests = RequestHandler(session, lambda: None)

    def ask(sample: int) -> Any:
        args = {"sample": sample}
        found: Any = requests("trajectory", args)
        return found["tokens"]["role"]

    before = {sample: [*ask(sample)] for sample in range(0, batch.num_samples, 8)}
    session.own_columns.codes("role")
    for sample, roles in before.items():
        after = ask(sample)
        assert [*after] == roles
        plain, (data,) = serialize(after)
        assert [plain["names"][at] for at in np.frombuffer(data, np.int8)] == roles
    assert {"thought", "action"} <= set(roles)


def test_a_function_that_waits_is_called_and_may_fail() -> None:
    explorer = explore(hand_batch())
    seen: list[dict[str, int]] = []
    explorer.on_select(lambda _: 1 / 0)
    explorer.on_select(lambda one: seen.append(one.current))
    place = {"sample": 2, "round": 0, "token": 0}
    answer = explorer._handle("select", {"changes": {"current": place}}, [])
    assert isinstance(answer, dict)
    assert seen == [place]
    assert repr(explorer.last_error) == "ZeroDivisionError('division by zero')"
    with pytest.raises(KeyError, match="nothing"):
        explorer._handle("nothing", {}, [])
    assert repr(explorer.last_error) == "KeyError('nothing')"
    explorer.close()
    explorer._handle("select", {"changes": {"current": place}}, [])
    assert seen == [place]


def test_the_head_says_where_it_is_from_what_was_saved_and_what_is_not_finite() -> None:
    meta = {
        "mask_source": "response_mask",
        "old_log_probs_source": "a pass of its own",
        "sampling": {"temperature": 1.0, "top_k": -1},
        "capture": {"num_saved": 64, "num_samples": 512},
    }
    batch = hand_batch(meta=meta)
    old = batch.log_probs("old").clone()
    old[batch.rounds.start[:3]] = nan
    batch = replace(batch, old_log_probs=old)
    chips = requests.describe_batch(batch, token_frame(batch))["chips"]
    assert [(chip["label"], chip["value"], chip["tone"]) for chip in chips] == [
        ("has", "3 samples, 5 rounds, 8 tokens", "plain"),
        ("mask", "response_mask", "plain"),
        ("old log-probs", "a pass of its own", "plain"),
        ("sampling", "temperature 1.0, top_k -1", "plain"),
        ("saved", "64 of 512 samples", "warn"),
        ("not finite", "3 tokens", "warn"),
    ]


@pytest.mark.parametrize("odd", [None, "x", [1], {"a": 1}, 1.5, -1, 10**30, True])
def test_odd_counts_of_a_capture_are_shown_as_unknown(odd: object) -> None:
    for capture in ({"num_saved": odd}, {"num_saved": 2, "num_samples": odd}, odd):
        batch = hand_batch(meta={"capture": capture})
        chips = requests.describe_batch(batch, token_frame(batch))["chips"]
        texts = [chip["value"] for chip in chips if chip["label"] == "saved"]
        if capture == {"num_saved": 2, "num_samples": "x"}:
            assert texts == ["2 of ? samples"]
