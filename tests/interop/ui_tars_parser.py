"""Compare the actions that rounddiag reads with those of the released `ui-tars`.

Runs in an environment with ui-tars, and rounddiag on its path (see `vision`).
"""

from __future__ import annotations

import ast
import sys
from typing import Any

from ui_tars.action_parser import parse_action_to_structure_output

from rounddiag.vision import Action, parse_actions

CALLS = [
    "click(start_box='(12,34)')",
    "click(point='<point>12 34</point>')",
    "left_double(start_box='(12,34)')",
    "right_single(start_box='(12,34)')",
    "hover(start_box='(12,34)')",
    "drag(start_box='(12,34)', end_box='(560,780)')",
    "drag(start_point='<point>12 34</point>', end_point='<point>5 6</point>')",
    "select(start_box='(12,34)', end_box='(560,780)')",
    "scroll(start_box='(12,34)', direction='down')",
    "scroll(point='<point>12 34</point>', direction='up')",
    "hotkey(key='ctrl c')",
    "press(key='enter')",
    r"type(content='it\'s \"here\"\n')",
    "type(content='it's here')",
    "wait()",
    "finished(content='Done.')",
    "call_user()",
    "click(start_box='(12,34)')\n\ntype(content='a')",
]
KINDS = {
    "left_double": ("double_click", None),
    "right_single": ("click", "right"),
    "hover": ("move", None),
    "select": ("drag", None),
    "hotkey": ("key", None),
    "press": ("key", None),
    "call_user": ("finished", "call_user"),
}


def theirs(text: str) -> list[tuple[Any, ...]]:
    """Return what ui-tars reads, in our words; its points are shares of the screen."""
    found = parse_action_to_structure_output(text, 1000, 1000, 1000, "doubao")
    return [_said(entry["action_type"], entry["action_inputs"]) for entry in found]


def _said(name: str, inputs: dict[str, str]) -> tuple[Any, ...]:
    points = [
        [round(share * 1000) for share in ast.literal_eval(inputs[box])[:2]]
        for box in ("start_box", "end_box")
        if box in inputs
    ]
    keys = inputs.get("key", "").split()
    kind = KINDS.get(name, (name, None))
    return (*kind, points, inputs.get("content"), inputs.get("direction"), keys)


def ours(action: Action) -> tuple[Any, ...]:
    points = [list(p) for p in (action.point, action.end_point) if p is not None]
    kind = (action.kind, action.variant)
    return (*kind, points, action.text, action.direction, list(action.keys))


def main() -> None:
    for call in CALLS:
        text = f"Thought: I see.\nAction: {call}"
        mine, real = [ours(action) for action in parse_actions(text)], theirs(text)
        if mine != real:
            sys.exit(f"{call}\n  rounddiag: {mine}\n  ui-tars:   {real}")
    print(f"{len(CALLS)} texts are read as ui-tars reads them")


if __name__ == "__main__":
    main()
