"""What a user passes as an engine, opened."""

from __future__ import annotations

import os
from typing import Any

from rounddiag.errors import BatchError
from rounddiag.proof.engines.client import Host
from rounddiag.proof.engines.engine import Engine
from rounddiag.proof.engines.function import FunctionEngine
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine


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
