"""`Batch.from_steps`: rows that are steps, worked out by hand."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import rounddiag as rd
from rounddiag import Batch
from rounddiag.errors import BatchError
from rounddiag.vision import EncodedScreenshot
from tests.loaders.facts import has
from tests.loaders.values import png

# Written: 5 6, then 7 8, then 9; the second context appends, the third is rewritten.
STEPS = [
    {"step": 0, "prompt_ids": [1, 2], "response": [5, 6], "reward": 0.0},
    {"step": 1, "prompt_ids": [1, 2, 5, 6, 3], "response": [7, 8], "reward": 0.0},
    {"step": 2, "prompt_ids": [1, 4], "response": [9], "reward": 1.0},
]
LOG_PROBS = [[-1.0, -2.0], [-3.0, -4.0], [-5.0]]
ROWS: list[dict[str, Any]] = [
    {
        **row,
        "trajectory": "a",
        "rollout_log_probs": values,
        "old_log_probs": [value - 1 for value in values],
        "action": f"click {row['step']}",
        "task": "mail",
    }
    for row, values in zip(STEPS, LOG_PROBS, strict=True)
]
GO = {"role": "user", "content": "Go."}
DONE = {"role": "user", "content": [{"type": "text", "text": "Done."}]}


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def text_rows(*contexts: object, name: str = "messages") -> list[dict[str, Any]]:
    """One trajectory, whose replies are `wait()0`, `wait()1` and so on."""
    return [
        {"trajectory": "a", "step": i, name: context, "response": f"wait(){i}"}
        for i, context in enumerate(contexts)
    ]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_ids_become_one_sample_with_the_context_of_each_round(order: list[int]) -> None:
    batch = Batch.from_steps(pd.DataFrame([ROWS[i] for i in order]), step=7)
    contexts = [batch.context(0, number) for number in range(3)]
    assert [context.ids.tolist() for context in contexts] == [
        *([1, 2], [1, 2, 5, 6, 3], [1, 4])
    ]
    assert [context.follows for context in contexts] == [
        *("first", "append", "rewritten")
    ]
    expected = {
        "response_ids": [5, 6, 3, 7, 8, 4, 9],
        "rollout_log_probs": [-1, -2, 0, -3, -4, 0, -5],
        "old_log_probs": [-2, -3, 0, -4, -5, 0, -6],
        "rewards": [1.0],
        "sample_ids": ["a"],
        "step": 7,
        "sample.task": ["mail"],
        "round.action": ["click 0", "click 1", "click 2"],
    }
    has(batch, expected)


def test_it_equals_the_load_of_the_same_rows() -> None:
    rows = [{**row, "trajectory": name} for name in "ba" for row in ROWS]
    built = Batch.from_steps(rows)
    loaded = rd.load(
        pd.DataFrame(
            [
                {
                    **{k: v for k, v in row.items() if k not in {"response", "reward"}},
                    "response_ids": row["response"],
                    "response_mask": [1] * len(row["response"]),
                    "rewards": row["reward"],
                }
                for row in rows
            ]
        ),
        sample_by="trajectory",
    )

    pd.testing.assert_frame_equal(rd.token_frame(built), rd.token_frame(loaded))
    pd.testing.assert_frame_equal(rd.round_frame(built), rd.round_frame(loaded))
    assert built.sample_ids == loaded.sample_ids == ("b", "a")
    assert built.rewards.tolist() == loaded.rewards.tolist()
    for sample in range(2):
        for index in range(3):
            one, other = (each.context(sample, index) for each in (built, loaded))
            assert torch.equal(one.ids, other.ids)
            assert (one.entered, one.left) == (other.entered, other.left)


def test_each_engine_has_the_context_that_it_read() -> None:
    """The sampler kept 5 6 where the trainer's third context dropped it."""
    sampled = [[1, 2], [1, 2, 5, 6, 3], [1, 2, 5, 6, 4]]
    batch = Batch.from_steps(
        [{**r, "rollout_prompt_ids": s} for r, s in zip(ROWS, sampled, strict=True)]
    )
    assert batch.context_engines == ("old", "rollout")
    ids = [batch.context(0, index, "rollout").ids.tolist() for index in range(3)]
    assert ids == sampled
    assert batch.context(0, 2).ids.tolist() == [1, 4]
    assert "rollout_prompt_ids" not in batch.sample_columns


