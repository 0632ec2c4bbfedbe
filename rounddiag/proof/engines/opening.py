"""What a user passes as an engine, opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from rounddiag.errors import BatchError
from rounddiag.proof.engines.client import Host
from rounddiag.proof.engines.engine import Engine
from rounddiag.proof.engines.function import FunctionEngine
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine


@dataclass(frozen=True, eq=False)
class Opened:
    """An engine, and the same model with other numerics for the floor of the noise."""

    engine: Engine
    low_precision: Engine | None = None


def open_engine(
    engine: Any,  # noqa: ANN401 a name, an address, a function or an engine
    *,
    device: str = "auto",
    trust_remote_code: bool = False,
    with_low_precision: bool = True,
) -> Opened:
    """Open what a user passed as an engine, and the same with other numerics."""
    if isinstance(engine, str) and "://" in engine:
        return Opened(ServerEngine.open(Host.at(engine)))
    if isinstance(engine, str | os.PathLike):
        engine = LocalEngine.open(
            os.fspath(engine), device=device, trust_remote_code=trust_remote_code
        )
    if isinstance(engine, LocalEngine):
        return Opened(engine, _low_precision(engine) if with_low_precision else None)
    if callable(engine):
        return Opened(FunctionEngine(engine))
    raise BatchError.build(
        expected="a folder or name of a model, the address of a server, or a function",
        found=f"a {type(engine).__name__}",
        advice="Pass the checkpoint of this step.",
    )


def _low_precision(engine: LocalEngine) -> LocalEngine:
    """Load the model again in bfloat16, or with other kernels if it is that already."""
    if engine.dtype == "bfloat16":
        return engine.beside(dtype="bfloat16", attention="eager")
    return engine.beside(dtype="bfloat16")
