"""Breaks of a run: steps at which several rounds change together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.schema import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


# Changes of neighbouring steps are one break.
_NEAR = 2


@dataclass(frozen=True, kw_only=True)
class Break:
    """A step at which the level of some rounds changes.

    Attributes
    ----------
    step : int
        The first step of the new level.
    previous : int
        The step before it.
    rounds : tuple of int
    before, after : float
        The levels of the round that changes most.
    metric : str
    """

    step: int
    previous: int
    rounds: tuple[int, ...]
    before: float
    after: float
    metric: str

    def __str__(self) -> str:
        unit = METRICS[self.metric].unit
        return (
            f"from step {self.step:,}: {name_rounds(self.rounds)},"
            f" {self.before:.3g} to {self.after:.3g}" + (f" {unit}" if unit else "")
        )


def find_breaks(
    changes: pd.DataFrame, steps: Sequence[int], *, metric: str = "abs_diff"
) -> list[Break]:
    """Join the changes of several rounds at neighbouring steps.

    Parameters
    ----------
    changes : DataFrame
        As `find_changes` returns it; growth has no step.
    steps : sequence of int
        All steps of the run, in order.
    metric : str
        What the changes are of.
    """
    place = {step: index for index, step in enumerate(steps)}
    at_step = changes[changes["change"] == "step"]
    parts = (at_step["step"].map(place).diff() > _NEAR).cumsum().to_numpy()
    found = []
    for _, part in at_step.groupby(parts, sort=True):
        step = int(part["step"].mode().iloc[0])
        largest = part.iloc[int((part["after"] - part["before"]).abs().argmax())]
        found.append(
            Break(
                step=step,
                previous=steps[place[step] - 1],
                rounds=tuple(sorted({int(one) for one in part["round"]})),
                before=float(largest["before"]),
                after=float(largest["after"]),
                metric=metric,
            )
        )
    return found


def name_rounds(rounds: Sequence[int]) -> str:
    """Name some rounds, neighbours together.

    Examples
    --------
    >>> name_rounds([2, 3, 4, 7]), name_rounds([0])
    ('rounds 2 to 4, 7', 'round 0')
    """
    known = sorted({int(one) for one in rounds})
    parts: list[list[int]] = []
    for one in known:
        if parts and one == parts[-1][-1] + 1:
            parts[-1].append(one)
        else:
            parts.append([one])
    names = [
        str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts
    ]
    return f"round{'s' if len(known) > 1 else ''} {', '.join(names)}"
