"""Nodes of a Ray cluster on this machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def node_options(num_cpus: int = 1) -> dict[str, int]:
    """Some cores and fixed ports: a node waits 15 s for a port that is not known."""
    names = (
        *("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port"),
        "dashboard_agent_listen_port",
    )
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in names]
        for one in sockets:
            one.bind(("", 0))
        ports = [one.getsockname()[1] for one in sockets]
    return {
        "num_cpus": num_cpus,
        "object_store_memory": 80_000_000,
        **dict(zip(names, ports, strict=True)),
    }