def test_pictures_stand_at_their_image_tokens() -> None:
    # 9 9 stands for a picture; the window holds the newest alone.
    shots = [Image.new("RGB", (4, 3), color) for color in ("red", "blue")]
    rows = [
        {"prompt_ids": [1, 9, 9], "response": [5, 6], "screenshots": [shots[0]]},
        {"prompt_ids": [1, 9, 9], "response": [7], "screenshots": [shots[1]]},
    ]
    batch = Batch.from_steps(
        [{**row, "trajectory": 0, "step": i} for i, row in enumerate(rows)]
    )
    for index, shot in enumerate(shots):
        (seen,) = batch.context(0, index).images
        assert seen.image().getpixel((0, 0)) == shot.getpixel((0, 0))
    assert [shot.position for shot in batch.images[0]] == [-2, 2]


def test_texts_that_append_are_turns() -> None:
    rows = text_rows([GO], [GO, reply("wait()0"), DONE])
    other = {"trajectory": "b", "step": 0, "messages": [DONE], "response": "stop()"}
    waits = [("assistant", f"wait(){number}") for number in range(2)]
    expected = {
        "said": [
            [("user", "Go."), waits[0], ("user", "Done."), waits[1]],
            [("user", "Done."), ("assistant", "stop()")],
        ],
        "meta.contexts": "1 appended, 0 rewritten",
        "sample_ids": ["a", "b"],
        "round.step": [0, 1, 0],
    }
    has(Batch.from_steps([rows[1], rows[0], other]), expected)


def test_prompts_that_append_are_turns() -> None:
    batch = Batch.from_steps(text_rows("Go.", "Go.wait()0 Done.", name="prompt"))
    assert batch.context(0, 1).text == "Go.wait()0 Done."


def test_a_rewritten_text_has_what_entered_and_keeps_its_context() -> None:
    summary = {"role": "user", "content": "You waited."}
    batch = Batch.from_steps(text_rows([GO], [GO, reply("wait()"), summary]))
    assert [(turn.role, turn.text) for turn in batch.turns[0]] == [
        ("user", "Go."),
        ("assistant", "wait()0"),
        ("history", "wait()"),
        ("user", "You waited."),
        ("assistant", "wait()1"),
    ]
    assert batch.num_rounds == 2
    assert batch.meta["contexts"].startswith("0 appended, 1 rewritten")
    context = batch.context(0, 1)
    assert (context.text, context.follows) == ("Go.wait()You waited.", "rewritten")
    before = "Go.wait()0"
    assert [before[part.start : part.stop] for part in context.left] == ["wait()0"]
    after = context.text or ""
    assert [after[part.start : part.stop] for part in context.entered] == [
        "wait()You waited."
    ]


COLORS = ("red", "blue", "green")
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool"]),
        st.sampled_from(["", "Go.", "wait()0", "wait()1", "Done. "]),
        st.lists(st.sampled_from(COLORS), max_size=2),
    ),
    max_size=4,
)


@given(st.lists(MESSAGES, min_size=1, max_size=5))
@settings(deadline=None)
def test_contexts_of_messages_are_rebuilt(
    contexts: list[list[tuple[str, str, list[str]]]],
) -> None:
    rows = text_rows(
        *(
            [
                {"role": role, "content": [text, *map(anthropic_image, colors)]}
                for role, text, colors in context
            ]
            for context in contexts
        )
    )
    batch = Batch.from_steps(rows)
    assert batch.num_rounds == len(contexts)
    for index, context in enumerate(contexts):
        own = batch.context(0, index)
        assert own.text == "".join(text for _, text, _ in context)
        assert [shot.digest() for shot in own.images] == [
            DIGESTS[color] for _, _, colors in context for color in colors
        ]


def test_pictures_that_a_context_shows_again_and_again_are_stored_once() -> None:
    shots = [*map(anthropic_image, ("red", "blue"))]
    say = [{"role": "user", "content": ["Go.", *shots * num]} for num in (1, 50)]
    batch = Batch.from_steps(text_rows(*([message] for message in say)))
    assert [*map(len, batch.images or ())] == [2]
    digests = [shot.digest() for shot in batch.context(0, 1).images]
    assert digests == [DIGESTS["red"], DIGESTS["blue"]] * 50


