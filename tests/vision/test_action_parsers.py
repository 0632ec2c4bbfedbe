"""The grammars of GUI agents are read as their models write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rounddiag.vision import Action, parse_action, parse_actions


def fields_of(action: Action) -> dict[str, Any]:
    """Return what an action has, without its words and what it has not."""
    empty = (None, (), "")
    fields = {name: value for name, value in vars(action).items() if value not in empty}
    fields.pop("source_text", None)
    return fields


def click(x: float, y: float, coordinates: str, **more: object) -> dict[str, Any]:
    return {"kind": "click", "point": (x, y), "coordinates": coordinates, **more}


UI_TARS = [
    ("click(start_box='(12,34)')", click(12, 34, "resized")),
    ("click(start_box='<|box_start|>(12,34)<|box_end|>')", click(12, 34, "resized")),
    ("click(start_box='[10, 20, 30, 60]')", click(20.0, 40.0, "resized")),
    ("click(point='<point>12 34</point>')", click(12, 34, "thousand")),
    (
        "left_double(start_box='(0.5, 0.25)')",
        click(0.5, 0.25, "unit", kind="double_click"),
    ),
    ("right_single(start_box='(1,2)')", click(1, 2, "resized", variant="right")),
    ("long_press(start_box='(1,2)', time='3')", click(1, 2, "resized", variant="long")),
    ("hover(start_box='(1,2)')", click(1, 2, "resized", kind="move")),
    (
        "drag(start_box='(1,2)', end_box='(3,4)')",
        click(1, 2, "resized", kind="drag", end_point=(3, 4)),
    ),
    (
        "drag(start_point='<point>1 2</point>', end_point='<point>3 4</point>')",
        click(1, 2, "thousand", kind="drag", end_point=(3, 4)),
    ),
    ("type(content='a\\'s (b)\\n')", {"kind": "type", "text": "a's (b)\n"}),
    ("type(content='it's here')", {"kind": "type", "text": "it's here"}),
    ("type(content='')", {"kind": "type"}),
    (
        "scroll(start_box='(1,2)', direction='down')",
        click(1, 2, "resized", kind="scroll", direction="down"),
    ),
    ("scroll(direction='Left')", {"kind": "scroll", "direction": "left"}),
    ("hotkey(key='ctrl c')", {"kind": "key", "keys": ("ctrl", "c")}),
    ("press_home()", {"kind": "key", "keys": ("home",)}),
    ("press_back()", {"kind": "key", "keys": ("back",)}),
    ("open_app(app_name='Maps')", {"kind": "open", "text": "Maps"}),
    ("wait()", {"kind": "wait"}),
    ("finished()", {"kind": "finished"}),
    ("finished(content='Done.')", {"kind": "finished", "text": "Done."}),
    ("call_user()", {"kind": "finished", "variant": "call_user"}),
]


@pytest.mark.parametrize(("text", "expected"), UI_TARS)
def test_ui_tars_is_read(text: str, expected: dict[str, Any]) -> None:
    action = parse_action(f"Thought: I see it.\nAction: {text}<|im_end|>")
    assert fields_of(action) == expected
    assert action.source_text == text


PLAIN = [
    ("click(3, 4)", click(3, 4, "original")),
    ("click( 0.5 ,1.0 )", click(0.5, 1.0, "unit")),
    ("click(x=3, y=4)", click(3, 4, "original")),
    ("click([3, 4])", click(3, 4, "original")),
    ("drag(1, 2, 3, 4)", click(1, 2, "original", kind="drag", end_point=(3, 4))),
    ('type("Oslo")', {"kind": "type", "text": "Oslo"}),
    ("scroll(down)", {"kind": "scroll", "direction": "down"}),
    ("scroll(3, 4, 'up')", click(3, 4, "original", kind="scroll", direction="up")),
    ("press('enter')", {"kind": "key", "keys": ("enter",)}),
    ("wait(5)", {"kind": "wait", "amount": 5}),
    ("finished()", {"kind": "finished"}),
]


@pytest.mark.parametrize(("text", "expected"), PLAIN)
def test_plain_calls_are_read(text: str, expected: dict[str, Any]) -> None:
    assert fields_of(parse_action(f"<think>So.</think> {text}<|im_end|>")) == expected


PYAUTOGUI = [
    ("click(3, 4)", click(3, 4, "original")),
    ("click(x=0.5, y=0.25)", click(0.5, 0.25, "unit")),
    ("click(3, 4, clicks=2)", click(3, 4, "original", kind="double_click")),
    ("click(3, 4, button='right')", click(3, 4, "original", variant="right")),
    ("click()", {"kind": "click"}),
    ("rightClick(3, 4)", click(3, 4, "original", variant="right")),
    ("middleClick(3, 4)", click(3, 4, "original", variant="middle")),
    ("doubleClick(3, 4)", click(3, 4, "original", kind="double_click")),
    ("tripleClick(3, 4)", click(3, 4, "original", variant="triple")),
    ("moveTo(3, 4, duration=0.5)", click(3, 4, "original", kind="move")),
    (
        "dragTo(3, 4, 1.5, button='left')",
        {"kind": "drag", "end_point": (3, 4), "coordinates": "original"},
    ),
    ("write('a b', interval=0.1)", {"kind": "type", "text": "a b"}),
    ("typewrite(message='a b')", {"kind": "type", "text": "a b"}),
    ("press('enter')", {"kind": "key", "keys": ("enter",)}),
    ("hotkey('ctrl', 'c')", {"kind": "key", "keys": ("ctrl", "c")}),
    ("hotkey(['ctrl', 'c'])", {"kind": "key", "keys": ("ctrl", "c")}),
    ("keyDown('shift')", {"kind": "key", "keys": ("shift",), "variant": "down"}),
    ("scroll(-5)", {"kind": "scroll", "direction": "down", "amount": 5}),
    (
        "scroll(5, 30, 40)",
        click(30, 40, "original", kind="scroll", direction="up", amount=5),
    ),
    ("hscroll(-5)", {"kind": "scroll", "direction": "left", "amount": 5}),
]


@pytest.mark.parametrize(("text", "expected"), PYAUTOGUI)
def test_pyautogui_is_read(text: str, expected: dict[str, Any]) -> None:
    code = f"```python\nimport pyautogui\npyautogui.{text}\n```"
    assert fields_of(parse_action(code)) == expected


def test_a_drag_of_pyautogui_begins_where_the_mouse_was() -> None:
    text = "pyautogui.moveTo(1, 2)\npyautogui.dragTo(3, 4)\npyautogui.dragTo(5, 6)"
    found = parse_actions(text)
    assert [(a.point, a.end_point) for a in found] == [
        ((1, 2), None),
        ((1, 2), (3, 4)),
        ((3, 4), (5, 6)),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "variant"),
    [
        ("```WAIT```", "wait", "wait"),
        ("I stop here.\n```\nDONE\n```<|im_end|>", "finished", "done"),
        ("FAIL<|im_end|>", "finished", "fail"),
        ("DONE is not what I say", "unknown", None),
        ("pyautogui.click(1, 2)\ntime.sleep(2)", "wait", None),
    ],
)
def test_codes_of_osworld_are_read(text: str, kind: str, variant: str | None) -> None:
    action = parse_action(text)
    assert (action.kind, action.variant) == (kind, variant)


QWEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"action": "left_click", "coordinate": [3, 4]}, click(3, 4, "resized")),
    (
        {"action": "double_click", "coordinate": [3, 4]},
        click(3, 4, "resized", kind="double_click"),
    ),
    (
        {"action": "right_click", "coordinate": [3, 4]},
        click(3, 4, "resized", variant="right"),
    ),
    (
        {"action": "mouse_move", "coordinate": [3, 4]},
        click(3, 4, "resized", kind="move"),
    ),
    (
        {"action": "left_click_drag", "coordinate": [3, 4]},
        {"kind": "drag", "end_point": (3, 4), "coordinates": "resized"},
    ),
    (
        {"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]},
        click(1, 2, "resized", kind="drag", end_point=(3, 4)),
    ),
    (
        {"action": "type", "text": "click(9, 9)"},
        {"kind": "type", "text": "click(9, 9)"},
    ),
    ({"action": "key", "keys": ["ctrl", "c"]}, {"kind": "key", "keys": ("ctrl", "c")}),
    (
        {"action": "scroll", "pixels": -300, "coordinate": [3, 4]},
        click(3, 4, "resized", kind="scroll", direction="down", amount=300),
    ),
    ({"action": "wait", "time": 2}, {"kind": "wait", "amount": 2}),
    (
        {"action": "terminate", "status": "success"},
        {"kind": "finished", "variant": "success"},
    ),
    (
        {"action": "answer", "text": "42"},
        {"kind": "finished", "text": "42", "variant": "answer"},
    ),
    # mobile_use
    ({"action": "click", "coordinate": [3, 4]}, click(3, 4, "resized")),
    (
        {"action": "long_press", "coordinate": [3, 4], "time": 2},
        click(3, 4, "resized", variant="long"),
    ),
    (
        {"action": "swipe", "coordinate": [1, 2], "coordinate2": [3, 4]},
        click(1, 2, "resized", kind="drag", end_point=(3, 4)),
    ),
    ({"action": "swipe", "direction": "up"}, {"kind": "scroll", "direction": "up"}),
    ({"action": "system_button", "button": "Back"}, {"kind": "key", "keys": ("Back",)}),
    ({"action": "open", "text": "Maps"}, {"kind": "open", "text": "Maps"}),
]


@pytest.mark.parametrize(("arguments", "expected"), QWEN)
def test_tool_calls_of_qwen_are_read(
    arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    call = json.dumps({"name": "computer_use", "arguments": arguments})
    texts = [f"So.\n<tool_call>\n{call}\n</tool_call><|im_end|>", f"{call}<|im_end|>"]
    for text in texts:
        action = parse_action(text)
        assert fields_of(action) == expected
        assert action.source_text == call


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I click on the button.",
        "click",
        "click(",
        "click(3, 4",
        "click(start_box='(12,34)",  # cut off
        "click(3)",
        "click('here')",
        "click(a=3, b=4)",
        "click(3, 4 5)",
        "click([[[[[3, 4]]]]])",
        f"click({'9' * 99}, 1)",
        "clicks(3, 4)",
        "my.click(3, 4)",
        "__import__('os').system('true')",
        "type(5)",
        "scroll()",
        "hotkey(key='')",
        "drag()",
        "write('prose')",
        "pyautogui.explode(1)",
        "pyautogui.drag(30, 0)",  # by how far, and not where to
        "pyautogui(1, 2)",
        "<tool_call>{</tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": "x", "arguments": {"action": 5}}</tool_call>',
        '<tool_call>{"arguments": {"action": "click", "coordinate": [1]}}</tool_call>',
        '{"arguments": {"action": "click", "coordinate": [NaN, 1e999]}}',
        '{"arguments": {"action": "click", "coordinate": [true, false]}}',
        '{"arguments": {"action": "type", "text": {"a": 1}}}',
        "<script>alert(1)</script>",
    ],
)
def test_what_is_no_action_is_unknown_and_stays_text(text: str) -> None:
    assert parse_action(text) == Action(kind="unknown", source_text=text)


def test_what_is_typed_is_no_action() -> None:
    found = parse_actions("type(content='click(1, 2)')")
    assert [action.kind for action in found] == ["type"]


XML = """<tool_call>
<function=computer_use>
<parameter=action>
left_click
</parameter>
<parameter=coordinate>
[120, 48]
</parameter>
</function>
</tool_call>"""


def test_calls_in_xml_are_read() -> None:
    found = parse_action(XML)
    assert (found.kind, found.point, found.coordinates) == (
        "click",
        (120, 48),
        "resized",
    )
    assert found.source_text == XML[len("<tool_call>\n") : -len("\n</tool_call>")]


def xml(**arguments: str) -> str:
    inside = (f"<parameter={k}>{v}</parameter>" for k, v in arguments.items())
    return f"<function=computer_use>{''.join(inside)}</function>"


def test_what_xml_types_stays_text_and_numbers_are_numbers() -> None:
    assert parse_action(xml(action="type", text="42")).text == "42"
    assert parse_action(xml(action="key", keys='["ctrl", "c"]')).keys == ("ctrl", "c")
    scroll = parse_action(xml(action="scroll", pixels="-3"))
    assert (scroll.direction, scroll.amount) == ("down", 3)


@pytest.mark.parametrize(
    "text",
    [
        XML.partition("</function>")[0],
        xml(coordinate="[1, 2]"),
        xml(action="explode"),
        xml(action="left_click", coordinate="here"),
        "<function=" * 1000,
    ],
)
def test_xml_that_is_no_action_is_unknown(text: str) -> None:
    assert parse_action(text) == Action(kind="unknown", source_text=text)


def test_arguments_may_be_json_in_a_string() -> None:
    text = (
        '<tool_call>{"name": "computer_use", "arguments":'
        ' "{\\"action\\": \\"left_click\\", \\"coordinate\\": [3, 4]}"}</tool_call>'
    )
    found = parse_action(text)
    assert (found.kind, found.point) == ("click", (3, 4))
