"""How groups of rounds are told apart: a colour that darkens or brightens, a sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from plotly.colors import sample_colorscale

from rounddiag.figures.canvas import colored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.figures.theme import Theme

# Plotly's names of markers, and how they look in text.
_SIGNS = {
    "circle": "●",
    "square": "■",
    "diamond": "◆",
    "triangle-up": "▲",
    "triangle-down": "▼",
    "star": "★",
    "cross": "✚",
    "x": "✖",
}
# The parts of the colour scale that stand out from the paper, the first round first.
_COLORS = {"light": (0.0, 0.75), "dark": (1.0, 0.45)}
# Groups a line of the key, so that it fits a figure of 400 pixels.
_PER_LINE = 4


@dataclass(frozen=True, kw_only=True)
class RoundGroup:
    """One group of rounds, as `stats.conditional` names them.

    Attributes
    ----------
    name : str
    color : str
    symbol : str
        Plotly's name of its marker.
    """

    name: str
    color: str
    symbol: str

    @property
    def sign(self) -> str:
        """Its marker in its colour, as text."""
        return colored(_SIGNS[self.symbol], self.color)


def group_styles(names: Sequence[str], look: Theme) -> list[RoundGroup]:
    """Give each group, in the order of rounds, a look of its own."""
    places = np.linspace(*_COLORS[look.name], max(len(names), 2))[: len(names)]
    colors = sample_colorscale("cividis", places)
    symbols = [*_SIGNS]
    return [
        RoundGroup(name=name, color=color, symbol=symbols[i % len(symbols)])
        for i, (name, color) in enumerate(zip(names, colors, strict=True))
    ]


def key_lines(groups: Sequence[RoundGroup]) -> list[str]:
    """Explain the looks, in lines for a figure's title."""
    signs = [f"{g.sign} {g.name}" for g in groups]
    parts = [signs[i : i + _PER_LINE] for i in range(0, len(signs), _PER_LINE)]
    heads = ["round ", *[""] * len(parts)]
    return [head + "  ".join(part) for head, part in zip(heads, parts, strict=False)]
