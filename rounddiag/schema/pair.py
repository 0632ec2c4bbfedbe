"""Two sets of log-probs that are compared, and how labels name them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag.schema.columns import Column

_STANDARD = "old", "rollout"
# What stands for the two scores in labels of the standard pair: for `a`, for `b`.
_WORDS = (
    ("by the training engine", "by {a}"),
    ("by the sampling engine", "by {b}"),
    ("training likes", "{a} likes"),
    ("training finds", "{a} finds"),
    ("trainer - inference", "{a} - {b}"),
    ("old", "{a}"),
    ("rollout", "{b}"),
)
_FOUND = re.compile(rf"\b(?:{'|'.join(word for word, _ in _WORDS)})\b")
_MEANT = dict(_WORDS)


@dataclass(frozen=True)
class Pair:
    """The scores `a` and `b` of which everything is `a - b`.

    Attributes
    ----------
    a, b : str
        Names of scores, by default what the training engine and the sampling engine
        gave.
    """

    a: str = _STANDARD[0]
    b: str = _STANDARD[1]

    @property
    def is_standard(self) -> bool:
        """Whether they are those that every batch has."""
        return (self.a, self.b) == _STANDARD

    def named(self, text: str) -> str:
        """Put the names where a text of the standard pair says old and rollout.

        Parameters
        ----------
        text : str
            A label or a sentence. The words for an engine as the source of a score,
            "by the training engine" say, are names too; others stay.

        Returns
        -------
        str
            The text itself for the standard pair.

        Examples
        --------
        >>> Pair("current", "rollout").named("|old - rollout| log-prob [nat]")
        '|current - rollout| log-prob [nat]'
        >>> Pair("ref", "old").named("log-prob by the sampling engine")
        'log-prob by old'
        """
        if self.is_standard:
            return text
        return _FOUND.sub(lambda found: self._name(found[0]), text)

    def label(self, column: Column) -> str:
        """Return a column's label with these names.

        Examples
        --------
        >>> from rounddiag.schema import DIFF
        >>> Pair("current", "rollout").label(DIFF)
        'current - rollout log-prob [nat]'
        """
        return self.named(column.label)

    def _name(self, word: str) -> str:
        return _MEANT[word].format(a=self.a, b=self.b)
