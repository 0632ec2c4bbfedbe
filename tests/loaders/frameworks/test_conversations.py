"""Conversations in the layouts that people have: data sets, lists, logs of servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from PIL import Image

import rounddiag as rd
from tests.loaders.values import png

RED = Image.new("RGB", (8, 6), "red")
GO = {"role": "user", "content": "Go."}
CHAT = [
    {"from": "human", "value": "<image>Go."},
    {"from": "gpt", "value": "click(1, 2)"},
    {"from": "human", "value": "<image>And <image>then?"},
    {"from": "gpt", "value": "done()"},
]


def rounds_of_pictures(batch: rd.Batch) -> list[list[int | None]]:
    return [[shot.round for shot in shots] for shots in batch.images]


def said(batch: rd.Batch, sample: int = 0) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in batch.turns[sample]]


@pytest.mark.parametrize(
    ("names", "rounds"),
    [("abc", [0, 1, 1]), ("axc", [0, 1]), ("ab", [0, 0]), ("", None)],
)
def test_pictures_stand_where_the_texts_have_tags(
    names: str, rounds: list[int] | None, tmp_path: Path
) -> None:
    for name in "abc":
        (tmp_path / f"{name}.png").write_bytes(png("red", (8, 6)))
    images = [f"{name}.png" for name in names]
    path = tmp_path / "train.json"
    path.write_text(json.dumps([{"conversations": CHAT, "images": images}]))

    batch = rd.load(path)

    assert batch.num_rounds == 2
    assert ("screenshots" in batch.meta) is ("x" in names)
    shown = None if batch.images is None else rounds_of_pictures(batch)[0]
    assert shown == rounds


def test_parquet_of_datasets_has_its_pictures(tmp_path: Path) -> None:
    datasets.disable_progress_bars()
    turn = {"from": datasets.Value("string"), "value": datasets.Value("string")}
    features = datasets.Features(
        {"conversations": [turn], "images": [datasets.Image()]}
    )
    rows = [{"conversations": CHAT, "images": [RED] * 3}] * 2
    data = datasets.Dataset.from_list(rows, features=features)
    data.to_parquet(tmp_path / "train.parquet")

    for batch in (rd.load(tmp_path / "train.parquet"), rd.load(data)):
        assert batch.num_rounds == 4
        assert rounds_of_pictures(batch) == [[0, 1, 1]] * 2


def test_tools_of_llama_factory_are_calls_and_results() -> None:
    call = {"name": "click", "arguments": {"x": 1}}
    row = {
        "system": "You click.",
        "tools": "[]",
        "conversations": [
            {"from": "human", "value": "Go."},
            {"from": "function_call", "value": json.dumps(call)},
            {"from": "observation", "value": "ok"},
            {"from": "function_call", "value": "no JSON"},
        ],
    }
    batch = rd.load([row])

    assert batch.round_columns["action"].tolist() == ["click(x=1)", None]
    roles = [role for role, _ in said(batch)]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert said(batch)[-1][1] == "no JSON"
    assert [*batch.sample_columns] == ["tools"]


def test_a_second_conversation_of_a_row_is_named() -> None:
    reply = {"role": "assistant", "content": "a"}
    row = {"messages": [GO, reply], "conversations": CHAT, "system": "s", "image": "i"}
    batch = rd.load([{**row, "images": []}])

    assert said(batch) == [("user", "Go."), ("assistant", "a")]
    assert batch.meta["left_out"] == ["conversations"]
    assert sorted(batch.sample_columns) == ["image", "system"]


@pytest.mark.parametrize("form", ["document", "lines", "memory"])
def test_a_list_of_messages_is_one_conversation(form: str, tmp_path: Path) -> None:
    reply = {"role": "assistant", "content": "wait()"}
    messages = [GO, reply, {"role": "user", "content": ["And", "now?"]}, reply]
    data: Any = tmp_path / "interact_messages.json"
    text = "\n".join(map(json.dumps, messages))
    data.write_text(text if form == "lines" else json.dumps(messages))
    batch = rd.load(messages if form == "memory" else data)
    assert [role for role, _ in said(batch)] == ["user", "assistant"] * 2
    if form != "memory":
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / data.name).write_text(json.dumps(messages[:2]))
        assert rd.load(tmp_path).rounds.sample.tolist() == [0, 0, 1]
    assert rd.load([messages, messages[:2]]).rounds.sample.tolist() == [0, 0, 1]


def choice(text: str, ids: list[int], **others: Any) -> dict[str, Any]:
    content = [{"token": "t", "logprob": -0.5 * id_} for id_ in ids]
    return {
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": {"content": content},
        "token_ids": ids,
        "finish_reason": "stop",
        **others,
    }


def line(messages: list[Any], ids: list[int], *choices: Any, **row: Any) -> Any:
    request = {"messages": messages, "temperature": 0.5, "tools": [{"name": "f"}]}
    response = {
        "id": f"c{len(messages)}",
        "object": "chat.completion",
        "prompt_token_ids": ids,
        "choices": [*choices],
        "usage": {"completion_tokens": 2},
    }
    return {"request": request, "response": response, **row}


FIRST = line([GO], [1, 2], choice("a", [5, 6]), session="s", reward=0.0)
NEXT = [GO, {"role": "assistant", "content": "a", "reasoning": "r"}, GO]
SECOND = line(NEXT, [1, 2, 5, 6, 3], choice("b", [7]), session="s", reward=1.0)
OTHER = line([GO], [1, 2], choice("c", [8]), choice("d", [9]), session="t")


def test_the_output_of_a_batch_of_requests_has_its_failures() -> None:
    body = FIRST["response"]
    rows = [
        {"custom_id": "p", "response": {"status_code": 200, "body": body}},
        {"custom_id": "q", "response": None, "error": {"code": "late"}},
    ]
    batch = rd.load(rows)

    assert batch.rounds.sample.tolist() == [0]
    assert batch.sample_columns["custom_id"].tolist() == ["p", "q"]
    assert batch.round_columns["status_code"].tolist() == [200]
    assert batch.log_probs("rollout")[batch.response_mask != 0].tolist() == [-2.5, -3.0]
    assert batch.meta["left_out"] == ["error"]


def test_calls_that_go_on_are_one_sample_with_its_ids() -> None:
    batch = rd.load([FIRST, OTHER, SECOND])

    assert batch.rounds.sample.tolist() == [0, 0, 1, 2]
    ids, mask = batch.require_ids(), batch.response_mask
    assert ids[mask != 0].tolist() == [5, 6, 7, 8, 9]
    found = batch.log_probs("rollout")[mask != 0]
    assert found.tolist() == [-2.5, -3.0, -3.5, -4.0, -4.5]
    assert batch.old_log_probs is None
    assert batch.rewards.tolist()[:1] == [1.0]
    assert batch.sample_columns["session"].tolist() == ["s", "t", "t"]
    assert batch.sample_columns["temperature"].tolist() == [0.5] * 3
    assert batch.round_columns["request_id"].tolist() == ["c1", "c3", "c1", "c1"]
    assert batch.round_columns["reward"].tolist()[:2] == [0.0, 1.0]
    assert batch.meta["left_out"] == ["tools"]


def test_calls_whose_context_was_rewritten_are_joined_by_a_column() -> None:
    cut = line([SECOND["request"]["messages"][2]], [3], choice("b", [7]), session="s")
    batch = rd.load([FIRST, cut], sample_by="session", order_by="row")

    assert batch.num_samples == 1
    assert batch.num_rounds == 2
    assert batch.context(0, 1).follows == "rewritten"


@pytest.mark.parametrize("lost", ["prompt_token_ids", "token_ids"])
def test_ids_without_a_place_are_named(lost: str) -> None:
    row = json.loads(json.dumps(FIRST))
    (row["response"] if lost in row["response"] else row["response"]["choices"][0]).pop(
        lost
    )
    batch = rd.load([row])

    kept = {"prompt_token_ids": "completion_ids", "token_ids": "prompt_ids"}[lost]
    named = {f"trajectory.tokens.{name}" for name in (kept, "completion_logprobs")}
    assert named | {"tools"} == {*batch.meta["left_out"]}
    assert [text for _, text in said(batch)] == ["Go.", "a"]


def test_completions_of_texts_and_responses_without_a_request() -> None:
    made = {"text": " there", "logprobs": {"token_logprobs": [-0.5, -1.5]}}
    ids = {"prompt_token_ids": [1, 2], "token_ids": [5, 6], "finish_reason": "length"}
    batch = rd.load([{"prompt": "Go", "choices": [{**made, **ids}], "model": "m"}])

    assert batch.log_probs("rollout").tolist() == [-0.5, -1.5]
    assert batch.prompt_ids.tolist() == [1, 2]
    assert said(batch) == [("user", "Go"), ("assistant", " there")]
    assert batch.round_columns["finish_reason"].tolist() == ["length"]
    assert "left_out" not in batch.meta


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (
            {"messages": [GO], "system": "s"},
            {"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]},
        ),
        (
            {"input": [GO]},
            {"output": [{"type": "function_call", "name": "f"}]},
        ),
    ],
)
def test_responses_that_are_messages_or_items(
    asked: dict[str, Any], answer: dict[str, Any]
) -> None:
    answer = {"id": "r", "usage": {"output_tokens": 3}, "status": "ok", **answer}
    batch = rd.load([{"request": asked, "response": answer, "session": "s"}])

    assert [role for role, _ in said(batch)] == ["user", "assistant"]
    columns = {name: column.tolist() for name, column in batch.round_columns.items()}
    assert columns["action"] == ["f()"]
    assert columns["request_id"] == ["r"]
    assert columns["output_tokens"] == [3]
    assert columns["status"] == ["ok"]
    assert batch.sample_columns["session"].tolist() == ["s"]
    assert "left_out" not in batch.meta
