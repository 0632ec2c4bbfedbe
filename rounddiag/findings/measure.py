"""A number of the evidence, with its name, unit and interval."""

from __future__ import annotations

from dataclasses import dataclass

from rounddiag.wording import with_minus


@dataclass(frozen=True)
class Measure:
    """One named number of the evidence.

    Attributes
    ----------
    unit: `nat`, `tokens`, `samples`, `share`, or empty for a plain number.
    low, high: Its 95 % interval.

    Examples
    --------
    >>> print(Measure("temperature", 0.7, low=0.69, high=0.71))
    temperature 0.7 (0.69 to 0.71)
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        interval = ""
        if self.low is not None and self.high is not None:
            interval = with_minus(f" ({self.low:.3g} to {self.high:.3g})")
        return f"{self.name} {with_minus(f'{self.value:.3g}')}{unit}{interval}"
