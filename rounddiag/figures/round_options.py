"""Which layers a figure per round has: not every one fits every quantity."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag.core.measures import measure_of
from rounddiag.errors import FrameError
from rounddiag.figures.layers import layers_of
from rounddiag.figures.sources import summary_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch

# Whether each is drawn unless it is asked otherwise.
LAYERS = {
    "mean": True,
    "ci": True,
    "quantiles": False,
    "counts": True,
    "survivors": True,
}


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """What is to be drawn, of which quantity; as `plot_rounds` takes it."""

    metric: str
    weight: str
    by: str | None
    last_aligned: bool

    @property
    def is_usual(self) -> bool:
        """Whether the quantity is the one that `stats.survivors` knows."""
        usual = ("abs_diff", "token", None, False)
        return (self.metric, self.weight, self.by, self.last_aligned) == usual

    @property
    def weighting(self) -> str:
        """What counts alike; the names of some metrics stand for that."""
        return measure_of(self.metric).weight or self.weight

    @property
    def offered(self) -> dict[str, bool]:
        """The layers that the quantity has, and whether each is drawn by itself.

        A round summary has no survivors.
        """
        is_signed = measure_of(self.metric).is_signed
        fits = {
            "survivors": self.is_usual,
            "quantiles": self.by is None and not is_signed,
        }
        return {name: is_on for name, is_on in LAYERS.items() if fits.get(name, True)}

    def layers(
        self, chosen: Mapping[str, bool] | None, data: Batch | pd.DataFrame
    ) -> dict[str, bool]:
        """Say of each layer whether it is drawn.

        Raises
        ------
        FrameError
            If there is no such metric or layer, or a layer was asked for that the
            quantity does not have.
        """
        is_summary = isinstance(data, pd.DataFrame) and "diff" not in data
        has_survivors = "survivors" in self.offered and not is_summary
        default = {**LAYERS, "survivors": has_survivors}
        layers = layers_of({**default, **(chosen or {})}, *LAYERS)
        if layers["survivors"] and not has_survivors:
            raise FrameError.build(
                key="survivors",
                expected="a Batch or a token frame, and the default of `metric`,"
                " `weight`, `by` and `last_aligned`",
                found="a round summary" if is_summary else str(self),
                advice="Leave the layer out, or the options.",
            )
        if layers["quantiles"] and "quantiles" not in self.offered:
            raise FrameError.build(
                key="quantiles",
                expected="a metric that is never negative, and no `by`",
                found=str(self),
                advice="Leave the layer out, or plot one value's samples at a time.",
            )
        return layers

    def summary(self, data: Batch | pd.DataFrame) -> pd.DataFrame:
        """Return the summary per round, ordered.

        Raises
        ------
        FrameError
            If a frame lacks a column, or is a summary of something else.
        """
        found = summary_of(data, **asdict(self))
        self._check(found)
        return found.sort_values("round", kind="stable")

    def _check(self, summary: pd.DataFrame) -> None:
        """Notice a given summary that was made with other options."""
        keys = ["round", *([self.by] if self.by else [])]
        column = measure_of(self.metric).in_rounds
        is_plain = self.weighting == "token" and column in summary
        repeated = summary.duplicated(keys).any()
        if repeated or (is_plain and not _alike(summary["mean"], summary[column])):
            raise FrameError.build(
                expected=f"a round summary that was made with {self}",
                found="several rows of one round" if repeated else "another `mean`",
                advice="Pass the options that `rounddiag.round_summary` was given.",
            )

    def __str__(self) -> str:
        return (
            f"metric={self.metric!r}, weight={self.weight!r}, by={self.by!r},"
            f" last_aligned={self.last_aligned!r}"
        )


def _alike(one: pd.Series[float], other: pd.Series[float]) -> bool:
    return bool(np.allclose(one, other, rtol=1e-6, atol=0, equal_nan=True))