def test_a_rewritten_text_has_the_pictures_of_its_row_alone() -> None:
    data = [png("red"), png("blue")]
    rows = text_rows([GO], [reply("wait()")], [reply("wait()"), reply("wait()1")])
    shots = [data[0], data, data[1]]  # the last context appends
    batch = Batch.from_steps(
        [{**row, "screenshot": own} for row, own in zip(rows, shots, strict=True)]
    )
    seen = [
        [shot.image().getpixel((0, 0)) for shot in batch.context(0, index).images]
        for index in range(3)
    ]
    red, blue = (255, 0, 0), (0, 0, 255)
    assert seen == [[red], [red, blue], [red, blue]]
    assert batch.round_columns["is_rewritten"].tolist() == [False, True, False]


def test_a_picture_of_a_text_context_enters_once() -> None:
    data = [png("red"), png("blue")]
    rows = text_rows([GO], [GO, reply("wait()0"), DONE])
    batch = Batch.from_steps(
        [{**rows[0], "screenshot": data[0]}, {**rows[1], "screenshot": data}]
    )
    assert [shot.round for shot in batch.images[0]] == [0, 1]


DIGESTS = {color: EncodedScreenshot(data=png(color)).digest() for color in COLORS}


def anthropic_image(color: str) -> dict[str, Any]:
    data = b64encode(png(color)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def seen(color: str) -> dict[str, Any]:
    content = [{"type": "text", "text": color}, anthropic_image(color)]
    result = {"type": "tool_result", "tool_use_id": "t", "content": content}
    return {"role": "user", "content": [result]}


def test_messages_of_an_api_have_their_calls_and_pictures() -> None:
    click = {"type": "tool_use", "id": "t", "name": "click", "input": {"x": 1}}
    first = {"role": "user", "content": ["Go.", anthropic_image("red")]}
    then = [first, {"role": "assistant", "content": [click]}, seen("blue")]
    rows: list[dict[str, Any]] = [
        {"messages": [first], "response": [click]},
        {"messages": then, "response": {"role": "assistant", "content": "Done."}},
    ]
    batch = Batch.from_steps(
        pd.DataFrame(
            [{**row, "trajectory": 0, "step": i} for i, row in enumerate(rows)]
        )
    )
    written = '<tool_call>\n{"name": "click", "arguments": {"x": 1}}\n</tool_call>'
    assert [*batch.turns[0]] == [
        ("user", "Go.", 1),
        ("assistant", written, 0),
        ("tool", "blue", 1),
        ("assistant", "Done.", 0),
    ]
    assert batch.meta["contexts"] == "1 appended, 0 rewritten"
    assert batch.round_columns["action"].tolist() == ["click(x=1)", None]
    assert [shot.image().getpixel((0, 0)) for shot in batch.images[0]] == [
        *((255, 0, 0), (0, 0, 255))
    ]


def test_a_picture_that_leaves_rewrites_a_context_of_texts() -> None:
    gone = {"role": "tool", "content": "red"}
    contexts = [[seen("red")], [gone, reply("wait()0"), seen("blue")]]
    batch = Batch.from_steps(text_rows(*contexts))
    assert [(turn.text, turn.num_images) for turn in batch.turns[0]] == [
        *(("red", 1), ("wait()0", 0), ("blue", 1), ("wait()1", 0))
    ]
    assert batch.round_columns["is_rewritten"].tolist() == [False, True]


def test_what_is_not_read_of_messages_is_named() -> None:
    content = ["Look.", {"type": "image_url", "image_url": {"url": "http://a/b.png"}}]
    content += [{"type": "input_audio", "input_audio": {"data": "x"}}]
    rows = text_rows([{"role": "user", "content": content}])
    batch = Batch.from_steps(rows)
    assert batch.meta["left_out"] == ["content.image", "content.input_audio"]
    assert batch.meta["num_unread_blocks"] == 2
    batch = Batch.from_steps([{**rows[0], "screenshot": png("red")}])
    assert batch.meta["left_out"] == ["content.input_audio"]


def test_pixels_and_pictures_of_messages_stand_at_image_tokens() -> None:
    pixels = np.full((3, 4, 3), 7, dtype=np.uint8)
    row = {"trajectory": 0, "step": 0, "prompt_ids": [1, 9, 9], "response": [5]}
    for more in ({"screenshot": pixels}, {"messages": [seen("red")]}):
        batch = Batch.from_steps([{**row, **more}])
        assert [(shot.position, shot.size) for shot in batch.images[0]] == [
            (-2, (4, 3))
        ]


def test_one_row_is_one_round() -> None:
    batch = Batch.from_steps(ROWS[:1])
    assert (batch.num_samples, batch.num_rounds, batch.num_tokens) == (1, 1, 2)


def test_missing_values_of_other_columns_stay_unknown() -> None:
    rows = [{**ROWS[0], "seconds": 2, "reward": None}, {**ROWS[1], "reward": 0.5}]
    rows[1]["old_log_probs"] = None
    batch = Batch.from_steps(rows)
    seconds = batch.round_columns["seconds"]
    assert seconds[0] == 2
    assert pd.isna(seconds[1])
    assert batch.log_probs("old").isnan().tolist() == [False] * 3 + [True] * 2
    assert batch.rewards.tolist() == [0.5]


@pytest.mark.parametrize(
    ("rows", "key", "said"),
    [
        ([], "steps", "no rows"),
        (pd.DataFrame({"step": []}), "steps", "no rows"),
        ("history.json", "steps", "a str"),
        ([{"step": 0}], "steps", "the column `trajectory`"),
        (
            [{"trajectory": "a", "step": 0, "response": "x"}],
            "steps",
            "the column `prompt_ids`, `messages` or `prompt`",
        ),
        ([{**ROWS[0], "trajectory": float("nan")}], "trajectory", "nan in row 0"),
        ([{**ROWS[0], "response": None}], "response", "None in row 0"),
        ([{**ROWS[0], "response": "click"}], "response", "'click' in row 0"),
        ([{**ROWS[0], "prompt_ids": [1.5]}], "prompt_ids", "[1.5] in row 0"),
        ([ROWS[0], {**ROWS[1], "step": 0}], "step", "rows 0 and 1, both step 0"),
        ([ROWS[0], {**ROWS[1], "step": "b"}], "step", "0, 'b'"),
        ([{**ROWS[0], "screenshot": "a.png"}], "screenshots", "'a.png' in row 0"),
        (text_rows("Go."), "messages", "'Go.' in row 0"),
        (text_rows([{"role": "user"}]), "messages", "{'role': 'user'} in row 0"),
        (
            [{**text_rows([GO])[0], "old_log_probs": [-1.0]}],
            "old_log_probs",
            "texts in `messages`",
        ),
    ],
)
def test_bad_rows_are_named(rows: object, key: str, said: str) -> None:
    with pytest.raises(BatchError) as error:
        Batch.from_steps(rows)
    assert str(error.value).startswith(f"`{key}`: expected ")
    assert said in str(error.value)


# Columns that are derived, and those that say where a row is.
DERIVED = (
    *("row", "sample", "round", "num_rows", "row_reward", "original_sample"),
    *("is_rewritten", "num_context_tokens", "num_entered_tokens", "num_left_tokens"),
)


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("has_ids", [True, False])
def test_an_own_column_of_a_derived_name_is_named_and_never_replaced(
    name: str, *, has_ids: bool
) -> None:
    rows = ROWS if has_ids else [{**r, "reward": 1} for r in text_rows([GO], [GO])]
    batch = Batch.from_steps([{**row, name: 71} for row in rows])
    assert batch.meta["left_out"] == [name]
    assert Batch.from_steps(rows).meta.get("left_out") is None


LONG = np.arange(2_000)
DIFFERING: dict[str, tuple[object, object]] = {
    "the ninth digit": (np.array([1.123456781]), np.array([1.123456782])),
    "the middle of an array": (LONG, np.where(LONG == 999, 0, LONG)),
    "tensors": (torch.tensor([1, 2]), torch.tensor([1, 3])),
    "a flag and a number": (True, 1),
    "an inner value": ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}),
}


