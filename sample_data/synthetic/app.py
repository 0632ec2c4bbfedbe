"""The base class of the three applications: acting on a screen, and the teacher."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from .action import Action
from .screen import Box, Screen, Widget


class App(ABC):
    """A page that can be operated, with a task to do on it.

    Every random choice (positions, order, task) is drawn on construction; the task has
    at most `most` goals.
    """

    kind: ClassVar[str]
    task: str

    @abstractmethod
    def screen(self) -> Screen:
        """Return the current screen."""

    @abstractmethod
    def press(self, item: Widget) -> None:
        """Click a widget."""

    def write(self, text: str) -> None:
        """Type a text; most pages have nowhere to put it."""
        del text

    def scroll(self, direction: str) -> None:
        """Scroll; most pages are not longer than the screen."""
        del direction

    @abstractmethod
    def is_solved(self) -> bool:
        """Tell whether the task is done."""

    @abstractmethod
    def advise(self) -> tuple[list[str], Action | str]:
        """Return suitable thoughts, and the action or the widget to click."""

    def act(self, action: Action) -> None:
        """Execute an action; a click outside all widgets does nothing."""
        if action.verb == "click":
            item = self.screen().at(action.point)
            if item is not None:
                self.press(item)
        elif action.verb == "type":
            self.write(action.text)
        elif action.verb == "scroll":
            self.scroll(action.text)

    def teach(self, rng: np.random.Generator) -> tuple[str, Action]:
        """Return the teacher's thought and action for the current screen."""
        thoughts, target = self.advise()
        thought = thoughts[rng.integers(len(thoughts))]
        if isinstance(target, Action):
            return thought, target
        item = self.screen().find(target)
        if item is None:
            raise LookupError(target)
        return thought, Action("click", near_middle(item, rng))


CELL = 112  # one token of the model


def cells(rng: np.random.Generator, count: int) -> list[Box]:
    """Choose places for tiles in a grid of 4 x 2 under the title, in reading order."""
    found = []
    for place in sorted(rng.permutation(8)[:count].tolist()):
        x, y = (int(step) for step in rng.integers(2, 7, 2))
        left, top = CELL * (place % 4) + x, CELL * (place // 4 + 1) + y
        found.append((left, top, left + 104, top + 104))
    return found


def button_cell(rng: np.random.Generator) -> Box:
    """Choose a place for a button, between the title and the tiles."""
    left, top = CELL * int(rng.integers(4)) + 4, int(rng.integers(56, 64))
    return left, top, left + 104, top + 44


def near_middle(item: Widget, rng: np.random.Generator) -> tuple[int, int]:
    """Choose a point near the middle of a widget."""
    left, top, right, bottom = item.box
    x, y = rng.normal(0, 0.04, 2).clip(-0.1, 0.1)
    return (
        round((left + right) / 2 + x * (right - left)),
        round((top + bottom) / 2 + y * (bottom - top)),
    )


def listed(parts: list[str]) -> str:
    """Join words as in a sentence: a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
