"""Scores with a function of the user's: any engine that takes ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import BatchError
from rounddiag.proof.hypotheses.hypothesis import Need
from rounddiag.proof.trajectory import Request, Samples, Trajectory

Score: TypeAlias = Callable[[list[int], list[Any]], "Sequence[float] | Array"]
"""From ids and pictures to the log-prob of each id, the first of which is not read."""


@dataclass(frozen=True, eq=False)
class FunctionEngine:
    """A function `score(ids, images) -> log-probs` as an engine.

    It is given hypotheses that change ids and leave no choice of positions. Pictures
    are not passed on, because only a model knows which image tokens are theirs.

    Examples
    --------
    >>> engine = FunctionEngine(lambda ids, images: [-1.0] * len(ids))
    >>> engine.name, sorted(engine.abilities)
    ('<lambda>', [])
    """

    function: Score

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", "the function")

    @property
    def abilities(self) -> frozenset[Need]:
        """Nothing but ids."""
        return frozenset()

    def prepare(self, one: Trajectory) -> Trajectory:
        """Return a sample of text."""
        if one.shots:
            raise BatchError.build(
                expected="a sample of text, to score with a function",
                found=f"{len(one.shots)} pictures in sample {one.sample}",
                advice="Pass the folder of the model.",
            )
        return one

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        del samples
        found = []
        for request in requests:
            ids = request.ids.tolist()
            values = np.asarray(self.function(ids, []), dtype=np.float64)
            if values.shape != (len(ids),):
                raise BatchError.build(
                    expected=f"{len(ids)} log-probs of {self.name}, one for each id",
                    found=f"shape {values.shape}",
                    advice="Return any number for the first id; it is not read.",
                )
            found.append(values[request.wanted.numpy()])
        return found
