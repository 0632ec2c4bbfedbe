"""The agent's actions: their grammar and parser."""

import re
from dataclasses import dataclass
from typing import Literal

Verb = Literal["click", "type", "scroll", "finished"]

ROUND = re.compile(
    r"<think>[^<>]*</think> (?:"
    r"(?P<click>click)\((?P<x>\d{1,3}), (?P<y>\d{1,3})\)"
    r'|(?P<type>type)\("(?P<text>[^"<>]*)"\)'
    r"|(?P<scroll>scroll)\((?P<direction>up|down)\)"
    r"|(?P<finished>finished)\(\)"
    r")"
)


@dataclass(frozen=True)
class Action:
    """One action: a click at a point, a text, a direction, or the end."""

    verb: Verb
    point: tuple[int, int] = (0, 0)
    text: str = ""

    def __str__(self) -> str:
        """Return the action as the agent writes it."""
        if self.verb == "click":
            return f"click({self.point[0]}, {self.point[1]})"
        if self.verb == "type":
            return f'type("{self.text}")'
        return f"{self.verb}({self.text})"


def parse(text: str) -> Action | None:
    """Read the action of one round; None when the text is not in the grammar."""
    match = ROUND.fullmatch(text)
    if match is None:
        return None
    if match["click"]:
        return Action("click", (int(match["x"]), int(match["y"])))
    if match["type"]:
        return Action("type", text=match["text"])
    if match["scroll"]:
        return Action("scroll", text=match["direction"])
    return Action("finished")
