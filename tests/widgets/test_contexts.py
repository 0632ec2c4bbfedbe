"""What the model saw, as the page shows it: worked out by hand on two rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import rounddiag as rd
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.batch.trajectories import join_rows
from rounddiag.vision import EncodedScreenshot
from rounddiag.widgets.contexts import context_labels, context_payload, context_pictures
from rounddiag.widgets.sample_view import sample_payload
from tests.loaders.assembly.test_contexts import rows_of

# 9 stands for a picture. The second context drops the first picture and the thought.
TASK = [*range(20, 30), 7]
THOUGHT, ACTION = [60], [*range(40, 50)]
CONTEXTS = [[9, 9, *TASK], [*TASK, *ACTION, 9, 9, 21, 7]]
WRITTEN = [[*THOUGHT, *ACTION], [62]]


def joined(**others: Any) -> rd.Batch:
    pictures = tuple(
        (EncodedScreenshot(data=bytes([name]), position=position),)
        for name, position in ((0, -13), (1, -4))
    )
    rows = rows_of(CONTEXTS, WRITTEN, images=pictures, **others)
    columns = {**rows.sample_columns, "step": np.arange(2)}
    batch = join_rows(replace(rows, sample_columns=columns), "name", "step")
    return replace(batch, tokenizer=lambda ids: "".join(f"{each} " for each in ids))


def test_a_chip_counts_the_context_and_what_left() -> None:
    assert context_labels(joined(), 2) == [
        {"text": "context 13 tokens, 1 picture", "is_rewritten": False},
        {
            "text": "context 25 tokens, 1 picture; 3 tokens, 1 picture left",
            "is_rewritten": True,
        },
    ]


def test_a_round_has_the_pictures_of_its_context() -> None:
    batch = joined()
    assert context_pictures(batch, 2) == [[[0, 1]], [[1, 2]]]  # the first one left
    assert context_pictures(replace(batch, contexts=None), 2) == [[[0, 1]], [[0, 2]]]


def test_the_first_context_has_nothing_new_and_lost_nothing() -> None:
    (engine,) = context_payload(joined(), 0, 0)["engines"]
    assert engine["summary"] == "13 tokens, 1 picture: the first context"
    assert engine["left"] == []
    assert [part["entered"] for part in engine["parts"]] == [False] * 2
    assert [part.get("index") for part in engine["parts"]] == [0, None]


def test_what_entered_and_what_left_is_marked_in_order() -> None:
    (engine,) = context_payload(joined(), 0, 1)["engines"]
    text = "".join(part.get("text", "[picture] ") for part in engine["parts"])
    words = " ".join(map(str, [*TASK, *ACTION]))
    assert text == f"{words} [picture] 21 7 "
    assert [part for part in engine["parts"] if part["entered"]] == [
        {"kind": "image", "index": 1, "num_tokens": 2, "entered": True},
        {"kind": "text", "text": "21 7 ", "entered": True},
    ]
    assert [part.get("text", part.get("index")) for part in engine["left"]] == [
        *(0, "60 "),
    ]


def test_a_context_of_messages_shows_what_left_and_entered() -> None:
    pictures = [EncodedScreenshot(data=bytes([name])) for name in range(2)]
    rows = [
        {
            "trajectory": "a",
            "step": step,
            "messages": [
                {"role": "system", "content": f"Click {step}. "},
                {"role": "user", "content": "Look."},
            ],
            "screenshot": picture,
            "response": "click(1)",
        }
        for step, picture in enumerate(pictures)
    ]
    batch = rd.Batch.from_steps(rows)
    (engine,) = context_payload(batch, 0, 1)["engines"]
    assert [(part.get("text"), part["entered"]) for part in engine["parts"]] == [
        *(("Click 1. ", True), ("Look.", False), (None, True)),
    ]
    assert [part.get("text", part.get("index")) for part in engine["left"]] == [
        *("Click 0. ", 0, "click(1)"),
    ]


def test_what_entered_beside_what_stayed_does_not_read_as_one_text() -> None:
    # 31 and 32 replace 30 and the reply; the task stays between them.
    contexts = [[30, *TASK], [31, *TASK, 32, 7]]
    rows = rows_of(contexts, WRITTEN)
    columns = {**rows.sample_columns, "step": np.arange(2)}
    batch = join_rows(replace(rows, sample_columns=columns), "name", "step")
    assert SampleSequence(batch, 0).fragment_starts == {len(contexts[0]) + 12}
    batch = replace(batch, tokenizer=lambda ids: "".join(f"{each}," for each in ids))
    (gap,) = (gap for gap in sample_payload(batch, 0)["gaps"] if gap["before"] == 1)
    assert [turn["text"] for turn in gap["turns"]] == ["31, … 32,7,"]


def test_both_engines_are_there_where_they_read_other_ids() -> None:
    batch = joined()
    columns = dict(batch.round_columns)
    prompts = np.empty(2, dtype=object)
    prompts[:] = [CONTEXTS[0], [9, 9, 22, 7]]
    batch = replace(batch, round_columns={**columns, "prompt_ids": prompts})
    assert len(context_payload(batch, 0, 0)["engines"]) == 1
    own, other = context_payload(batch, 0, 1)["engines"]
    assert (own["name"], other["name"]) == ("training engine", "sampler")
    assert "22 " in "".join(part.get("text", "") for part in other["parts"])


def test_a_batch_of_texts_has_no_context_of_ids() -> None:
    batch = rd.Batch.from_turns([[("user", "Go."), ("assistant", "click(1, 2)")]])
    assert context_labels(batch, 1) == [None]
