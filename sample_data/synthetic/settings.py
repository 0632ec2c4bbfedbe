"""A settings page: a list of switches, longer than the screen."""

import numpy as np

from .action import Action
from .app import App, cells, listed
from .screen import Screen, Widget

SWITCHES = {
    "Wi-Fi": "blue",
    "Bluetooth": "teal",
    "Location": "green",
    "Sound": "orange",
    "Alarm": "red",
    "Night mode": "purple",
    "Camera": "pink",
    "Battery saver": "yellow",
}
SHOWN, VISIBLE = 4, 2


class Settings(App):
    """Bring some switches into the state that the task names."""

    kind = "settings"

    def __init__(self, rng: np.random.Generator, most: int = 1) -> None:
        self.order = [str(name) for name in rng.permutation(list(SWITCHES))][:SHOWN]
        self.state = {name: bool(rng.integers(2)) for name in self.order}
        self.first = 0
        self.cells = cells(rng, VISIBLE)
        names = rng.permutation(self.order)[: rng.integers(1, most + 1)]
        self.goals = {str(name): bool(rng.integers(2)) for name in names}
        self.seen: set[str] = set()
        self.task = "Switch " + listed(
            [f"{name} {'on' if on else 'off'}" for name, on in self.goals.items()]
        )

    def visible(self) -> list[str]:
        """Return the switches on the screen."""
        return self.order[self.first : self.first + VISIBLE]

    def screen(self) -> Screen:
        """Return the part of the list that is in view."""
        tiles = tuple(
            Widget(name, "switch", box, SWITCHES[name], name, is_on=self.state[name])
            for name, box in zip(self.visible(), self.cells, strict=True)
        )
        return Screen("Settings", "ink", tiles)

    def press(self, item: Widget) -> None:
        """Flip a switch."""
        self.state[item.name] = not self.state[item.name]

    def scroll(self, direction: str) -> None:
        """Show the other end of the list."""
        self.first = SHOWN - VISIBLE if direction == "down" else 0

    def is_solved(self) -> bool:
        """Tell whether every named switch is as the task says."""
        return all(self.state[name] == on for name, on in self.goals.items())

    def advise(self) -> tuple[list[str], Action | str]:
        """Flip what is in view, then scroll on to what was not seen yet."""
        self.seen.update(self.visible())
        for name, on in self.goals.items():
            if name in self.visible() and self.state[name] != on:
                now, then = ("off", "on") if on else ("on", "off")
                return [f"I see {name} is {now}.", f"I switch {name} {then}."], name
        for name in self.goals:
            if name not in self.seen:
                return [
                    f"I do not see {name}, I scroll.",
                    f"I look for {name} further down.",
                ], Action("scroll", text="down")
        return ["All is as it should be.", "Nothing is left to do."], Action("finished")
