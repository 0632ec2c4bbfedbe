"""Scores that another machine computed, in place of an engine.

A family such as the temperature is recorded on a grid of numbers; between them the
log-probs are interpolated, token by token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.provable import checkpoint_of
from rounddiag.errors import BatchError
from rounddiag.proof.engines.pictures import with_spans
from rounddiag.proof.hypotheses.sampling import FAMILIES, Family
from rounddiag.proof.hypotheses.weights import WEIGHTS, weight_hypotheses_of
from rounddiag.proof.scorer import Scorer, StoppedError
from rounddiag.proof.trajectory import read_scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.proof.hypotheses.hypothesis import Hypothesis, Need
    from rounddiag.proof.trajectory import Request, Samples, Trajectory

LOW_PRECISION = "low_precision"


def name_of(family: Family, value: float) -> str:
    """Return the name of a family's recorded score.

    Examples
    --------
    >>> name_of(FAMILIES[0], 0.8)
    'temperature=0.8'
    """
    return f"{family.name}={value:g}"


def _named(batch: Batch) -> str:
    """Return the checkpoint that a batch names, which is not opened unasked."""
    name = checkpoint_of(batch)
    return f", {name!r}" if name else ""


class _Recorded:
    """What was recorded, as an engine: it scores nothing."""

    def __init__(self, label: str, names: Iterable[str]) -> None:
        self.name = f"the scores {label!r} of this batch"
        has_families = any(f"{label}/{FAMILIES[0].name}=" in one for one in names)
        self.abilities: frozenset[Need] = frozenset({"logits"} if has_families else ())

    def prepare(self, one: Trajectory) -> Trajectory:
        return with_spans(one)

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        del requests, samples
        raise StoppedError


@dataclass(eq=False)
class RecordedScorer(Scorer):
    """Reads the scores that `attach` added under one name."""

    label: str = ""
    _values: dict[tuple[str, int], Array | None] = field(default_factory=dict)

    @classmethod
    def of_batch(cls, batch: Batch) -> RecordedScorer:
        """Find the scores of a folder in a batch."""
        labels = sorted({n.partition("/")[0] for n in batch.scores if "/" in n})
        labels = [one for one in labels if one in batch.scores]
        if len(labels) != 1:
            raise BatchError.build(
                key="engine",
                expected="a model, a server, or a batch to which the scores of one"
                " folder are attached",
                found=f"scores of {len(labels)} folders",
                advice=f"Pass the checkpoint of this step{_named(batch)}, or see"
                " `rounddiag.export_rescore`.",
            )
        return cls(batch, _Recorded(labels[0], batch.scores), label=labels[0])

    @property
    def names(self) -> list[str]:
        """The names of the changes that are recorded."""
        head = f"{self.label}/"
        return [n.removeprefix(head) for n in self.batch.scores if n.startswith(head)]

    def lacks(self, one: Hypothesis) -> str:
        """Return why a hypothesis cannot be judged; empty if it can."""
        return "" if one.name in self.names else "it was not scored"

    def weight_hypotheses(self) -> list[Hypothesis]:
        """Return a hypothesis for each recorded checkpoint."""
        return [
            one
            for name in self.names
            if name.startswith(WEIGHTS)
            for one in weight_hypotheses_of(name.removeprefix(WEIGHTS))
        ]

    def scores(
        self, chain: Sequence[Hypothesis], sample: int, *, low_precision: bool = False
    ) -> Array | None:
        """Return the recorded log-probs of a sample; None where there are none."""
        if len(chain) > 1:
            raise StoppedError
        self._plain.add((sample, low_precision))
        if low_precision:
            return self._recall(f"{self.label}/{LOW_PRECISION}", sample)
        if not chain:
            return self._recall(self.label, sample)
        (one,) = chain
        if one.processor is not None:
            return self._read_family(one, sample)
        return self._recall(f"{self.label}/{one.name}", sample)

    def can_score(self, sample: int) -> bool:
        """Return whether the base of a sample is recorded."""
        return super().can_score(sample) and self.scores((), sample) is not None

    def _low_precision_column(self, samples: Sequence[int]) -> Array | None:
        if f"{self.label}/{LOW_PRECISION}" not in self.batch.scores:
            return None
        parts = [self.scores((), sample, low_precision=True) for sample in samples]
        known = [one for one in parts if one is not None]
        return np.concatenate(known) if len(known) == len(parts) else None

    def _recall(self, name: str, sample: int) -> Array | None:
        key = name, sample
        if key not in self._values:
            if name not in self.batch.scores:
                raise StoppedError
            found = read_scores(self.batch, self.samples[sample], name)
            self._values[key] = None if np.isnan(found).all() else found
        return self._values[key]

    def _read_family(self, one: Hypothesis, sample: int) -> Array | None:
        family = next((each for each in FAMILIES if each.name == one.name), None)
        value = getattr(one.processor, "value", None)
        if family is None or value is None:
            raise StoppedError
        plain = f"{self.label}/{name_of(family, value)}"
        if plain in self.batch.scores:
            return self._recall(plain, sample)
        if not family.is_continuous:
            raise StoppedError
        return self._interpolate(family, value, sample)

    def _interpolate(self, family: Family, value: float, sample: int) -> Array | None:
        """Return what lies between the recorded numbers, by a cubic for each token."""
        from scipy.interpolate import CubicSpline

        at = [*family.grid]
        rows = [
            self._recall(f"{self.label}/{name_of(family, each)}", sample) for each in at
        ]
        if any(row is None for row in rows):
            return None
        with np.errstate(invalid="ignore"):
            table = np.nan_to_num(np.array(rows, dtype=np.float64), neginf=-1e3)
        found: Array = CubicSpline(at, table)(value)
        return found
