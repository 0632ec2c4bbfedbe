"""The first grammar that finds an action wins, one's own before ours."""

from __future__ import annotations

import re

import pytest

import rounddiag as rd
from rounddiag.errors import FrameError
from rounddiag.vision import Action, parse_action, parse_actions, register_parser
from rounddiag.vision import action_parsers as registry


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})


def shouted(text: str) -> list[Action]:
    return [Action(kind="finished")] if text.isupper() else []


def test_a_registered_parser_comes_first() -> None:
    assert parse_action("DONE").variant == "done"
    register_parser("shouted", shouted)
    assert parse_action("DONE").variant is None
    assert parse_action("click(1, 2)").kind == "click"


def test_a_registered_parser_takes_the_place_of_one_of_its_name() -> None:
    register_parser("ui_tars", shouted)
    assert parse_action("click(1, 2)").kind == "unknown"
    register_parser("ui_tars", lambda text: [Action(kind="type", text=text)])
    assert parse_action("abc") == Action(kind="type", text="abc")
    register_parser("ui_tars", None)
    assert parse_action("click(1, 2)").kind == "click"


def test_parsers_are_chosen_by_name() -> None:
    assert parse_action("click(1, 2)", parsers=["qwen", "pyautogui"]).kind == "unknown"
    assert parse_action("click(1, 2)", parsers=["ui_tars"]).kind == "click"


def test_an_unknown_parser_is_refused() -> None:
    message = (
        "`parsers`: expected one of ['qwen', 'pyautogui', 'ui_tars', 'computer'];"
        " found 'uitars'. Did you mean 'ui_tars'?"
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        parse_actions("", parsers=["uitars"])


def test_the_last_action_counts() -> None:
    text = "<think>Not click(1, 2).</think> click(3, 4) then click(5, "
    assert [action.point for action in parse_actions(text)] == [(1, 2), (3, 4)]
    assert parse_action(text).point == (3, 4)


def test_the_unit_of_coordinates_can_be_passed() -> None:
    text = "click(3, 4); wait()"
    click, wait = parse_actions(text, coordinates="thousand")
    assert (click.coordinates, wait.coordinates) == ("thousand", None)


def test_of_a_very_long_text_the_end_is_read() -> None:
    long = "click(1, 2)" + " " * 300_000
    assert parse_action(long).kind == "unknown"
    assert parse_action(long + "click(3, 4)").point == (3, 4)


def test_the_actions_of_the_sample_data_are_read() -> None:
    batch = rd.load("sample_data/healthy.parquet")
    tokens = rd.token_frame(batch, columns=["text"])
    texts = tokens.groupby(["sample", "round"])["text"].agg("".join)
    found = [parse_action(text).kind != "unknown" for text in texts]
    strict = batch.round_columns["parsed"].tolist()  # by the grammar of that agent
    assert [ours for ours, theirs in zip(found, strict, strict=True) if theirs] == (
        [True] * 255
    )
    assert (found.count(True), len(found)) == (256, 256)


def test_only_text_has_actions() -> None:
    message = (
        "`text`: expected the text of a round; found None. Join its pieces, the column"
        " `text` of `rounddiag.token_frame`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        parse_action(None)  # type: ignore[arg-type]


def test_an_unknown_unit_of_coordinates_is_refused() -> None:
    message = (
        "`coordinates`: expected one of ['original', 'resized', 'unit', 'thousand'];"
        " found 'abs'. Leave it out for what the grammar says."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        parse_action("wait()", coordinates="abs")  # type: ignore[arg-type]


def test_an_action_in_a_thought_that_is_not_closed_is_none() -> None:
    text = "<think>I could click(1, 2)"
    assert parse_action(text) == Action(kind="unknown", source_text=text)
    after = "<think>no</think> click(3, 4) <think>or click(5, 6)"
    assert parse_action(after).point == (3, 4)