@pytest.mark.parametrize("pair", DIFFERING.values(), ids=DIFFERING)
@pytest.mark.parametrize("has_ids", [True, False])
def test_rows_agree_to_the_last_digit(
    pair: tuple[object, object], *, has_ids: bool
) -> None:
    rows = ROWS[:2] if has_ids else text_rows([GO], [GO])
    for values, is_shared in ((pair, False), ((pair[0], pair[0]), True)):
        table = [{**r, "fact": v} for r, v in zip(rows, values, strict=True)]
        batch = Batch.from_steps(table)
        assert ("fact" in batch.sample_columns) is is_shared
        assert ("fact" in batch.round_columns) is not is_shared


@pytest.mark.parametrize("field", ["data", "kwargs"])
def test_words_beside_a_wrapper_stay(field: str) -> None:
    own = {"role": "user", "content": "Own.", field: {"content": "Inner."}}
    wrapped = {**own, "content": "", "extra": 1}
    batch = Batch.from_steps(text_rows([own], [wrapped]))
    assert [batch.context(0, i).text for i in range(2)] == ["Own.", "Inner."]
    assert {*batch.meta["left_out"]} == {"messages.extra", f"messages.{field}"}


DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]
RING: list[Any] = []
RING.append(RING)


@pytest.mark.parametrize("content", [DEEP, RING, [{("a", 1): 2}]])
@pytest.mark.parametrize("is_response", [True, False])
def test_what_json_cannot_hold_is_refused(
    content: object, *, is_response: bool
) -> None:
    message = {"role": "user", "content": content}
    (row,) = text_rows([GO if is_response else message])
    with pytest.raises(BatchError, match=r"as JSON has them; found .* in row 0"):
        Batch.from_steps([{**row, "response": message} if is_response else row])


