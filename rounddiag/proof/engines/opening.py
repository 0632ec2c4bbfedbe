"""What a user passes as an engine, opened; a function of theirs as an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import BatchError
from rounddiag.proof.engines.client import Host
from rounddiag.proof.engines.engine import Engine
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.hypotheses.hypothesis import Need
from rounddiag.proof.trajectory import Request, Samples, Trajectory


def open_engine(
    engine: Any,  # noqa: ANN401 a name, an address, a function or an engine
    *,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> Engine:
    """Open what a user passed as an engine."""
    if isinstance(engine, LocalEngine):
        return engine
    if isinstance(engine, str) and "://" in engine:
        return ServerEngine.open(Host.at(engine))
    if isinstance(engine, str | os.PathLike):
        name = os.fspath(engine)
        return LocalEngine.open(
            name, device=device, trust_remote_code=trust_remote_code
        )
    if callable(engine):
        return FunctionEngine(engine)
    raise BatchError.build(
        expected="a folder or name of a model, the address of a server, or a function",
        found=f"a {type(engine).__name__}",
        advice="Pass the checkpoint of this step.",
    )


def open_low_precision(engine: Engine) -> Engine | None:
    """Load a model again in bfloat16, or with other kernels if it is that already.

    Its distance is the floor of the noise; None for engines of other processes.
    """
    if not isinstance(engine, LocalEngine):
        return None
    kernels = "eager" if engine.dtype == "bfloat16" else None
    return engine.beside(dtype="bfloat16", attention=kernels)


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

    def prepare(self, trajectory: Trajectory) -> Trajectory:
        """Return a sample of text."""
        if trajectory.shots:
            raise BatchError.build(
                expected="a sample of text, to score with a function",
                found=f"{len(trajectory.shots)} pictures in sample {trajectory.sample}",
                advice="Pass the folder of the model.",
            )
        return trajectory

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        del samples
        scores = []
        for request in requests:
            ids = request.ids.tolist()
            values = np.asarray(self.function(ids, []), dtype=np.float64)
            if values.shape != (len(ids),):
                raise BatchError.build(
                    expected=f"{len(ids)} log-probs of {self.name}, one for each id",
                    found=f"shape {values.shape}",
                    advice="Return any number for the first id; it is not read.",
                )
            scores.append(values[request.wanted.numpy()])
        return scores
