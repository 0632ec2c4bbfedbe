"""One sample for the page: literal values, and nothing that a page would choke on."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.errors import FrameError
from rounddiag.figures.colored_text import levels, token_classes
from rounddiag.widgets.sample_view import (
    BatchCache,
    observed_tokens,
    ranks_in_rounds,
    sample_payload,
)
from rounddiag.widgets.serialization import serialize
from tests.batches import hand_batch, padded, redacted
from tests.widgets.samples import HOSTILE, shot, worded

NAN = math.nan


def tokens_of(found: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [*map(_plain, values)] for name, values in found["tokens"].items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def test_the_tokens_of_a_sample_are_those_of_the_batch() -> None:
    tokens = tokens_of(sample_payload(hand_batch(), 1))
    assert tokens == {
        "piece": ["⟨7⟩", "⟨8⟩", "⟨9⟩", "⟨11⟩"],
        "position": [1, 2, 3, 5],
        "round": [0, 0, 0, 1],
        "token_id": [7, 8, 9, 11],
        "diff": [0.0, 0.25, -0.5, 2.0],
        "a": [-1.0, -0.75, -1.5, -1.0],
        "b": [-1.0, -1.0, -1.0, -3.0],
        "level": [0, 5, -6, 8],
        "is_special": [0, 0, 0, 0],
        "rank_in_round": [3, 2, 1, 1],
        # Of 2, 1, 1, 0.5, 0.5, 0.25, 0.25, 0 in the batch.
        "rank_in_batch": [8, 6, 4, 1],
    }


def test_the_rounds_of_a_sample_say_where_their_tokens_are() -> None:
    found = sample_payload(hand_batch(rewards=torch.tensor([0.0, 1.5, NAN])), 1)
    first, second = found["rounds"]

    assert (found["sample"], found["num_tokens"], found["reward"]) == (1, 4, 1.5)
    assert found["num_unplaced"] == 0
    assert (found["sample_id"], found["group_id"]) == (None, None)
    assert (found["name_a"], found["name_b"]) == ("old", "rollout")
    assert first["mean_abs_diff"] == 0.25
    assert first["mean_diff"] == pytest.approx(-0.25 / 3)
    assert {key: second[key] for key in ("round", "start", "first", "num_tokens")} == {
        "round": 1,
        "start": 5,
        "first": 3,
        "num_tokens": 1,
    }
    # 0.25 nat with the sign of the mean diff; 2 nats.
    assert (first["level"], second["level"]) == (-5, 8)
    assert first["screenshot"] is None
    assert first["action"]["kind"] == "unknown"


def test_gaps_are_what_stands_between_rounds_and_never_empty() -> None:
    keys = ("start", "stop", "before", "num_tokens")
    gaps = sample_payload(hand_batch(), 0)["gaps"]
    assert [[gap[key] for key in keys] for gap in gaps] == [
        [2, 3, 1, 1],
        [4, 6, None, 2],
    ]
    assert gaps[1]["turns"] == []  # ids are no words


def test_the_prompt_stands_before_the_first_round() -> None:
    batch = worded([["a"]], between=(), prompt=["p", "q"])
    (gap,) = sample_payload(batch, 0)["gaps"]
    assert (gap["start"], gap["stop"], gap["before"]) == (-2, 0, 0)
    assert gap["turns"] == [{"role": "", "text": "pq", "num_images": 0, "error": ""}]


@pytest.mark.parametrize(
    ("num", "head", "tail"),
    [(640, range(640), ()), (641, range(512), range(513, 641))],
)
def test_of_a_long_observation_both_ends_are_sent(
    num: int, head: range, tail: range
) -> None:
    words = [f"o{i} " for i in range(num)]
    (gap,) = sample_payload(worded([["a"]], between=words), 0)["gaps"]
    for name, places in (("turns", head), ("rest", tail)):
        texts = [turn["text"].split() for turn in gap[name]]
        assert texts == ([[f"o{i}" for i in places]] if places else [])


def test_an_observation_is_its_messages_and_pictures_without_the_template() -> None:
    pad, start, end = "<|image_pad|>", "<|im_start|>", "<|im_end|>"
    between = ["\n", start, "tool\n", "no such ", "file", pad, pad, "!", end, "\n"]
    between += [start, "user\n", pad, end, start, "assistant\n"]
    batch = worded([["a"]], between=between, special=[pad, start, end])
    (gap,) = sample_payload(batch, 0)["gaps"]
    assert gap["turns"] == [
        {"role": "tool", "text": "no such file!", "num_images": 1, "error": ""},
        {"role": "user", "text": "", "num_images": 1, "error": ""},
    ]


def test_image_tokens_are_those_that_the_tokenizer_calls_so() -> None:
    pad = "<|image_pad|>"
    batch = worded([["a"], ["b"]], between=["x", pad, pad, "y"], special=[pad])
    gaps = sample_payload(batch, 0)["gaps"]
    assert [gap["num_image_tokens"] for gap in gaps] == [2, 2]


def test_without_a_tokenizer_image_tokens_stand_where_screenshots_do() -> None:
    batch = worded([["a"]], between=["x", "pic", "pic"], prompt=["p"])
    batch = replace(batch, tokenizer=None, images=((shot(position=1, round=0),),))
    (gap,) = sample_payload(batch, 0)["gaps"]
    assert gap["num_image_tokens"] == 2
    nowhere = replace(batch, images=None)
    assert sample_payload(nowhere, 0)["gaps"][0]["num_image_tokens"] == 0


def test_special_tokens_are_marked_and_end_a_round() -> None:
    batch = worded([["go", "<end>"], ["go"]], special=["<end>"])
    found = sample_payload(batch, 0)
    assert found["tokens"]["is_special"].tolist() == [0, 1, 0]
    assert [*found["tokens"]["role"]] == ["thought", "special", "thought"]


def test_what_is_not_finite_has_no_rank_and_its_own_level() -> None:
    batch = worded([["a", "b", "c"], ["d"]], diffs=[NAN, -0.5, math.inf, NAN])
    found = sample_payload(batch, 0)
    tokens = found["tokens"]
    assert tokens["level"].tolist() == [127, -6, 127, 127]
    assert tokens["rank_in_round"].tolist() == [0, 1, 0, 0]
    assert tokens["rank_in_batch"].tolist() == [0, 1, 0, 0]
    assert [one["num_nonfinite"] for one in found["rounds"]] == [2, 1]
    assert [one["level"] for one in found["rounds"]] == [-6, 0]
    plain, _ = serialize(found)
    assert plain["rounds"][1]["mean_abs_diff"] is None


def test_a_redacted_batch_shows_squares_and_no_ids() -> None:
    batch = worded([["a", "b"]], between=["x"], prompt=["p"])
    found = sample_payload(redacted(batch), 0)
    assert found["tokens"]["piece"] == ["□", "□"]
    assert [gap["turns"] for gap in found["gaps"]] == [[]]
    assert {"token_id", "role"}.isdisjoint(found["tokens"])
    assert found["tokens"]["is_special"].tolist() == [0, 0]


def test_another_pair_of_scores_is_compared_and_named() -> None:
    batch = hand_batch()
    batch = replace(batch, scores={"ref": batch.log_probs("rollout") - 0.5})
    found = sample_payload(batch, 1, "ref", "rollout")
    assert (found["name_a"], found["name_b"]) == ("ref", "rollout")
    assert found["tokens"]["diff"].tolist() == [-0.5] * 4
    assert found["tokens"]["a"].tolist() == [-1.5, -1.5, -1.5, -3.5]
    assert found["tokens"]["rank_in_batch"].tolist() == [1] * 4


def test_facts_that_are_kept_know_each_pair() -> None:
    batch = hand_batch()
    batch = replace(batch, scores={"ref": batch.log_probs("rollout") - 0.5})
    facts = BatchCache(batch)
    for pair in (("old", "rollout"), ("ref", "rollout"), ("old", "rollout")):
        kept = sample_payload(batch, 1, *pair, facts)["tokens"]["rank_in_batch"]
        alone = sample_payload(batch, 1, *pair)["tokens"]["rank_in_batch"]
        assert kept.tolist() == alone.tolist()


def test_a_sample_without_generated_tokens_is_one_gap() -> None:
    found = sample_payload(padded([[0, 0]], [[0.0, 0.0]], [[0.0, 0.0]]), 0)
    assert found["rounds"] == []
    assert found["tokens"]["piece"] == []
    assert [(gap["start"], gap["stop"], gap["before"]) for gap in found["gaps"]] == [
        (0, 2, None)
    ]
    assert serialize(found)[0]["num_tokens"] == 0


def test_padding_is_no_observation() -> None:
    batch = hand_batch(lengths=torch.tensor([6, 6, 1]))
    assert sample_payload(batch, 2)["gaps"] == []


def test_entropy_is_there_where_the_batch_has_it() -> None:
    assert "entropy" not in sample_payload(hand_batch(), 0)["tokens"]
    batch = hand_batch(entropy=torch.arange(18.0).reshape(3, 6))
    assert sample_payload(batch, 0)["tokens"]["entropy"].tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize("sample", [-1, 3])
def test_a_sample_that_is_not_there_is_an_error(sample: int) -> None:
    message = (
        f"^`sample`: expected a sample from 0 to 2; found {sample}. Count samples from "
        r"0, as in `rounddiag.sample_frame\(batch\)`.$"
    )
    with pytest.raises(FrameError, match=message):
        sample_payload(hand_batch(), sample)


def test_hostile_text_reaches_the_page_as_it_is_and_as_valid_unicode() -> None:
    batch = worded([HOSTILE], between=HOSTILE, sample_ids=("\udc80<b>",))
    found = sample_payload(batch, 0)
    assert found["tokens"]["piece"] == [
        "\ufffd" if text == "\ud83d" else text for text in HOSTILE
    ]
    plain, _ = serialize(found)
    message = json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    kept = [text for text in HOSTILE if text != "\ud83d"]
    shown = json.loads(message)
    assert [text for text in kept if text not in shown["tokens"]["piece"]] == []
    (turn,) = shown["gaps"][0]["turns"]
    # The third of them is a mark of a template, being one token.
    marks = [text for text in shown["tokens"]["piece"] if text != "<|im_start|>"]
    assert turn["text"] == "".join(marks[:2])


def test_the_screenshot_of_a_round_is_the_last_one_before_it() -> None:
    shots = (shot(round=0), shot(round=1), shot(round=1), shot(round=None))
    batch = worded([["click(4, 1)"], ["b"], ["click(2, 2)"]], images=(shots,))
    rounds = sample_payload(batch, 0)["rounds"]
    assert [one["screenshot"] for one in rounds] == [0, 2, 2]
    assert [one["action"]["point"] for one in rounds] == [
        (0.5, 0.25),
        None,
        (0.25, 0.5),
    ]


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, -0.5, 2.0, NAN]), max_size=5)))
def test_ranks_count_what_is_larger(cells: list[list[float]]) -> None:
    cells = [cell for cell in cells if cell]
    flat = [diff for cell in cells for diff in cell]
    batch = worded([["w"] * len(cell) for cell in cells], diffs=flat)
    tokens = sample_payload(batch, 0)["tokens"]

    def ranks(diffs: list[float]) -> list[int]:
        return [
            0 if math.isnan(one) else 1 + sum(abs(x) > abs(one) for x in diffs)
            for one in diffs
        ]

    assert tokens["rank_in_batch"].tolist() == ranks(flat)
    assert tokens["rank_in_round"].tolist() == [
        r for cell in cells for r in ranks(cell)
    ]


def test_ranks_of_nothing_are_nothing() -> None:
    nothing = np.zeros(0, dtype=np.int32)
    assert ranks_in_rounds(nothing, nothing).tolist() == []


@given(st.lists(st.floats(width=32), max_size=8))
def test_levels_are_the_classes_of_a_text(diffs: list[float]) -> None:
    found = np.array(diffs, dtype=np.float32)
    for name, level in zip(token_classes(found), levels(found).tolist(), strict=True):
        size = f"{'p' if level > 0 else 'n'}{abs(level)}" if level else ""
        assert name.removesuffix(" u") == ("x" if level == 127 else size)


def test_one_token_is_a_trajectory() -> None:
    found = sample_payload(padded([[1]], [[-0.5]], [[-1.0]]), 0)
    assert found["gaps"] == []
    assert len(found["rounds"]) == 1
    sizes = {len(values) for values in found["tokens"].values()}
    assert sizes == {1}


PAD = "<|image_pad|>"


def test_a_stretch_has_its_pieces_and_says_which_are_of_a_picture() -> None:
    batch = worded([["a"]], between=["x", PAD, PAD, "y"], prompt=["p"], special=[PAD])
    found = observed_tokens(batch, 0, -1, 4)
    assert found["pieces"] == ["p", "x", PAD, PAD, "y"]
    assert found["is_image"].tolist() == [0, 0, 1, 1, 0]
    assert found["is_image"].dtype == "uint8"
    inner = observed_tokens(batch, 0, 1, 2, BatchCache(batch))
    assert (inner["pieces"], inner["is_image"].tolist()) == ([PAD], [1])


def test_an_empty_stretch_is_nothing() -> None:
    found = observed_tokens(worded([["a"]]), 0, 1, 1)
    assert (found["pieces"], found["is_image"].tolist()) == ([], [])


@pytest.mark.parametrize(("start", "stop"), [(-2, 1), (0, 3), (1, 0), (9, 9)])
def test_a_stretch_that_is_not_there_is_an_error(start: int, stop: int) -> None:
    batch = worded([["a"]], prompt=["p"])
    message = (
        "`start, stop`: expected positions from -1 to 2, the lower one first; found"
        f" {start}, {stop}. Positions count from the start of the response; in the"
        " prompt they are negative."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        observed_tokens(batch, 0, start, stop)


def test_an_observation_of_a_missing_sample_is_an_error() -> None:
    with pytest.raises(FrameError, match=r"^`sample`: expected a sample from 0 to 0;"):
        observed_tokens(worded([["a"]]), 1, 0, 1)


def test_a_redacted_batch_shows_squares() -> None:
    batch = worded([["a"]], between=[PAD, "x"], special=[PAD])
    found = observed_tokens(redacted(batch), 0, 0, 2)
    assert (found["pieces"], found["is_image"].tolist()) == (["□", "□"], [0, 0])


def test_without_a_tokenizer_ids_stand_for_text() -> None:
    batch = replace(worded([["a"]], between=["x", "y"]), tokenizer=None)
    assert observed_tokens(batch, 0, 0, 2)["pieces"] == ["⟨0⟩", "⟨1⟩"]


def test_hostile_text_is_valid_unicode_in_the_message() -> None:
    batch = worded([["a"]], between=HOSTILE)
    plain, _ = serialize(observed_tokens(batch, 0, 0, len(HOSTILE)))
    message = json.loads(json.dumps(plain, ensure_ascii=False).encode())
    assert message["pieces"][0] == "<script>alert(1)</script>"
    assert message["pieces"][HOSTILE.index("\ud83d")] == "\ufffd"
