"""`rounddiag recipe`: the lines that save a batch in a trainer, from `recipes.md`."""

from __future__ import annotations

import re
from importlib.resources import files

from rounddiag.errors import require_one_of

_SECTION = re.compile(r"^## (\S+)\n\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


def read_recipes() -> dict[str, str]:
    """Return the text of each recipe by its name: where the lines go, and the lines."""
    page = files("rounddiag.cli").joinpath("recipes.md").read_text(encoding="utf-8")
    return {name: text.strip() for name, text in _SECTION.findall(page)}


def describe_recipe(name: str | None) -> str:
    """Return a recipe, or a table of all of them.

    Examples
    --------
    >>> describe_recipe("agent-lightning").splitlines()[-2]
    'self.recorder.step(self.global_steps, batch)'
    """
    recipes = read_recipes()
    if name is None:
        width = max(map(len, recipes))
        return "\n".join(
            f"{known:<{width}}  {_first_sentence(text)}"
            for known, text in recipes.items()
        )
    advice = "`rounddiag recipe other` is for any other trainer."
    require_one_of(name, recipes, key="recipe", advice=advice)
    return recipes[name]


def _first_sentence(text: str) -> str:
    return re.split(r":|\.\s|\.$", text.replace("*", ""), maxsplit=1)[0]
