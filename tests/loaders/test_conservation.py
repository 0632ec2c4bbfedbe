"""Every value of an input is shown, a column, or named as left out.

`ROUNDDIAG_MORE=10000` tries as many values that are added.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import rounddiag as rd
from rounddiag.batch.content import MARKS
from rounddiag.errors import RounddiagError
from tests.loaders.read_trees import PICKLES, TABLES, load_with, places_in
from tests.loaders.values import png, url_of

DATA = Path(__file__).parents[1] / "data"
PNG = png(size=(2, 2))
DATA_OF_PNG = b64encode(PNG).decode()
URL = url_of(PNG)
ASKED = {"role": "user", "content": "Open the menu."}


def message(*blocks: object, **others: object) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks], **others}


def rows_of(*messages: object, **others: object) -> dict[str, Any]:
    return {"messages": [ASKED, *messages], **others}


def answer(**others: object) -> dict[str, Any]:
    return {"role": "assistant", "content": "Done.", **others}


CALL = {"id": "c1", "type": "function"}
ANTHROPIC_IMAGE = {"type": "base64", "media_type": "image/png", "data": DATA_OF_PNG}
ROWS: dict[str, dict[str, Any]] = {
    "OpenAI chat": rows_of(
        message(
            {"type": "text", "text": "I look.", "annotations": ["cited"]},
            refusal="I will not.",
            tool_calls=[
                {**CALL, "function": {"name": "click", "arguments": '{"x": 71}'}},
                {**CALL, "custom": {"name": "type", "input": "kettle"}},
            ],
            audio={"id": "a", "data": "sound", "transcript": "heard"},
        ),
        {"role": "tool", "tool_call_id": "c1", "content": "clicked"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
        answer(function_call={"name": "wait", "arguments": '{"for": 72}'}, weight=73),
        reward=74.5,
        tools=[{"type": "function", "function": {"name": "click"}}],
    ),
    "OpenAI sound and files": rows_of(
        {
            "role": "user",
            "content": [
                {"type": "input_audio", "input_audio": {"data": "x9", "format": "wav"}},
                {"type": "file", "file": {"file_data": "x8", "filename": "b.pdf"}},
            ],
        },
        answer(),
    ),
    "Responses": {
        "responses_create_params": {"input": "Open.", "temperature": 75},
        "response": {
            "id": "r",
            "model": "m75",
            "status": "completed",
            "usage": {"input_tokens": 76, "output_tokens": 77},
            "output": [
                {
                    "type": "reasoning",
                    "id": "i",
                    "summary": [{"type": "summary_text", "text": "Think."}],
                    "encrypted_content": "secret",
                },
                {
                    "type": "computer_call",
                    "call_id": "c",
                    "action": {"type": "click", "x": 78},
                    "pending_safety_checks": [{"code": "malicious"}],
                    "status": "completed",
                },
                {
                    "type": "computer_call_output",
                    "call_id": "c",
                    "output": {"type": "computer_screenshot", "image_url": URL},
                    "acknowledged_safety_checks": [{"code": "seen"}],
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "status": "incomplete",
                    "content": [
                        {
                            "type": "output_text",
                            "text": "Done.",
                            "logprobs": [{"token": "Do", "logprob": -0.79}],
                        }
                    ],
                },
            ],
        },
        "reward": 0.25,
        "verdict": "good",
    },
    "Responses: tools of the server": {
        "responses_create_params": {"input": "Open."},
        "response": {
            "output": [
                {
                    "type": "web_search_call",
                    "action": {"type": "search", "query": "kettles"},
                    "status": "completed",
                },
                {
                    "type": "code_interpreter_call",
                    "code": "print(80)",
                    "container_id": "box",
                    "outputs": [{"type": "logs", "logs": "eighty"}],
                },
                {
                    "type": "mcp_call",
                    "name": "ask",
                    "server_label": "wiki",
                    "arguments": '{"q": "81"}',
                    "output": "eighty-one",
                },
                {"type": "image_generation_call", "result": DATA_OF_PNG},
            ]
        },
    },
    "Anthropic": rows_of(
        message(
            {"type": "thinking", "thinking": "At the top.", "signature": "signed"},
            {"type": "redacted_thinking", "data": "blackened"},
            {"type": "text", "text": "I click.", "citations": [{"cited_text": "q"}]},
            {
                "type": "tool_use",
                "id": "t",
                "name": "computer",
                "input": {"action": "left_click", "coordinate": [82, 83]},
            },
            stop_reason="tool_use",
            usage={"input_tokens": 84},
        ),
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "missed"},
                        {"type": "image", "source": ANTHROPIC_IMAGE},
                    ],
                },
                {
                    "type": "document",
                    "title": "Manual",
                    "source": {"type": "text", "media_type": "text/plain", "data": "m"},
                },
            ],
        },
        answer(),
    ),
    "Anthropic: tools of the server": rows_of(
        message(
            {"type": "server_tool_use", "name": "web_search", "input": {"query": "q9"}},
            {
                "type": "web_search_tool_result",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "http://w",
                        "encrypted_content": "hidden",
                    }
                ],
            },
            {"type": "text", "text": "Found."},
        )
    ),
    "Gemini": rows_of(
        {
            "role": "model",
            "parts": [
                {"text": "Perhaps.", "thought": True},
                {"text": "I go.", "thoughtSignature": "sig"},
                {"functionCall": {"name": "click_at", "args": {"x": 85}}},
                {"executableCode": {"language": "PYTHON", "code": "1"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "click_at",
                        "response": {"url": "http://g"},
                        "parts": [
                            {
                                "inlineData": {
                                    "mimeType": "image/png",
                                    "data": DATA_OF_PNG,
                                }
                            }
                        ],
                    }
                },
                {"fileData": {"fileUri": "gs://f", "mimeType": "image/png"}},
            ],
        },
        {"role": "model", "parts": [{"text": "Done."}]},
    ),
    "MCP": rows_of(
        answer(tool_calls=[{"name": "look", "args": {"n": 86}, "id": "c"}]),
        {
            "role": "tool",
            "content": [
                {"type": "text", "text": "menu", "_meta": {"a": "b9"}},
                {"type": "image", "data": DATA_OF_PNG, "mimeType": "image/png"},
                {"type": "audio", "data": "wave", "mimeType": "audio/wav"},
                {
                    "type": "resource",
                    "resource": {"uri": "file://r", "mimeType": "text/x", "text": "rt"},
                },
                {"type": "resource_link", "uri": "http://l", "name": "link"},
            ],
            "isError": True,
            "structuredContent": {"n": 87},
        },
        answer(),
    ),
    "Qwen": rows_of(
        {
            "role": "user",
            "content": [
                {"type": "image", "image": "file:///there/a.png", "min_pixels": 88},
                {"type": "video", "video": "b.mp4"},
            ],
        },
        answer(reasoning_content="I think."),
    ),
    "other pictures": rows_of(
        {
            "role": "user",
            "content": [
                "a text",
                {"type": "image", "path": "a.png"},
                {"type": "image", "url": URL},
                {"type": "image", "image_base64": DATA_OF_PNG, "caption": "menu"},
                {"type": "image"},
                {"zoom": 89},
            ],
            "images": [DATA_OF_PNG],
        },
        answer(),
    ),
    "Bedrock": rows_of(
        message(
            {"reasoningContent": {"reasoningText": {"text": "Top.", "signature": "s"}}},
            {"toolUse": {"toolUseId": "t", "name": "click", "input": {"x": 101}}},
        ),
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "t",
                        "content": [
                            {"text": "missed"},
                            {"json": {"code": "j102"}},
                            {
                                "image": {
                                    "format": "png",
                                    "source": {"bytes": DATA_OF_PNG},
                                }
                            },
                        ],
                        "status": "error",
                    }
                }
            ],
        },
        answer(),
    ),
    "LangChain": {
        "messages": [
            {"type": "human", "data": {"content": "Open."}},
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "schema", "messages", "AIMessage"],
                "kwargs": {
                    "content": "I click.",
                    "tool_calls": [{"name": "click", "args": {"x": 103}, "id": "c"}],
                    "usage_metadata": {"input_tokens": 104},
                },
            },
            {"type": "tool", "content": "clicked", "tool_call_id": "c"},
            {"type": "ai", "content": "Done."},
        ]
    },
    "Vercel": rows_of(
        message(
            {
                "type": "tool-call",
                "toolCallId": "c",
                "toolName": "click",
                "input": {"x": 105},
            }
        ),
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c",
                    "output": {
                        "type": "content",
                        "value": [
                            {"type": "text", "text": "clicked"},
                            {
                                "type": "media",
                                "data": DATA_OF_PNG,
                                "mediaType": "image/png",
                            },
                        ],
                    },
                }
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {
                    "type": "tool-scroll",
                    "toolCallId": "d",
                    "state": "output-available",
                    "input": {"y": 106},
                    "output": {"ok": "yes107"},
                },
            ],
        },
    ),
    "Anthropic: files and other servers": rows_of(
        message(
            {
                "type": "code_execution_tool_result",
                "content": {
                    "type": "code_execution_result",
                    "stdout": "out108",
                    "return_code": 109,
                },
            },
            {
                "type": "mcp_tool_use",
                "name": "look",
                "server_name": "srv",
                "input": {"q": "q110"},
            },
            {"type": "container_upload", "file_id": "f111"},
        ),
        {
            "role": "user",
            "content": [
                {"type": "search_result", "source": "http://s", "title": "t112"},
                {"type": "image", "source": {"type": "file", "file_id": "f113"}},
            ],
        },
        answer(),
    ),
    "Responses: shell and approvals": {
        "responses_create_params": {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": URL, "detail": "high"},
                        {"type": "input_file", "file_id": "f114"},
                    ],
                }
            ]
        },
        "response": {
            "output": [
                {
                    "type": "computer_call",
                    "actions": [{"type": "type", "text": "a115"}],
                },
                {
                    "type": "computer_call_output",
                    "output": {"type": "computer_screenshot", "file_id": "f116"},
                },
                {
                    "type": "local_shell_call",
                    "action": {"type": "exec", "command": ["ls", "d117"]},
                },
                {"type": "local_shell_call_output", "output": "files118"},
                {
                    "type": "mcp_approval_request",
                    "name": "ask",
                    "arguments": '{"a": 119}',
                },
                {"type": "compaction", "encrypted_content": "e120"},
            ]
        },
    },
    "pictures in a column": rows_of(
        {"role": "user", "content": [{"type": "image"}, "See."]},
        answer(),
        images=[{"bytes": None, "path": "a.png"}],
    ),
    "litellm": rows_of(
        answer(
            reasoning_content="Repeated.",
            thinking_blocks=[{"type": "thinking", "thinking": "Repeated."}],
            provider_specific_fields={"citations": "c90"},
        )
    ),
    "OpenRouter": rows_of(
        answer(
            reasoning="Hm.",
            reasoning_details=[
                {"type": "reasoning.text", "text": "Hm.", "format": "f91"},
                {"type": "reasoning.encrypted", "data": "e91"},
            ],
        )
    ),
    "Inspect in rows": rows_of(
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "reasoning": "Why.", "redacted": False},
                {"type": "data", "data": {"k": "v92"}},
            ],
            "tool_calls": [
                {"id": "c", "function": "click", "arguments": {"x": 92}, "view": "v"}
            ],
        },
        {
            "role": "tool",
            "content": "",
            "error": {"type": "timeout", "message": "late"},
        },
        answer(),
    ),
    "a row of columns": rows_of(
        answer(finish_reason="length"),
        info={"x": 93},
        tags=["t94"],
        name="n95",
        reward=0.96,
        error="e97",
        extra_info={"deep": {"er": 98}},
    ),
    "completions": {
        "prompt": [ASKED],
        "completion": [answer()],
        "task_id": "t1",
        "metrics": {"hit": 61, "by": {"part": 62}},
        "timing": {"total": 63.5, "setup": {"start": 64.5}},
        "error": {"error": "failed65"},
    },
    "calls of verifiers": {
        "example_id": 66,
        "prompt": [ASKED],
        "completion": [answer()],
        "reward": 0.67,
        "trajectory": [
            {
                "prompt": [ASKED],
                "completion": [answer()],
                "response": {
                    "id": "r",
                    "model": "m68",
                    "usage": {"completion_tokens": 69},
                    "message": {"finish_reason": "stop", "content": "Done."},
                },
                "tokens": None,
                "extras": {"x": "x70"},
                "advantage": 0.71,
            }
        ],
    },
    "traces": {
        "id": "e",
        "env": {"id": "gui"},
        "task": {"data": {"goal": "g51"}},
        "is_timeout": False,
        "traces": [
            {
                "id": "t",
                "nodes": [
                    {"message": ASKED, "timestamp": 52.5},
                    {
                        "parent": 0,
                        "sampled": True,
                        "message": answer(name="n53"),
                        "note": {"a": "n54"},
                    },
                ],
                "calls": [
                    {
                        "node": 1,
                        "model": "m55",
                        "usage": {"completion_tokens": 56},
                        "time": {"start": 1.0, "end": 3.5},
                        "retries": [{"after": 57}],
                    }
                ],
                "rewards": {"a": {"score": 0.5, "weight": 2.0}},
                "info": {"prime_rl": {"env_name": "gui58"}, "more": {"b": 59}},
                "tools": [{"name": "click60"}],
            }
        ],
    },
    "rLLM": {
        "training_step": 31,
        "episode_id": "e32",
        "task": {"question": "q33"},
        "is_correct": True,
        "trajectories": [
            {
                "name": "solver",
                "reward": 0.34,
                "info": {"a": "i35"},
                "steps": [
                    {
                        "chat_completions": [ASKED, answer()],
                        "observation": "o36",
                        "thought": "t37",
                        "action": "a38",
                        "model_response": "Done.",
                        "reward": 0.39,
                        "info": {"b": "i40"},
                        "model_output": {"content": "Done."},
                    }
                ],
            }
        ],
    },
    "verl": {
        "input": "q",
        "output": "Done.",
        "score": 0.41,
        "gts": {"answer": "g42"},
        "acc": 43,
        "step": 44,
    },
}
STEPS: list[dict[str, Any]] = [
    {"step_id": 1, "source": "user", "message": "Open.", "timestamp": "2026-01-05"},
    {
        "step_id": 2,
        "source": "agent",
        "model_name": "m11",
        "message": [{"type": "text", "text": "I click."}],
        "reasoning_content": "Top.",
        "tool_calls": [
            {
                "tool_call_id": "c",
                "function_name": "click",
                "arguments": {"x": 12},
                "extra": {"a": "e13"},
            }
        ],
        "observation": {
            "results": [
                {"source_call_id": "c", "content": "clicked", "extra": {"b": "e14"}}
            ]
        },
        "metrics": {
            "prompt_tokens": 15,
            "completion_tokens": 16,
            "cost_usd": 0.17,
            "logprobs": [-0.5],
            "extra": {"c": 18},
        },
        "extra": {"d": "e19"},
    },
]
ATIF: dict[str, Any] = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s20",
    "notes": "n21",
    "agent": {"name": "a22", "version": "v23", "extra": {"x": "e24"}},
    "steps": STEPS,
    "final_metrics": {"total_cost_usd": 0.25, "extra": {"y": 26}},
    "extra": {"z": "e27"},
}
TRIAL = {
    "task_name": "t28",
    "config": {"timeout": 29},
    "agent_result": {"n_output_tokens": 30, "metadata": {"m": "m46"}},
    "verifier_result": {"rewards": {"reward": 0.47, "format": 0.48}},
    "exception_info": {"exception_type": "Late", "exception_message": "after49"},
    "started_at": "2026-01-05T10:00:00Z",
    "finished_at": "2026-01-05T10:00:50Z",
}
OSWORLD = {
    "step_num": 1,
    "action_timestamp": "t1",
    "action": {"action_type": "CLICK", "parameters": {"x": 2}},
    "response": {"thought": "th3", "state_correct": True, "parts": {"a": "p4"}},
    "reward": 0.5,
    "done": False,
    "info": {"status": "ok6", "deep": {"b": "d7"}},
    "screenshot_file": "a.png",
    "instruction": "Open the menu.",
}


def write_rows(folder: Path, row: dict[str, Any]) -> tuple[Path, list[Any]]:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (folder / "a.png").write_bytes(PNG)
    return path, [row]


def write_trial(folder: Path) -> tuple[Path, list[Any]]:
    path = folder / "trial" / "agent" / "trajectory.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(ATIF))
    (folder / "trial" / "result.json").write_text(json.dumps(TRIAL))
    return path, [ATIF, TRIAL]


# What a batch holds as tokens, and what says how a file is laid out.
TOKENS = {
    *("prompt_token_ids", "completion_token_ids", "logprobs", "token_ids", "mask"),
    *("generation_token_ids", "generation_log_probs", "prompt_ids", "completion_ids"),
    *("completion_logprobs", "trainer_logprobs", "entropies"),
}
LAYOUT = {
    *("schema_version", "trajectory_format", "created_at", "sampled", "parent"),
    *("semantic_parents", "is_content", "node", "endpoint", "version", "step_id"),
    *("source", "llm_call_count", "is_copied_context", "format", "name"),
    *("trajectory_id", "epoch"),
}
# Of which a column has a sum, a difference, or what it was at the end.
DERIVED = {
    *("start", "end", "step_start_time", "step_end_time", "started_at", "finished_at"),
    *("weight", "is_done"),
}


Leaf = tuple[tuple[str, ...], Any]


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, (*path, name))
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part, path)
    elif value is not None and value != "":
        yield path, value


def numbers_in(batch: rd.Batch) -> list[float]:
    """Return all numbers in the columns of a batch; rewards are in single precision."""
    columns = [*batch.sample_columns.values(), *batch.round_columns.values()]
    values = [value for column in columns for value in np.asarray(column).tolist()]
    values += [] if batch.rewards is None else batch.rewards.tolist()
    return [float(value) for value in values if isinstance(value, int | float)]


def shown_in(batch: rd.Batch) -> str:
    """Return all texts, and all values of columns, of a batch."""
    values: list[Any] = [batch.group_ids, batch.sample_ids, batch.step]
    values += [None if batch.rewards is None else batch.rewards.tolist()]
    for columns in (batch.sample_columns, batch.round_columns):
        values += [np.asarray(column).tolist() for column in columns.values()]
    texts = [turn.text for row in batch.turns or () for turn in row]
    return "\n".join([*texts, json.dumps(values, default=whole, ensure_ascii=False)])


def whole(value: Any) -> object:
    """Return a value for JSON; numpy writes the middle of long arrays as dots."""
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def is_named(path: tuple[str, ...], left_out: list[str]) -> bool:
    """Return whether a name in `left_out` ends with a key of the path."""
    return any({*name.split(".")[-1:], name} & {*path} for name in left_out)


def is_picture(value: Any) -> bool:
    marks = ("data:image/", DATA_OF_PNG)
    return isinstance(value, str) and (value.startswith(marks) or value[-4:] == ".png")


@pytest.mark.parametrize("name", [*ROWS, "a trial", "OSWorld"])
def test_every_leaf_is_accounted_for(name: str, tmp_path: Path) -> None:
    if name in ROWS:
        path, documents = write_rows(tmp_path, ROWS[name])
    elif name == "OSWorld":
        path, documents = write_rows(tmp_path, OSWORLD)
        path = path.rename(tmp_path / "traj.jsonl")
    else:
        path, documents = write_trial(tmp_path)
    batch = rd.load(path)
    shown, numbers = shown_in(batch), numbers_in(batch)
    left_out = [str(entry) for entry in batch.meta.get("left_out", [])]
    num_pictures = sum(map(len, batch.images or ()))
    lost = []
    for keys, value in leaves(documents):
        *_, key = keys
        if key in MARKS | LAYOUT | TOKENS | DERIVED or is_named(keys, left_out):
            continue
        if is_picture(value):
            assert num_pictures or "screenshots" in batch.meta
            continue
        if isinstance(value, bool | float):
            is_known = bool(np.isclose(value, numbers, rtol=1e-6).any())
        else:
            escaped = json.dumps(str(value))[1:-1]  # as in the arguments of a call
            lines = (str(value).splitlines(), escaped.splitlines())
            is_known = any(all(line in shown for line in part) for part in lines)
        if not is_known:
            lost.append((".".join(keys), value))
    assert lost == []


def test_outcomes_have_one_name_in_all_formats(tmp_path: Path) -> None:
    batch = rd.load(write_trial(tmp_path)[0])
    sample = {name: column.tolist() for name, column in batch.sample_columns.items()}
    assert sample["seconds"] == [50.0]
    assert sample["num_generated"] == [30]
    assert sample["cost"] == [0.25]
    assert sample["error"] == ["Late: after49"]
    rounds = {name: column.tolist() for name, column in batch.round_columns.items()}
    assert rounds["num_generated"] == [16]
    assert rounds["cost"] == [0.17]
    log = rd.load(DATA / "inspect-ai-0.3.285" / "gui.eval")
    assert {*OUTCOME_OF_ROUNDS} <= log.round_columns.keys()
    assert log.round_columns["status"].tolist() == ["tool_calls", "stop", "stop"]
    whole = log.sample_columns["seconds"]
    assert whole.tolist() == log.sample_columns["total_time"].tolist()
    assert log.sample_columns["num_generated"].tolist() == [
        sum(log.round_columns["num_generated"][rows].tolist())
        for rows in (slice(0, 2), slice(2, 3))
    ]


OUTCOME_OF_ROUNDS = ("status", "seconds", "num_generated")


# What a value that is added must leave behind; a picture by its size.
WORD, NUMBER, SIZE = "kettle7", 918273, (3, 5)
ADDED: dict[str, Callable[[], object]] = {
    "text": lambda: WORD,
    "whole number": lambda: NUMBER,
    "whole number of numpy": lambda: np.int64(NUMBER),
    "decimal": lambda: Decimal(NUMBER),
    "float": lambda: NUMBER / 4,
    "flag": lambda: np.bool_(1),
    "NaN": lambda: float("nan"),
    "list": lambda: [WORD, 5],
    "array": lambda: np.arange(2_000) + NUMBER - 1_000,
    "object": lambda: {"inner7": {"deep7": WORD}},
    "bytes": WORD.encode,
    "picture": lambda: Image.new("RGB", SIZE),
    "nothing": lambda: None,
}
STEP = {
    "task": {"name": "mail"},
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Go."},
                {"type": "image_url", "image_url": {"url": URL}},
            ],
        },
        message(
            {"type": "text", "text": "I go."},
            tool_calls=[
                {
                    **CALL,
                    "function": {
                        "name": "click",
                        "arguments": {"x": 1, "to": {"y": 2}},
                    },
                }
            ],
        ),
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ],
    "response": answer(
        tool_calls=[{**CALL, "function": {"name": "wait", "arguments": {"n": 1}}}]
    ),
}
IDS = {"info": {"a": 1}, "prompt_ids": [1, 2], "response": [4, 5]}
TOKEN_ROW = {
    "response_ids": [1, 2, 3],
    "response_mask": [1, 0, 1],
    "rollout_log_probs": [-1.0, 0.0, -1.0],
    "old_log_probs": [-1.0, 0.0, -1.25],
    "info": {"a": 1},
}
FROM_STEPS: dict[str, dict[str, Any]] = {"steps of texts": STEP, "steps of ids": IDS}
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    **{name: [row] for name, row in ROWS.items()},
    **{
        name: [{"trajectory": "t", "step": i, "reward": 1, **row} for i in range(2)]
        for name, row in FROM_STEPS.items()
    },
    "rows of tokens": [TOKEN_ROW, TOKEN_ROW],
    "OSWorld": [OSWORLD, {**OSWORLD, "reward": 0.25}, {"Error": "no answer"}],
    "AndroidWorld": [
        {
            "goal": "Open the menu.",
            "task_template": "OpenMenu",
            "is_successful": 1.0,
            "screen_config": {"width": 1080},
            "episode_data": {
                "action_prompt": ["p0", "p1"],
                "action_output": ["Action: {}", "Reason: none."],
                "action": [{"index": 3}, None],
            },
        }
    ],
}
OURS = (
    *("row", "num_rows", "content", "status", "id", "reward", "is_rewritten"),
    *("error", "uid", "step", "seconds"),
)


def is_somewhere(batch: rd.Batch, path: tuple[Any, ...], name: str, kind: str) -> bool:
    """Return whether a value that was added is shown, a column, or named."""
    columns = {**batch.sample_columns, **batch.round_columns, **batch.token_columns}
    named = {str(entry).split(".")[-1] for entry in batch.meta.get("left_out", [])}
    plural = {"rewards"} if name == "reward" else set()  # as it is called here
    if named & {*filter(lambda part: isinstance(part, str), path), name, *plural}:
        return True
    if kind == "object" and named & {"inner7", "deep7"}:
        return True
    shots = [shot for row in batch.images or () for shot in row]
    if kind == "picture" and any(shot.size == SIZE for shot in shots):
        return True
    lists = [np.asarray(column).tolist() for column in columns.values()]
    facts = {key: fact for key, fact in batch.meta.items() if key != "left_out"}
    shown = shown_in(batch) + json.dumps([lists, facts], default=whole)
    if name not in OURS:
        return name in shown or any(name in column for column in columns)
    sign = {"decimal": str(NUMBER), "float": str(NUMBER / 4)}.get(kind, str(NUMBER))
    return WORD in shown or sign in shown


FILES = [
    path
    for path in sorted(DATA.rglob("*"))
    if path.suffix in {".json", ".jsonl", ".eval", ".db", ".zst", *TABLES, *PICKLES}
    and path.name not in {"dataset_info.json", "state.json", "result.json"}
    and not path.match("orch/*")
    and not path.match("miles/rollout_data/*")
    # of which the objects are those of a layout: our own, and a consolidated TensorDict
    and not path.name.startswith(("rounddiag-", "tensordict-"))
]
CASES: dict[str, Path | list[dict[str, Any]]] = {
    **LAYOUTS,
    **{str(path.relative_to(DATA)): path for path in FILES},
}
JSON_KINDS = ("text", "whole number", "float", "NaN", "list", "array", "object")


@settings(
    max_examples=int(os.environ.get("ROUNDDIAG_MORE", 6 * settings().max_examples))
)
@given(data=st.data(), case=st.sampled_from([*CASES]), seven=st.integers(0, 59))
def test_a_value_that_is_added_anywhere_is_somewhere(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    case: str,
    seven: int,
) -> None:
    source = CASES[case]
    is_json = case in {"OSWorld", "AndroidWorld"} or (
        isinstance(source, Path) and source.suffix not in PICKLES
    )
    place = data.draw(st.sampled_from(places_in(source)), "place")
    name = data.draw(st.sampled_from([*OURS, "added7"]), "name")
    kind = data.draw(st.sampled_from(JSON_KINDS if is_json else [*ADDED]), "kind")
    folder = tmp_path_factory.getbasetemp()
    if kind in {"flag", "NaN"} and name in OURS:  # no value that can be found
        return
    try:
        batch = load_with(source, place, name, ADDED[kind](), folder)
    except RounddiagError as error:
        if name == "reward" or name in str(error):  # such as no number
            return
        raise
    if batch is None or kind == "nothing":
        return
    where = place[1], name, kind
    assert is_somewhere(batch, *where)
    if not isinstance(source, Path):
        row = place[1][0] if case == "rows of tokens" else 0
        assert is_somewhere(batch[[row]], *where)
        if seven == 7:
            rd.report(batch, folder / "added.html")
    file = folder / "added.parquet"
    rd.save(batch, file)
    assert is_somewhere(rd.load(file), *where)
    rd.save(batch, file, redact=True)
    assert WORD.encode() not in file.read_bytes()


VERL = "verl-0.9.1_tensordict-0.10.0"
# Found by the test above: a name of ours that another value of the file has as well.
SAME_NAMES: list[tuple[str, tuple[Any, ...], str, str]] = [
    ("inspect-ai-0.3.285/gui.eval", ("output", "choices", 0, "message"), "row", "list"),
    ("inspect-ai-0.3.285/gui.eval", (), "error", "text"),
    ("verifiers-0.1.14/results.jsonl", ("metrics",), "reward", "whole number"),
    ("Responses", (0, "response"), "error", "object"),
    ("Gemini", (0, "messages", 2, "parts", 0, "functionResponse"), "status", "text"),
    ("steps of texts", (0,), "id", "array"),
    (f"{VERL}_v1-sessions.pt", ("tags", 0), "uid", "text"),
    (f"{VERL}_numpy.pkl", ("state", 2), "uid", "object"),
    (f"{VERL}_v1-dense.pt", (), "rewards", "whole number"),
    ("martingale-0.2.0/tokens.db", (), "step", "text"),
]


@pytest.mark.parametrize(("case", "path", "name", "kind"), SAME_NAMES)
def test_a_value_beside_one_of_its_name_is_somewhere(
    case: str, path: tuple[Any, ...], name: str, kind: str, tmp_path: Path
) -> None:
    places = [place for place in places_in(CASES[case]) if place[1] == path]
    assert places
    for place in places:
        batch = load_with(CASES[case], place, name, ADDED[kind](), tmp_path)
        assert batch is None or is_somewhere(batch, path, name, kind)
