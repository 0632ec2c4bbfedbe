"""A form: fields in any order, beside a button at any height."""

import numpy as np

from .action import Action
from .app import App, button_cell, cells, listed
from .screen import WIDTH, Screen, Widget

FIELDS = {
    "Name": ("blue", ("Ada", "Alan", "Grace", "Emmy")),
    "City": ("green", ("Rome", "Oslo", "Lima", "Kyoto")),
    "Drink": ("teal", ("tea", "coffee", "water", "juice")),
    "Food": ("red", ("soup", "pizza", "rice", "salad")),
    "Pet": ("purple", ("cat", "dog", "horse", "parrot")),
    "Fruit": ("yellow", ("apple", "pear", "plum", "melon")),
}
SHOWN = 2


class Form(App):
    """Fill in some fields, then send."""

    kind = "form"

    def __init__(self, rng: np.random.Generator, most: int = 1) -> None:
        names = [str(name) for name in rng.permutation(list(FIELDS))][:SHOWN]
        chosen = [
            str(name) for name in rng.permutation(names)[: rng.integers(1, most + 1)]
        ]
        self.fields = names
        self.goals = {name: FIELDS[name][1][rng.integers(4)] for name in chosen}
        self.values = dict.fromkeys(names, "")
        self.focus = ""
        self.is_sent = False
        self.cells = cells(rng, SHOWN)
        self.button = button_cell(rng)
        self.task = (
            "Enter "
            + listed([f"{name} {text}" for name, text in self.goals.items()])
            + ", then send"
        )

    def screen(self) -> Screen:
        """Return the form, or the page after sending it."""
        if self.is_sent:
            box = (60, 110, WIDTH - 60, 230)
            done = Widget("done", "banner", box, "green", "Sent", "Thank you")
            return Screen("Sign up", "blue", (done,))
        fields = [
            Widget(
                name,
                "field",
                box,
                FIELDS[name][0],
                name,
                self.values[name],
                is_on=name == self.focus,
            )
            for name, box in zip(self.fields, self.cells, strict=True)
        ]
        send = Widget("Send", "button", self.button, "ink", "Send")
        return Screen("Sign up", "blue", (*fields, send))

    def press(self, item: Widget) -> None:
        """Put the cursor into a field, or send."""
        if item.kind == "field":
            self.focus = item.name
        elif item.kind == "button":
            self.is_sent = True

    def write(self, text: str) -> None:
        """Replace the text of the field that has the cursor."""
        if self.focus and not self.is_sent:
            self.values[self.focus] = text

    def is_solved(self) -> bool:
        """Tell whether the form was sent with what the task says, and no more."""
        wanted = {name: self.goals.get(name, "") for name in self.fields}
        return self.is_sent and self.values == wanted

    def advise(self) -> tuple[list[str], Action | str]:
        """Fill in field by field, in the order of the task."""
        if self.is_sent:
            return ["It is sent.", "The form is done."], Action("finished")
        for name, text in self.goals.items():
            if self.values[name] == text:
                continue
            if self.focus != name:
                return [f"I click {name}.", f"Next is {name}."], name
            action = Action("type", text=text)
            return [f"I enter {name} {text}.", f"Now {name} {text}."], action
        return ["All is filled in, I send it.", "Now I send the form."], "Send"
