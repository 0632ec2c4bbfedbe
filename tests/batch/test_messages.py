"""Content of messages as the APIs write it: each leaf is shown, a column, or named."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.batch.content import Piece, read_content
from rounddiag.batch.messages import (
    describe_calls,
    join_items,
    read_message,
    split_responses,
    write_text,
)
from tests.loaders.values import png, url_of

PNG = png(size=(2, 2))
DATA = b64encode(PNG).decode()
URL = url_of(PNG)


def text(words: str, **more: Any) -> Piece:
    return Piece(kind="text", text=words, **more)


def picture(value: object = URL, **more: Any) -> Piece:
    return Piece(kind="picture", picture=value, **more)


def call(name: str, arguments: object) -> Piece:
    return Piece(kind="call", text=name, arguments=arguments)


def thought(words: str) -> Piece:
    return Piece(kind="thought", text=words)


def unread(name: str) -> Piece:
    return Piece(kind="unknown", text=name)


Cases = dict[str, tuple[object, list[Piece]]]
OPENAI: Cases = {
    "texts": (["a", {"type": "text", "text": "b"}], [text("a"), text("b")]),
    "picture": ({"type": "image_url", "image_url": {"url": URL}}, [picture()]),
    "address": ({"type": "input_image", "image_url": URL}, [picture()]),
    "refusal": ({"type": "refusal", "refusal": "No."}, [text("No.")]),
    "audio": ([{"type": "input_audio", "input_audio": {}}], []),
    "no audio": (
        [{"type": "input_audio", "input_audio": {"data": "x"}}],
        [unread("input_audio")],
    ),
    "annotated": (
        {"type": "output_text", "text": "a", "annotations": [{"url": "u"}]},
        [text("a"), unread("output_text.annotations")],
    ),
    "reasoning": (
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}],
            "encrypted_content": "e",
        },
        [thought("s"), thought("t"), unread("reasoning.encrypted_content")],
    ),
    "computer": (
        {"type": "computer_call", "action": {"type": "click", "x": 1}},
        [call("computer", {"type": "click", "x": 1})],
    ),
    "screen": (
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": URL},
        },
        [picture(is_output=True)],
    ),
    "custom": (
        {"type": "custom_tool_call", "name": "sh", "input": "ls -l"},
        [call("sh", "ls -l")],
    ),
    "mcp": (
        {"type": "mcp_call", "name": "f", "arguments": "{}", "output": "o"},
        [call("f", {}), text("o", is_output=True)],
    ),
}
ANTHROPIC: Cases = {
    "tool_use": (
        {"type": "tool_use", "id": "t", "name": "computer", "input": {"action": "k"}},
        [call("computer", {"action": "k"})],
    ),
    "thinking": (
        {"type": "thinking", "thinking": "t", "signature": "s"},
        [thought("t"), unread("thinking.signature")],
    ),
    "redacted": (
        {"type": "redacted_thinking", "data": "x"},
        [unread("redacted_thinking.data")],
    ),
    "result": (
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [
                {"type": "text", "text": "ok"},
                {
                    "type": "image",
                    "source": {
                        "type": "base64",
                        "media_type": "image/png",
                        "data": DATA,
                    },
                },
            ],
        },
        [text("ok", is_output=True), picture(is_output=True)],
    ),
    "failed": (
        {"type": "tool_result", "is_error": True, "content": "no such tool"},
        [text("no such tool", is_output=True, is_error=True)],
    ),
    "failed, of MCP": (
        {"type": "tool_result", "isError": True, "content": "no such tool"},
        [text("no such tool", is_output=True, is_error=True)],
    ),
    "address": (
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        [picture("https://a/b.png")],
    ),
    "file": (
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        [unread("image.source.file_id")],
    ),
    "document": (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "x"},
        },
        [unread("document.source.data")],
    ),
}
GEMINI: Cases = {
    "thought": ({"text": "t", "thought": True}, [thought("t")]),
    "inline": ({"inline_data": {"mime_type": "image/png", "data": DATA}}, [picture()]),
    "camel": ({"inlineData": {"mimeType": "image/png", "data": DATA}}, [picture()]),
    "sound": (
        {"inlineData": {"mimeType": "audio/wav", "data": "x"}},
        [unread("inlineData.data")],
    ),
    "call": (
        {"functionCall": {"name": "click_at", "args": {"x": 9}}},
        [call("click_at", {"x": 9})],
    ),
    "response": (
        {
            "function_response": {
                "name": "click_at",
                "response": {"url": "http://a"},
                "parts": [{"inline_data": {"mime_type": "image/png", "data": DATA}}],
            }
        },
        [text('{"url": "http://a"}', is_output=True), picture(is_output=True)],
    ),
}
OTHERS: Cases = {
    "MCP": ({"type": "image", "data": DATA, "mimeType": "image/png"}, [picture()]),
    "MCP audio": ({"type": "audio", "data": "x"}, [unread("audio.data")]),
    "MCP resource": (
        {
            "type": "resource",
            "resource": {"uri": "u", "mimeType": "text/plain", "text": "t"},
        },
        [unread("resource.uri"), text("t")],
    ),
    "ATIF": (
        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
        [picture("a.png")],
    ),
    "Qwen": ({"type": "image", "image": "file:///a/b.png"}, [picture("/a/b.png")]),
    "path": ({"type": "image", "path": "b.png"}, [picture("b.png")]),
    "url": ({"type": "image", "url": URL}, [picture()]),
    "base64": ({"type": "image", "image_base64": DATA}, [picture()]),
    "bare base64": ({"type": "image_url", "image_url": DATA}, [picture()]),
    "bytes": ({"image": {"bytes": b"x"}}, [picture({"bytes": b"x"})]),
    "placeholder": ({"type": "image"}, [unread("image")]),
    "video": ({"type": "video", "video": "a.mp4"}, [unread("video")]),
    "nothing": (None, []),
    "another": ({"zoom": 2}, [unread("zoom")]),
    "Bedrock": (
        {"toolResult": {"content": [{"text": "no"}], "note": "n"}},
        [text("no", is_output=True), unread("toolResult.note")],
    ),
    "a number": (["a", 3], [text("a"), unread("content.int")]),
}


@pytest.mark.parametrize(
    ("content", "pieces"),
    [
        pytest.param(*case, id=f"{name} {kind}")
        for name, cases in (
            ("OpenAI", OPENAI),
            ("Anthropic", ANTHROPIC),
            ("Gemini", GEMINI),
            ("other", OTHERS),
        )
        for kind, case in cases.items()
    ],
)
def test_pieces_of_content(content: object, pieces: list[Piece]) -> None:
    assert read_content(content) == pieces


CALLS = {
    "OpenAI": {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
    "custom": {"type": "custom", "custom": {"name": "f", "input": '{"x": 1}'}},
    "ATIF": {"tool_call_id": "1", "function_name": "f", "arguments": {"x": 1}},
    "LangChain": {"type": "tool_call", "name": "f", "args": {"x": 1}},
    "Inspect": {"type": "function", "function": "f", "arguments": {"x": 1}},
}


@pytest.mark.parametrize("layout", CALLS)
def test_calls_beside_the_content(layout: str) -> None:
    said = read_message({"role": "assistant", "tool_calls": [CALLS[layout]]})
    assert said.calls == [call("f", {"x": 1})]
    assert describe_calls(said.calls) == "f(x=1)"


def test_a_message_of_results_has_the_role_of_a_tool() -> None:
    result = {"type": "tool_result", "content": "ok"}
    assert read_message({"role": "user", "content": [result]}).role == "tool"
    both = [result, {"type": "text", "text": "Go on."}]
    assert read_message({"role": "user", "content": both}).role == "user"
    assert read_message({"role": "model", "parts": [{"text": "a"}]}).role == "assistant"


def test_what_a_server_did_stands_within_the_message() -> None:
    content = [
        {"type": "thinking", "thinking": "Search."},
        {"type": "server_tool_use", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "content": [{"type": "text", "text": "r"}]},
        {"type": "text", "text": "Found."},
    ]
    said = read_message({"role": "assistant", "content": content})
    assert write_text(said) == (
        "<think>\nSearch.\n</think>\n<tool_call>\n"
        '{"name": "web_search", "arguments": {"query": "q"}}\n</tool_call>\n'
        "<tool_response>\nr\n</tool_response>\nFound."
    )


THINK = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]}
PRESS = {"type": "computer_call", "status": "completed", "action": {"type": "click"}}
SEEN = {"type": "computer_call_output", "output": {"type": "input_image"}}
SAY = {"type": "message", "role": "assistant", "content": [{"text": "a"}]}
ASK = {"type": "message", "role": "user", "content": "Go."}
CHAT = {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("messages", "sizes"),
    [
        ([ASK, THINK, PRESS, SEEN, THINK, SAY], [1, 2, 1, 2]),
        ([THINK, SAY, PRESS, PRESS, SEEN, SEEN, CHAT], [4, 1, 1, 1]),
        ([CHAT, CHAT, CHAT | {"type": "assistant"}], [1, 1, 1]),
        ([THINK, CHAT], [2]),
        ([CHAT, PRESS, ASK, ASK], [2, 1, 1]),
        (["Go.", None, THINK, 3], [1, 1, 1, 1]),
    ],
)
def test_items_of_one_response_are_one_message(
    messages: list[Any], sizes: list[int]
) -> None:
    assert [*map(len, split_responses(messages))] == sizes


def test_joined_items_say_what_each_says() -> None:
    items: list[dict[str, Any]] = [THINK, PRESS, SAY]
    joined = read_message(join_items(items))
    each = [read_message(item) for item in items]
    assert joined.pieces == [piece for said in each for piece in said.pieces]
    assert (joined.role, joined.others) == ("assistant", {"status": "completed"})


def test_rows_of_items_have_a_round_for_each_response(tmp_path: Path) -> None:
    shown = {"type": "input_image", "image_url": URL}
    seen = {"type": "computer_call_output", "output": shown}
    items = [ASK, THINK, PRESS, seen, THINK, PRESS, seen, SAY]
    opened = load_rows(tmp_path / "m.jsonl", {"messages": items})
    steps = [
        {"messages": items[:1], "response": items[1:3]},
        {"messages": items[:4], "response": items[4:6]},
        {"messages": items[:7], "response": items[7:]},
    ]
    made = rd.Batch.from_steps(
        [{"trajectory": "a", "step": i, **row} for i, row in enumerate(steps)]
    )
    turns = [opened.turns[0], made.turns[0]]
    texts = [[(turn.role, turn.text) for turn in each] for each in turns]
    assert texts[0] == texts[1]
    for batch in (opened, made):
        assert [shot.round for shot in batch.images[0]] == [1, 2]
        actions = batch.round_columns["action"].tolist()
        assert actions == ["computer(type='click')"] * 2 + [None]


def test_a_thought_that_two_fields_repeat_is_said_once() -> None:
    blocks = [{"type": "thinking", "thinking": "t", "signature": "s"}]
    said = read_message({"reasoning_content": "t", "thinking_blocks": blocks})
    assert [piece for piece in said.pieces if piece.kind == "thought"] == [thought("t")]


def test_thoughts_are_read_alike_under_the_names_of_servers() -> None:
    """vLLM 0.32.0: the server answers the one name, templates get the other."""
    both = ({"reasoning": "t"}, {"reasoning_content": "t"})
    for fields in (*both, {**both[0], **both[1]}):
        said = read_message({"role": "assistant", **fields, "content": "a"})
        assert [(piece.kind, piece.text) for piece in said.pieces] == [
            ("thought", "t"),
            ("text", "a"),
        ]
        assert not said.others


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *(
                        "type",
                        "text",
                        "content",
                        "image_url",
                        "source",
                        "data",
                        "output",
                    ),
                    *("function_call", "function_response", "parts", "input", "name"),
                    *(
                        "tool_calls",
                        "function",
                        "thinking",
                        "zoom",
                        "media_type",
                        "url",
                    ),
                )
            ),
            inner | st.sampled_from(("image", "tool_use", "tool_result", "reasoning")),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_value_is_content(value: object) -> None:
    pieces = read_content(value)
    assert all(isinstance(piece, Piece) for piece in pieces)
    write_text(read_message({"role": "assistant", "content": value}))


def load_rows(path: Path, *rows: dict[str, Any]) -> rd.Batch:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return rd.load(path)


def test_the_error_of_a_tool_is_that_of_the_round_before(tmp_path: Path) -> None:
    used = {"type": "tool_use", "name": "click", "input": {"coordinate": [3, 4]}}
    failed = {"type": "tool_result", "is_error": True, "content": "outside"}
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [failed]},
        {"role": "assistant", "content": "Done.", "finish_reason": "stop"},
    ]
    batch = load_rows(tmp_path / "m.jsonl", {"messages": messages, "tags": ["x"]})
    assert batch.round_columns["error"].tolist() == ["outside", None]
    assert batch.round_columns["finish_reason"].tolist() == [None, "stop"]
    assert batch.round_columns["action"].tolist() == ["click(coordinate=[3, 4])", None]
    assert [turn.role for turn in batch.turns[0]] == [
        *("user", "assistant", "tool", "assistant")
    ]
    assert batch.meta["left_out"] == ["tags"]


def test_what_is_not_read_is_counted_and_named(tmp_path: Path) -> None:
    block = {"type": "input_audio", "input_audio": {"data": "UklG"}}
    messages = [
        {"role": "user", "content": [block, block], "timestamp": 3},
        {"role": "assistant", "content": "ok", "usage": {"output_tokens": 2}},
    ]
    batch = load_rows(tmp_path / "m.jsonl", {"messages": messages})
    assert batch.meta["left_out"] == [
        *("content.input_audio", "messages.timestamp", "messages.usage")
    ]
    assert batch.meta["num_unread_blocks"] == 2


def test_a_row_without_an_answer_does_not_end_a_file(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "q"}]
    rows: list[dict[str, Any]] = [
        {"messages": [*asked, {"role": "assistant", "content": "a"}], "reward": 1.0},
        {"messages": asked, "reward": 0.0},
        {"messages": None, "reward": 0.5},
    ]
    batch = load_rows(tmp_path / "m.jsonl", *rows)
    assert np.bincount(batch.rounds.sample, minlength=3).tolist() == [1, 0, 0]
    assert batch.rewards.tolist() == [1.0, 0.0, 0.5]
    assert batch.meta["answers"] == "2 of 3 samples have none"


def test_a_trial_without_an_answer_does_not_end_a_folder(tmp_path: Path) -> None:
    asked = {"source": "user", "message": "a"}
    answered = [asked, {"source": "agent", "message": "b"}]
    for name, steps in {"t0": answered, "t1": [asked], "t2": answered}.items():
        trial = tmp_path / name / "agent"
        trial.mkdir(parents=True)
        document = {"schema_version": "ATIF-v1.7", "session_id": name, "steps": steps}
        (trial / "trajectory.json").write_text(json.dumps(document))
    (tmp_path / "t3" / "agent").mkdir(parents=True)
    (tmp_path / "t3" / "agent" / "trajectory.json").write_text('{"steps": [')
    batch = rd.load(tmp_path)
    assert batch.sample_ids == ("t0", "t2")
    silent, damaged = batch.meta["not_opened"]
    assert silent.startswith(
        "t1/agent/trajectory.json: expected trajectories in which a model wrote"
    )
    assert damaged.startswith("t3/agent/trajectory.json: expected a whole file")


def test_pictures_that_moved_with_their_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "shots").mkdir()
    (tmp_path / "shots" / "a.png").write_bytes(PNG)
    parts = [
        {"type": "image", "path": "/home/other/run/shots/a.png"},
        {"type": "image", "path": "/home/other/run/shots/b.png"},
    ]
    messages = [{"role": "user", "content": parts}, {"role": "assistant"}]
    batch = load_rows(tmp_path / "m.jsonl", {"messages": messages})
    assert [shot.size for shot in batch.images[0]] == [(2, 2)]
    assert batch.meta["screenshots"] == ["1 picture missing or outside the folder"]


def test_pictures_of_a_column_stand_where_messages_have_empty_blocks(
    tmp_path: Path,
) -> None:
    empty = {"role": "user", "content": [{"type": "image"}]}
    reply = {"role": "assistant", "content": "Go."}
    images = [{"bytes": None, "path": f"{name}.png"} for name in "ab"]
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(PNG)
    row = {"messages": [empty, reply, empty, reply], "images": images}
    batch = load_rows(tmp_path / "m.jsonl", row)
    assert [shot.round for shot in batch.images[0]] == [0, 1]
    assert "left_out" not in batch.meta
    batch = load_rows(tmp_path / "m.jsonl", {**row, "messages": [empty, reply]})
    assert [shot.round for shot in batch.images[0]] == [0, 0]


def test_a_tool_of_bedrock_that_failed_is_an_error_with_its_picture() -> None:
    source = {"bytes": DATA}
    result = {
        "toolUseId": "t",
        "content": [{"text": "no"}, {"image": {"format": "png", "source": source}}],
        "status": "error",
    }
    said = read_message({"role": "user", "content": [{"toolResult": result}]})
    assert said.role == "tool"
    assert [(piece.kind, piece.is_error) for piece in said.pieces] == [
        ("text", True),
        ("unknown", True),  # the format, which the picture has as well
        ("picture", True),
    ]
