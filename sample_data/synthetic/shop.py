"""A shop: products to choose, a cart, and sometimes a code to remember."""

import numpy as np

from .action import Action
from .app import App, button_cell, cells, listed
from .screen import HEIGHT, WIDTH, Screen, Widget

PRODUCTS = {
    "mug": "red",
    "ball": "orange",
    "lemon": "yellow",
    "plant": "green",
    "bottle": "teal",
    "lamp": "blue",
    "book": "purple",
    "bag": "pink",
}
CODES = {
    "TULIP": "red",
    "SUN": "yellow",
    "TREE": "green",
    "OCEAN": "blue",
    "GRAPE": "purple",
    "PEACH": "orange",
}
CODE_SHARE = 0.6
SHOWN = 2


class Shop(App):
    """Buy some products; with a code, that only the first page shows, if asked."""

    kind = "shop"

    def __init__(self, rng: np.random.Generator, most: int = 1) -> None:
        names = [str(name) for name in rng.permutation(list(PRODUCTS))][:SHOWN]
        places = cells(rng, SHOWN)
        self.shelf = dict(zip(rng.permutation(names).tolist(), places, strict=True))
        self.wanted = names[: rng.integers(1, most + 1)]
        self.code = list(CODES)[rng.integers(len(CODES))]
        self.needs_code = bool(rng.random() < CODE_SHARE)
        self.page = "welcome" if self.needs_code else "shelf"
        self.cart: list[str] = []
        self.typed = ""
        self.top_button = button_cell(rng)
        self.low_button, self.code_box = rng.permutation(cells(rng, 2)).tolist()
        self.task = f"Buy the {listed(self.wanted)}" + (
            " with the code of the first page" if self.needs_code else ""
        )

    def screen(self) -> Screen:
        """Return the page that is open."""
        pages = {
            "welcome": self.welcome,
            "shelf": self.products,
            "cart": self.checkout,
            "paid": self.receipt,
        }
        return Screen("Corner shop", "purple", tuple(pages[self.page]()))

    def welcome(self) -> list[Widget]:
        """Return the page with the code of the day."""
        colour = CODES[self.code]
        box = (24, 52, WIDTH - 24, 108)
        return [
            Widget("code", "banner", box, colour, "Today's code", self.code),
            Widget("Continue", "button", self.low_button, "ink", "Continue"),
        ]

    def products(self) -> list[Widget]:
        """Return the shelf and the button that opens the cart."""
        items = [
            Widget(name, "card", box, PRODUCTS[name], name, is_on=name in self.cart)
            for name, box in self.shelf.items()
        ]
        return [*items, Widget("Cart", "button", self.top_button, "ink", "Cart")]

    def checkout(self) -> list[Widget]:
        """Return the cart with the field for a code and the button to pay."""
        lines = [
            Widget(f"line {name}", "note", (24, top, 200, top + 24), "white", name)
            for top, name in zip(range(56, HEIGHT, 26), self.cart, strict=False)
        ]
        code = Widget("code", "field", self.code_box, "grey", "Code", self.typed)
        return [*lines, code, Widget("Pay", "button", self.low_button, "green", "Pay")]

    def receipt(self) -> list[Widget]:
        """Return the page after paying."""
        box = (60, 110, WIDTH - 60, 230)
        return [Widget("done", "banner", box, "green", "Paid", "Thank you")]

    def press(self, item: Widget) -> None:
        """Put a product into the cart or take it out, or go on to the next page."""
        if item.kind == "card" and item.name in self.cart:
            self.cart.remove(item.name)
        elif item.kind == "card":
            self.cart.append(item.name)
        elif item.kind == "button":
            after = {"welcome": "shelf", "shelf": "cart", "cart": "paid"}
            self.page = after[self.page]

    def write(self, text: str) -> None:
        """Type a code into the cart."""
        if self.page == "cart":
            self.typed = text

    def is_solved(self) -> bool:
        """Tell whether the right things were paid, with the right code."""
        code = self.code if self.needs_code else ""
        goods = sorted(self.cart) == sorted(self.wanted)
        return self.page == "paid" and goods and self.typed == code

    def advise(self) -> tuple[list[str], Action | str]:
        """Go page by page; the code is in no thought, so that it must be seen."""
        if self.page == "welcome":
            return ["I note the code and go on.", "First I note the code."], "Continue"
        for name in self.wanted:
            if self.page == "shelf" and name not in self.cart:
                return [f"I take the {name}.", f"Here is the {name}."], name
        if self.page == "shelf":
            return ["That is all, I open the cart.", "Now to the cart."], "Cart"
        if self.page == "cart" and self.needs_code and not self.typed:
            action = Action("type", text=self.code)
            return ["I enter the code.", "Here goes the code."], action
        if self.page == "cart":
            return ["Now I pay.", "The cart is right, I pay."], "Pay"
        return ["It is paid.", "The order is done."], Action("finished")