def test_a_message_that_comes_more_often_than_before_enters() -> None:
    """Nothing of a context is stored as a part of it twice."""
    batch = Batch.from_steps(text_rows([GO], [GO, GO, GO]))
    context = batch.context(0, 1)
    assert context.text == "Go.Go.Go."
    assert sum(piece.stop - piece.start for piece in context.entered) == 6


@pytest.mark.parametrize(
    "content", ["", [{"type": "image_url", "image_url": {"url": "https://host/a.png"}}]]
)
def test_a_context_without_text_is_reported(content: object, tmp_path: Path) -> None:
    message = {"role": "user", "content": content}
    batch = Batch.from_steps(text_rows([message], [message]))
    assert batch.context(0, 1).text == ""
    rd.report(batch, tmp_path / "report.html")


def rows_with_a_call(written: str, read: object) -> list[dict[str, Any]]:
    """Two steps: the reply to the first is in the context of the second, as a call."""
    call = {"function": {"name": "pay", "arguments": read}}
    history = {"role": "assistant", "content": "", "tool_calls": [call]}
    rows = text_rows([GO], [GO, history, DONE])
    tool_call = f'{{"name": "pay", "arguments": {written}}}'
    rows[0]["response"] = f"<tool_call>\n{tool_call}\n</tool_call>"
    return rows


@pytest.mark.parametrize(
    ("written", "read", "shown"),
    [
        ('{"sum": 1.50}', {"sum": 1.5}, '{"sum": 1.5}'),
        ('{"sum": 1.0}', {"sum": 1}, '{"sum": 1}'),
        ('"all"', {}, "{}"),
        ("[1, 2]", {}, "{}"),
        ('{"sum":1.5,  "to": "a"}', {"to": "a", "sum": 1.5}, ""),
        ('{"to": "caf\\u00e9"}', {"to": "caf\u00e9"}, ""),
        ('{"sum": 1}', {"sum": 2}, ""),  # another call
        ("{}", {}, ""),
    ],
)
def test_arguments_of_earlier_calls_that_were_rewritten_are_noted(
    written: str, read: object, shown: str
) -> None:
    """As vLLM 0.32 does, in the prompt and in the caller's own list of messages."""
    batch = Batch.from_steps(rows_with_a_call(written, read))
    notes = batch.meta.get("rewritten_calls", [])
    assert len(notes) == bool(shown)
    for note in notes:
        assert f'"arguments": {written}}}`' in note
        assert f'"arguments": {shown}}}`' in note
