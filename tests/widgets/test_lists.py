"""The lists of the drawer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import FrameError
from rounddiag.figures.colored_text import NO_TEXT
from rounddiag.widgets.lists import PAGE, drawer_list
from rounddiag.widgets.session import Session
from tests.batches import hand_batch
from tests.findings.small import GAP, TOKENS, arrays, made, shaken
from tests.widgets.samples import worded


def column(found: dict[str, Any], head: str) -> list[Any]:
    (values,) = (one["values"] for one in found["columns"] if one["head"] == head)
    return [*values]


@pytest.fixture(scope="module")
def window() -> rd.Batch:
    return rd.load("sample_data/image_window.parquet")


def session(batch: rd.Batch, **state: Any) -> Session:
    return Session(batch, state)


def test_findings_come_with_explanation_and_next_step(window: rd.Batch) -> None:
    looked_at = session(window)
    found = drawer_list(looked_at, "findings")
    first = looked_at.diagnosis[0]
    assert found["columns"][0]["head"] == "where"  # no cause is known
    assert column(found, "kind") == ["place"]
    assert column(found, "where") == [first.location]
    assert found["findings"] == [0]
    note = found["notes"][0]
    assert note.startswith("Possible: ids and template (")
    assert "; context and images (3 to 8 images come before its tokens); pos" in note
    assert note.endswith(f" `{first.prove_command}` tests them.")
    tokens = first.tokens()
    worst = tokens.iloc[int(tokens["diff"].abs().to_numpy().argmax())]
    place = {key: int(worst[key]) for key in ("sample", "round", "token")}
    assert found["places"] == [place]


def test_a_wrong_update_is_called_so_and_opens_at_tokens_without_an_advantage() -> None:
    batch = rd.load("sample_data/healthy.parquet")
    rounds = batch.rounds
    last = np.r_[np.diff(rounds.sample.numpy()) > 0, True]
    advantages = torch.zeros(len(batch.require_ids()))
    for start, size in zip(
        rounds.start[last].tolist(), rounds.num_tokens[last].tolist(), strict=True
    ):
        advantages[start : start + size] = 1.0
    looked_at = session(replace(batch, advantages=advantages))
    found = drawer_list(looked_at, "findings")
    assert column(found, "cause") == ["lost advantages"]
    assert column(found, "kind") == ["wrong update"]
    assert found["notes"][0].startswith("Advantages that reach the last round only. A ")
    assert looked_at.open_at_evidence()
    assert looked_at.state.finding == 0
    place = looked_at.state.current
    number = int(
        np.flatnonzero(
            (rounds.sample.numpy() == place.sample)
            & (rounds.round.numpy() == place.round)
        )[0]
    )
    assert not last[number]


def test_without_a_finding_the_list_says_what_the_diagnosis_says() -> None:
    healthy = session(rd.load("sample_data/healthy.parquet"))
    found = drawer_list(healthy, "findings")
    assert found["num_rows"] == 0
    assert found["empty"] == healthy.diagnosis.headline


def test_a_finding_leads_to_its_evidence(window: rd.Batch) -> None:
    looked_at = session(replace(window))  # a copy, which nobody has diagnosed
    assert not looked_at.is_placed
    looked_at.change({"finding": 0})
    assert looked_at.is_placed
    (place,) = drawer_list(looked_at, "findings")["places"]
    assert vars(looked_at.state.current) == place
    with pytest.raises(rd.errors.FrameError, match="number of one of 1 findings"):
        looked_at.change({"finding": 1})
    again = session(looked_at.full_batch)  # it has been diagnosed, and opens there
    assert (again.is_placed, again.state.finding) == (True, 0)
    assert vars(again.state.current) == place
    elsewhere = session(looked_at.full_batch, current={"sample": 3})
    assert (elsewhere.state.current.sample, elsewhere.state.finding) == (3, None)


def test_tokens_come_with_the_text_around_them(window: rd.Batch) -> None:
    tokens = rd.token_frame(window, ["text", "role"])
    order = tokens["diff"].abs().sort_values(ascending=False, kind="stable").index
    found = drawer_list(session(window, by="status"), "tokens", start=200)
    assert found["num_rows"] == len(tokens)
    assert len(found["places"]) == 200
    for row, index in enumerate(order[200:203]):
        token = tokens.loc[index]
        is_own = (tokens["sample"] == token["sample"]) & (
            tokens["round"] == token["round"]
        )
        pieces = tokens["text"][is_own].tolist()
        at = int(token["token"])
        before, after = "".join(pieces[:at]), "".join(pieces[at + 1 :])
        assert column(found, "text")[row] == [before[-20:], token["text"], after[:20]]
        assert column(found, "role")[row] == token["role"]
        assert column(found, "diff [nat]")[row] == token["diff"]
    status = np.asarray(window.sample_columns["status"])
    samples = column(found, "sample")
    assert column(found, "status") == status[samples].tolist()


def test_rounds_and_samples_go_on_after_the_twentieth(window: rd.Batch) -> None:
    looked_at = session(window)
    rounds = drawer_list(looked_at, "rounds")
    assert rounds["num_rows"] == window.num_rounds
    assert len(rounds["places"]) == 200
    low = column(rounds, "at least")
    assert low == sorted(low, reverse=True)
    rest = drawer_list(looked_at, "rounds", start=200)
    assert len(rest["places"]) == window.num_rounds - 200
    assert max(column(rest, "at least")) <= low[-1]
    assert drawer_list(looked_at, "samples")["num_rows"] == window.num_samples


def heads(found: dict[str, Any]) -> list[str]:
    return [one["head"] for one in found["columns"]]


def test_rows_of_samples_begin_with_what_is_asked_first(window: rd.Batch) -> None:
    ends = ["tokens", "mean |diff| [nat]", "at least"]
    first = ["sample", "reward", "status", "of group", "task"]
    for by, more in (
        ("role", []),  # of tokens: no sample has one
        ("entropy", []),
        ("round", []),
        ("task_kind", ["task_kind"]),
        ("sample_id", []),  # not twice
    ):
        batch = replace(window, entropy=-window.log_probs("rollout"))
        found = drawer_list(session(batch, by=by), "samples")
        assert heads(found) == [*first, "id", *more, "rounds", *ends]
    kinds = drawer_list(session(window, by="role"), "rounds")
    assert heads(kinds) == ["sample", "round", *ends]
    reward = column(drawer_list(session(window), "samples"), "reward")
    sample = column(drawer_list(session(window), "samples"), "sample")
    assert window.rewards is not None
    assert [float(one) for one in reward] == window.rewards[sample].tolist()


def test_a_selection_has_both_log_probs(window: rd.Batch) -> None:
    cells = {"samples": [3, 4], "rounds": [1, 2]}
    looked_at = session(window, cells=cells)
    found = drawer_list(looked_at, "selection")
    tokens = rd.token_frame(window, ["old_log_prob", "rollout_log_prob"])
    own = tokens[tokens["sample"].isin([3, 4]) & tokens["round"].between(1, 2)]
    worst = own.iloc[int(own["diff"].abs().to_numpy().argmax())]
    assert found["num_rows"] == len(own)
    assert column(found, "old")[0] == worst["old_log_prob"]
    assert column(found, "rollout")[0] == worst["rollout_log_prob"]
    assert "selected" in found["caption"]


def test_without_cells_the_selection_is_what_the_filter_keeps(window: rd.Batch) -> None:
    looked_at = session(window, filter={"sample": [3, 4]})
    tokens = rd.token_frame(window)
    num = int(tokens["sample"].isin([3, 4]).sum())
    assert drawer_list(looked_at, "selection")["num_rows"] == num
    looked_at.change({"filter": {}, "current": {"sample": 5, "round": 0, "token": 0}})
    size = int(((tokens["sample"] == 5) & (tokens["round"] == 0)).sum())
    assert drawer_list(looked_at, "selection")["num_rows"] == size


def test_in_common_has_the_places_of_the_finder(window: rd.Batch) -> None:
    found = drawer_list(session(window), "common")
    places = rd.places(window)
    assert column(found, "where") == places["conditions"].tolist()
    assert column(found, "where") == ["from round 2 on"]
    assert column(found, "tokens") == places["num_tokens"].tolist()
    assert column(found, "times the usual") == places["ratio"].tolist()
    tokens = rd.token_frame(window)
    size, rounds = tokens["diff"].abs().astype(float), tokens["round"]
    own = [rounds >= 2]
    all_large = int((size > np.log(2)).sum())
    large = [f"{(size[one] > np.log(2)).sum()} of {all_large}" for one in own]
    assert column(found, "> factor 2") == large
    shares = [size[one].sum() / size.sum() for one in own]
    assert column(found, "of sum |diff|") == pytest.approx(shares)
    num = [f"{one} of {window.num_samples}" for one in places["num_samples"]]
    assert column(found, "samples") == num
    worst = [tokens.iloc[int(np.argmax(size.where(one, 0)))] for one in own]
    keys = ("sample", "round", "token")
    assert found["places"] == [{key: int(one[key]) for key in keys} for one in worst]


def test_a_row_in_common_filters_by_the_conditions_of_its_place(
    window: rd.Batch,
) -> None:
    looked_at = session(window)
    found = drawer_list(looked_at, "common")
    assert found["conditions"] == [{"round": {"from": 2}}]
    looked_at.change({"filter": found["conditions"][0], "current": found["places"][0]})
    num = column(found, "tokens")[0]
    assert len(looked_at.filtered_batch.tokens) == num
    assert drawer_list(looked_at, "common") == found  # they are those of all tokens


def test_a_row_in_common_filters_by_a_set_of_samples_too() -> None:
    parts = arrays()
    third = (np.arange(32) % 3 == 1)[:, None]
    shaken(parts, np.broadcast_to(third, parts["mask"].shape), 0.5)
    looked_at = session(made(parts))
    found = drawer_list(looked_at, "common")
    assert column(found, "where") == ["in every third sample from sample 1 on"]
    assert found["conditions"] == [{"sample": [*range(1, 32, 3)]}]
    assert found["notes"] == [""]
    looked_at.change({"filter": found["conditions"][0]})
    assert len(looked_at.filtered_batch.tokens) == column(found, "tokens")[0]


def test_a_row_in_common_says_where_no_filter_has_its_condition() -> None:
    parts = arrays()
    is_last = np.arange(parts["mask"].shape[1]) % (TOKENS + GAP) >= TOKENS - 4
    shaken(parts, np.broadcast_to(is_last, parts["mask"].shape), 0.5)
    found = drawer_list(session(made(parts)), "common")
    where = "in the last 4 tokens of rounds"
    assert column(found, "where") == [where]
    assert found["conditions"] == [None]
    assert found["notes"] == [f"Not a filter: no column says “{where}”."]


def test_in_common_says_why_it_is_empty(window: rd.Batch) -> None:
    sound = drawer_list(session(rd.load("sample_data/healthy.parquet")), "common")
    assert sound["num_rows"] == 0
    assert sound["empty"].startswith("Tokens differ nowhere more than")
    few = drawer_list(session(window[:4]), "common")
    assert few["empty"].startswith("Fewer than 5 samples or groups")


def test_hits_are_of_all_samples_a_row_for_each_match() -> None:
    batch = worded([["cl", "ick", "(1", ")"], ["(", "2", "CL"], ["ick", " cl", "ick"]])
    looked_at = session(batch, filter={"sample": [0]})
    found = drawer_list(looked_at, "hits", text="Click")
    keys = ("sample", "round", "token")
    places = [tuple(one[key] for key in keys) for one in found["places"]]
    own = rd.token_frame(batch)
    starts = [tuple(own.loc[at, [*keys]]) for at in (0, 8)]
    assert places == starts
    assert found["num_rows"] == 2
    assert drawer_list(looked_at, "hits", text="q")["empty"] == "No sample has 'q'."
    assert drawer_list(looked_at, "hits", text=r"\(\d", is_regex=True)["num_rows"] == 2
    assert drawer_list(looked_at, "hits")["num_rows"] == 0


def test_text_of_a_redacted_batch_is_not_shown(tmp_path: Any) -> None:
    file = tmp_path / "redacted.parquet"
    rd.save(hand_batch(), file, redact=True)
    found = drawer_list(session(rd.load(file)), "tokens")
    assert column(found, "text")[0] == ["", NO_TEXT, ""]


def test_trajectories_are_sorted_by_a_column_unknown_values_last() -> None:
    columns = {"seconds": np.array([3.0, np.nan, 12.0])}
    batch = hand_batch(sample_columns=columns, rewards=torch.tensor([0.0, 1.0, 10.0]))
    looked_at = session(batch)

    def by(head: str, *, is_ascending: bool) -> list[int]:
        sort = {"head": head, "is_ascending": is_ascending}
        return column(drawer_list(looked_at, "samples", sort=sort), "sample")

    assert by("seconds", is_ascending=False) == [2, 0, 1]
    assert by("seconds", is_ascending=True) == [0, 2, 1]
    assert by("reward", is_ascending=False) == [2, 1, 0]  # numbers, not texts
    assert by("tokens", is_ascending=True) == [2, 0, 1]
    rows = drawer_list(looked_at, "samples")
    assert {"reward", "seconds", "at least"} <= {*rows["sorts"]} <= {*heads(rows)}
    with pytest.raises(FrameError, match="`sort`: expected the head of a column"):
        drawer_list(looked_at, "samples", sort={"head": "of group"})


def test_a_trajectory_says_its_outcome_its_group_s_rewards_and_its_task() -> None:
    words = ("finished(content='fail')", "click(1, 2)", "click(3, 4)")
    turns = [
        [("user", f"Do {task}."), ("assistant", text)]
        for task, text in zip("aab", words, strict=True)
    ]
    ends = np.array(["", "max_steps", ""])
    batch = rd.Batch.from_turns(
        turns,
        rewards=[0.0, 1.0, 0.0],
        group_ids=["a", "a", "b"],
        sample_columns={"exit_status": ends},
    )
    rows = drawer_list(session(batch), "samples")
    assert column(rows, "sample") == [1, 0, 2]
    assert column(rows, "outcome") == ["truncated", "given up", "failed"]
    assert column(rows, "of group") == ["▁█", "▁█", ""]  # b is alone
    assert column(rows, "task") == ["Do a.", "Do a.", "Do b."]
    assert column(rows, "group") == ["a", "a", "b"]


def test_trajectories_are_sorted_by_what_is_read_of_them() -> None:
    num = PAGE + 2
    turns = [
        [("user", f"Do {num - at:03}." if at else ""), ("assistant", "click(1, 2)")]
        for at in range(num)
    ]
    ends = np.array(["", *["failed"] * (num - 2), "error"])
    batch = rd.Batch.from_turns(turns, sample_columns={"exit_status": ends})
    looked_at = session(batch)

    def by(head: str, *, is_ascending: bool) -> list[int]:
        sort = {"head": head, "is_ascending": is_ascending}
        pages = [
            drawer_list(looked_at, "samples", start, sort=sort) for start in (0, PAGE)
        ]
        assert heads(pages[0]) == heads(pages[1])
        return [*column(pages[0], "sample"), *column(pages[1], "sample")]

    assert by("task", is_ascending=True) == [*range(num - 1, 0, -1), 0]
    assert by("task", is_ascending=False) == [*range(1, num), 0]
    assert by("outcome", is_ascending=True) == [num - 1, *range(1, num - 1), 0]


def test_without_a_pair_rows_are_in_the_order_of_the_heatmap() -> None:
    turns = [[("user", "go"), ("assistant", "a b c"[:size])] for size in (3, 5, 1)]
    batch = rd.Batch.from_turns(turns, rewards=[1.0, 0.0, 1.0])
    looked_at = session(batch)
    assert (looked_at.state.metric, looked_at.state.order) == ("action", "reward")
    samples = drawer_list(looked_at, "samples")
    assert column(samples, "sample") == [0, 2, 1]
    assert column(samples, "words") == [2, 1, 3]
    assert samples["caption"] == "the highest reward first, as the heatmap"
    rounds = drawer_list(looked_at, "rounds")
    assert column(rounds, "sample") == [0, 2, 1]
    assert heads(rounds) == ["sample", "round", "action", "words"]


def test_each_list_of_a_batch_without_log_probs_has_an_answer() -> None:
    batch = rd.Batch.from_turns([[("user", "Go."), ("assistant", "click(1, 2)")]])
    for name in ("tokens", "rounds", "samples", "findings", "common", "selection"):
        assert "empty" in drawer_list(session(batch), name)
