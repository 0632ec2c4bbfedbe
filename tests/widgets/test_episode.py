"""What the page says of an episode: its task, its end, its rounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rounddiag.batch import Batch
from rounddiag.widgets.episode import read_turns
from rounddiag.widgets.outcomes import outcome_of, successes
from rounddiag.widgets.sample_view import sample_payload
from tests.widgets.samples import worded


def turn(role: str, text: str, num_images: int = 0) -> dict[str, Any]:
    return {"role": role, "text": text, "num_images": num_images, "error": ""}


@pytest.mark.parametrize(
    ("pieces", "turns"),
    [
        (
            ["<|im_start|>", "user", "\n", "hi", "<|im_end|>", "\n"],
            [turn("user", "hi")],
        ),
        (
            [
                *("<|eot_id|>", "<|start_header_id|>", "ip", "ython"),
                *("<|end_header_id|>", "\n\n", "42", "<|eot_id|>"),
            ],
            [turn("ipython", "42")],
        ),
        (
            ["<end_of_turn>", "\n", "<start_of_turn>", "user\n", "a", "<end_of_turn>"],
            [turn("user", "a")],
        ),
        (["<|user|>", "\n", "one", "<|assistant|>"], [turn("user", "one")]),
        (["no", " template", "\n"], [turn("", "no template")]),
        (["<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"], []),
        # What a page wrote is several tokens, and no mark.
        (["<|im", "_start|>", "x"], [turn("", "<|im_start|>x")]),
        (["<tool>", "x"], [turn("", "<tool>x")]),
        ([], []),
    ],
)
def test_messages_are_read_without_their_template(
    pieces: list[str], turns: list[dict[str, Any]]
) -> None:
    assert read_turns(pieces, [False] * len(pieces), []) == turns


def test_special_tokens_of_the_tokenizer_are_marks() -> None:
    pieces = ["<s>", "<box>", "x", "<pic>"]
    found = read_turns(pieces, [False, False, False, True], {"<box>"})
    assert found == [turn("", "x", 1)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ok\n  Error: no\nKeyError: 3", "  Error: no"),
        ("exec\nsubprocess.CalledProcessError", "subprocess.CalledProcessError"),
        (
            "Traceback (most recent call last):\n x",
            "Traceback (most recent call last):",
        ),
        ("no error: done\nErrors: 0\nerror 3", ""),
    ],
)
def test_a_message_has_its_first_line_that_says_a_failure(
    text: str, error: str
) -> None:
    (found,) = read_turns([text], [False], [])
    assert found["error"] == error


PROMPT = ["<|im_start|>", "user\n", "Buy ", "a lamp", "<|im_end|>"]


@pytest.mark.parametrize(
    ("columns", "prompt", "task"),
    [
        ({}, PROMPT, "Buy a lamp"),
        ({"task": ["t-3"]}, PROMPT, "Buy a lamp"),  # a name, not words
        ({"task": ["t-3"]}, None, "t-3"),
        ({"goal": ["Open the door"], "task": ["t 3"]}, PROMPT, "Open the door"),
        ({"task": [None]}, None, ""),
        ({}, None, ""),
    ],
)
def test_the_task_is_in_words(
    columns: dict[str, Any], prompt: list[str] | None, task: str
) -> None:
    batch = worded(
        [["a"]],
        between=(),
        prompt=prompt,
        sample_columns={k: np.array(v, object) for k, v in columns.items()},
    )
    assert sample_payload(batch, 0)["task"] == task


def test_the_end_is_what_the_file_says_of_it() -> None:
    columns = {
        "status": np.array(["failed"]),
        "is_truncated": np.array([True]),
        "error_message": np.array(["Timeout\nafter 30 s"]),
        "finish_reason": np.array([None], object),  # unknown
        "rank": np.array([3]),
        "max_turns": np.array([15]),
    }
    batch = worded([["a"], ["finished()"]], sample_columns=columns)
    end = sample_payload(batch, 0)["end"]
    assert [(one["name"], one["text"], one["is_error"]) for one in end["facts"]] == [
        ("status", "failed", False),
        ("is truncated", "True", False),
        ("error message", "Timeout\nafter 30 s", True),
        ("max turns", "15", False),
    ]
    assert end["last"] == "finished"
    nothing = {"facts": [], "last": "", "outcome": {"word": "", "why": ""}}
    assert sample_payload(worded([["a"]]), 0)["end"] == nothing


DONE, FAIL = (
    {"kind": "finished", "line": line} for line in ("finished", "finished fail")
)


@pytest.mark.parametrize(
    ("columns", "success", "last", "word"),
    [
        ([("status", "max_steps")], True, DONE, "truncated"),  # before the reward
        ([("status", "done")], False, DONE, "failed"),
        ([("error_message", "Timeout")], True, DONE, "error"),
        ([("num_errors", "3"), ("is_error", "False")], None, None, ""),
        ([("is_truncated", "True")], None, None, "truncated"),
        ([("solved", "False")], None, DONE, "failed"),
        ([("success", "1")], False, None, "solved, but failed by its reward"),
        ([("status", "success")], False, DONE, "solved, but failed by its reward"),
        ([("status", "failed")], True, None, "failed, but solved by its reward"),
        ([("status", "success")], True, None, "solved"),
        ([("status", "success")], None, None, "solved"),
        ([("won", "True")], None, None, "solved"),
        ([("resolved", "False")], None, None, "failed"),
        ([("is_correct", "1")], None, None, "solved"),
        ([("correct", "B")], None, None, ""),  # an answer
        ([("status", "unresolved")], None, None, "failed"),
        ([("tool_error_rate", "0.25")], True, None, "solved"),
        ([("coordinate_error", "3.5")], True, None, "solved"),
        ([("pixel_error", "\N{MINUS SIGN}2e-05")], None, None, ""),
        ([("error_latency", "12 ms")], None, None, ""),
        ([("error", "no answer")], True, None, "error"),
        ([("has_error", "1")], None, None, "error"),
        ([("no_error", "True")], None, None, ""),
        *(
            ([("error", text)], None, None, "")
            for text in (
                *("no error", "No errors found.", "0 errors", "0 errors, 2 warnings"),
                *("errors: 0", "Error: none", "None", "none.", "nil", "N/A", "-", "[]"),
                *("undefined", "ok", "", "0", "nan"),
            )
        ),
        *(
            ([("error", text)], None, None, "error")
            for text in (
                *("10 errors", "1 error", "Error: no such file", "no element found"),
                *("error: 0x80070005", "0 errors, 1 crash", "none of them exists"),
            )
        ),
        ([("status", "done (errors: 0)")], None, None, ""),
        ([("stop_condition", "no_error")], None, DONE, "finished"),
        ([("stop_condition", "no_error")], True, None, "solved"),
        ([("status", "completed_no_error")], None, None, ""),
        ([("stop_reason", "finished without any errors")], None, None, ""),
        ([("stop_reason", "tool_error")], True, None, "error"),
        ([("success", "0.3")], None, None, ""),  # a share of several tries
        ([("exit_reason", "not solved")], None, None, "failed"),
        ([("status", "unsuccessful")], None, None, "failed"),
        ([], True, FAIL, "solved"),
        ([], False, FAIL, "given up"),
        ([], False, {"kind": "finished", "line": "finished failure"}, "given up"),
        ([], False, {"kind": "click", "line": "click fail"}, "failed"),
        ([], None, DONE, "finished"),
        ([("done", "True")], None, None, "finished"),
        ([], None, None, ""),
    ],
)
def test_the_outcome_is_what_the_file_says_then_reward_then_action(
    columns: list[tuple[str, str]], success: bool | None, last: Any, word: str
) -> None:
    assert outcome_of(columns, last, success=success) == word


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.0, 1.0, math.nan], [False, True, None]),
        ([0.0, 1.0, 0.5], [None, None, None]),  # shaped
        ([-1.0, 1.0, 1.0], [False, True, True]),
        ([-1.0, 0.0, 1.0], [None, None, None]),  # relative, or with a penalty
        ([0.0, 10.0, 10.0], [None, None, None]),
        (None, [None, None, None]),
    ],
)
def test_a_reward_is_a_success_only_at_the_ends_of_its_scale(
    rewards: list[float] | None, expected: list[bool | None]
) -> None:
    turns = [[("user", "go"), ("assistant", "ok")]] * 3
    batch = Batch.from_turns(turns, rewards=rewards)
    assert successes(batch) == expected
    # A slice, and a slice of a slice, has the scale of its batch.
    for sample in range(3):
        assert successes(batch[sample]) == [expected[sample]]
        assert successes(batch[[sample, 0]][:1]) == [expected[sample]]


def test_the_scale_that_a_batch_states_comes_first() -> None:
    turns = [[("user", "go"), ("assistant", "ok")]] * 3
    meta = {"reward_scale": [0, 10]}
    batch = Batch.from_turns(turns, rewards=[0.0, 1.0, 10.0], meta=meta)
    assert successes(batch) == [False, None, True]
    for odd in ([[0], 1], "0 to 1", {"low": 0}):  # of a file of others
        other = replace(batch, meta={"reward_scale": odd})
        assert successes(other) == [None, None, None]


def test_a_round_has_its_seconds_and_its_price() -> None:
    columns = {
        "sample": np.array([0, 0]),
        "round": np.array([0, 1]),
        "seconds": np.array([3.25, np.nan]),
        "cost": np.array([0.0125, 0.5]),
    }
    rounds = sample_payload(worded([["a"], ["b"]], round_columns=columns), 0)["rounds"]
    assert [round_["costs"] for round_ in rounds] == ["3.25 s · 0.0125 USD", "0.5 USD"]
    assert [round_["facts"] for round_ in rounds] == [[], []]


def test_a_round_has_what_the_file_recorded_of_it() -> None:
    columns = {
        "sample": np.array([0, 0]),
        "round": np.array([0, 1]),
        "weight_version": np.array([1584, 1585]),
        "sampling_seconds": np.array([0.8125, np.nan]),
        "env_ms": np.array([120, 90]),
        "cached_tokens": np.array([1024, 2048]),
        "finish_reason": np.array(["stop", "length"]),
        "reward": np.array([0.0, 0.5]),
        "parsed": np.array([True, False]),
        "parse_error": np.array([None, "no call"], object),
    }
    batch = worded([["a"], ["b"]], round_columns=columns)
    first, second = (one["facts"] for one in sample_payload(batch, 0)["rounds"])
    assert [(one["name"], one["text"]) for one in first if one["is_main"]] == [
        ("sampling", "0.8125 s"),
        ("env", "120 ms"),
        ("cached tokens", "1024"),
        ("finish reason", "stop"),
        ("reward", "0"),
    ]
    assert [(one["name"], one["text"]) for one in second if one["is_main"]] == [
        ("env", "90 ms"),
        ("cached tokens", "2048"),
        ("finish reason", "length"),
        ("reward", "0.5"),
        ("parsed", "False"),
        ("parse error", "no call"),
    ]
    assert [one["name"] for one in second if one["is_error"]] == ["parse error"]
