"""A family: hypotheses that differ in one number, which is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rounddiag.proof.hypotheses.hypothesis import Hypothesis, Need


@dataclass(frozen=True, eq=False)
class Family:
    """Hypotheses that differ in one number.

    Attributes
    ----------
    name, cause, says, needs: As of `Hypothesis`; `says` has a place for the number.
    make: From the number to the `kind` of change that a hypothesis has.
    grid: Where the search begins.
    further: Whole numbers that are tried where nothing else reproduces an engine.
    is_continuous: Whether the number is refined between the values of the grid.
    is_ordered: Whether near whole numbers are alike: those between are tried too.
    """

    name: str
    cause: str
    says: str
    make: Callable[[Any], Any]
    grid: Sequence[float]
    kind: Literal["edit", "processor", "weights"] = "edit"
    needs: Sequence[Need] = ()
    is_continuous: bool = False
    is_ordered: bool = False
    further: Sequence[float] = ()

    def at(self, value: float) -> Hypothesis:
        """Return the hypothesis of one number: an edit is of a whole one."""
        value = round(value) if self.kind == "edit" else value
        change: dict[str, Any] = {self.kind: self.make(value)}
        return Hypothesis(
            name=f"{self.name}_{value}" if self.kind == "edit" else self.name,
            cause=self.cause,
            says=self.says.format(value if self.kind == "edit" else f"{value:.4g}"),
            needs=frozenset(self.needs),
            excludes=self.cause == "truncated_sampling",
            **change,
        )
