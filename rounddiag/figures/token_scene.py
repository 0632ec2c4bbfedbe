"""What all layers of a trajectory share: its tokens, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.thinning import thinned

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.figures.theme import Theme
    from rounddiag.schema import Pair

    Array = np.ndarray[Any, Any]

# Width of the gap that stands for an observation, and of all, as shares of all tokens.
_GAP, _ALL_GAPS = 0.012, 0.5


@dataclass(frozen=True, kw_only=True)
class TokenScene:
    """One sample's tokens, the parts that are drawn of them, and how.

    Attributes
    ----------
    tokens : DataFrame
        As `sources.trajectory_of` gives them; at least one.
    layers : mapping of str to bool
        Which of `diff`, `log_probs` and `bands` are drawn.
    pair : Pair
        The scores, as labels name them.
    look : Theme
    """

    tokens: pd.DataFrame
    layers: Mapping[str, bool]
    pair: Pair
    look: Theme

    @cached_property
    def starts(self) -> Array:
        """The index of the first token of each round."""
        return np.flatnonzero(np.diff(self.tokens["round"], prepend=-1))

    @cached_property
    def place(self) -> Array:
        """Where tokens stand: side by side, with a gap between rounds."""
        share = min(_GAP, _ALL_GAPS / len(self.starts))
        gap = max(1, round(share * len(self.tokens)))
        size = np.diff(self.starts, append=len(self.tokens))
        gaps = gap * np.repeat(np.arange(len(size)), size)
        found: Array = np.arange(len(self.tokens)) + gaps
        return found

    @cached_property
    def drawn(self) -> pd.DataFrame:
        """The tokens that are drawn: all of few, those that stand out of many."""
        return self.tokens.iloc[thinned(self.tokens)]

    @property
    def x(self) -> Array:
        """Where those stand."""
        found: Array = self.place[self.drawn.index]
        return found
