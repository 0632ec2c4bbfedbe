"""The recipes of README.md and of `rounddiag recipe`, verbatim."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
RECIPES = README.parent / "rounddiag" / "cli" / "recipes.md"


def blocks(page: Path, heading: str) -> list[str]:
    """Return the blocks marked `py` under a heading of a page."""
    (section,) = re.findall(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)",
        page.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return re.findall(r"^```py\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
