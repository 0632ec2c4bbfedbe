"""The two sets of log-probs that are compared, and their names in labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag.schema.columns import Column

_STANDARD = "old", "rollout"
# Names of the standard pair that are more than the names of its scores.
_ENGINES = {
    "training": "training",
    "training_engine": "the training engine",
    "sampling_engine": "the sampling engine",
}


@dataclass(frozen=True)
class Pair:
    """The scores `a` and `b`; every difference is `a - b`.

    Attributes
    ----------
    a, b : str
        Names of scores. By default those of the training engine (`old`) and of the
        sampling engine (`rollout`).
    """

    a: str = _STANDARD[0]
    b: str = _STANDARD[1]

    @property
    def is_standard(self) -> bool:
        """Whether these are the two scores that every batch has."""
        return (self.a, self.b) == _STANDARD

    def named(self, template: str) -> str:
        """Fill the names of the scores into a template.

        Parameters
        ----------
        template : str
            With the fields `{a}` and `{b}`, and `{training}`, `{training_engine}` and
            `{sampling_engine}`, which are words for the engines of the standard pair
            and the names of the scores for any other pair.

        Examples
        --------
        >>> Pair("current", "rollout").named("|{a} - {b}| log-prob [nat]")
        '|current - rollout| log-prob [nat]'
        >>> Pair().named("log-prob by {sampling_engine}")
        'log-prob by the sampling engine'
        >>> Pair("ref", "old").named("log-prob by {sampling_engine}")
        'log-prob by old'
        """
        engines = _ENGINES
        if not self.is_standard:
            engines = {
                "training": self.a,
                "training_engine": self.a,
                "sampling_engine": self.b,
            }
        return template.format(a=self.a, b=self.b, **engines)

    def label(self, column: Column) -> str:
        """Return a column's label with these names.

        Examples
        --------
        >>> from rounddiag.schema import DIFF
        >>> Pair("current", "rollout").label(DIFF)
        'current - rollout log-prob [nat]'
        """
        meaning = self.named(column.meaning)
        return f"{meaning} [{column.unit}]" if column.unit else meaning
