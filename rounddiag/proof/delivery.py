"""A known change of the weights, delivered to a server: an adapter of our own.

It is written as peft writes one, so that any trainer's sync can take it. How far it
moves each log-prob is known from the model in the trainer's place.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from rounddiag._typing import Array
from rounddiag.errors import LoadError
from rounddiag.proof.engines.adapters import Adapter, open_adapter
from rounddiag.proof.engines.dialects import Continuation, Sampling
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.playing import Played
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trainer import run_command

_RANK = 8  # the smallest that vLLM takes
_LAYERS = ("q_proj", "down_proj")  # of the language model: attention and MLP
_MOVED = math.log(2)  # nats: on average each token is twice or half as likely
_DOUBLINGS = 24  # of the strength, at most: a factor of 1.7e7
_GREEDY = 8  # tokens of a probe


@dataclass(frozen=True, eq=False, kw_only=True)
class Delivery:
    """The log-probs of the same tokens before, with and after the change, in nats.

    Attributes
    ----------
    server_before, server_with, server_after: Of the server.
    model_before, model_with: Of the model in the trainer's place.
    probes: What the server writes with the change, in a new cache and in the one that
        was filled before the change.
    """

    server_before: Array
    server_with: Array
    server_after: Array
    model_before: Array
    model_with: Array
    probes: Sequence[tuple[Continuation, Continuation]]


def probe(server: ServerEngine, played: Played, salt: str | None) -> Continuation:
    """Let a server go on greedily after the context of the last round."""
    turn = played.rounds[-1]
    how = Sampling(num_tokens=_GREEDY, temperature=0.0, salt=salt)
    return server.sample(turn.context, turn.shots, how)


def deliver(
    command: str, served: Scorer, scorer: Scorer, played: Sequence[Played], seed: int
) -> Delivery:
    """Have a command sync an adapter to a server, and then one that changes nothing.

    Parameters
    ----------
    command : str
        It gets the folder of the adapter as its last argument.
    served, scorer : Scorer
        The server's scores of the episodes, and the model's.
    """
    server: Any = served.engine
    engine: Any = scorer.engine
    every = dict.fromkeys(range(len(scorer.samples)))
    server_before, model_before = served.column((), every), scorer.column((), every)
    drawn = _draw(engine, seed)
    with tempfile.TemporaryDirectory() as home:
        change, none = Path(home) / "change", Path(home) / "no_change"
        _write(engine, drawn, 0.0, none)
        _write(engine, drawn, 1.0, Path(home) / "drawn")
        adapter = open_adapter(str(Path(home) / "drawn"), engine.model)
        factor = _strength(scorer, adapter)
        _write(engine, drawn, factor, change)
        for each in played:
            probe(server, each, "")
        run_command(command, change)
        changed = server.refreshed()
        server_with = Scorer(served.batch, changed).column((), every)
        probes = [
            (probe(changed, each, None), probe(changed, each, "")) for each in played
        ]
        run_command(command, none)
    adapted = engine.adapted(adapter.times(factor))
    return Delivery(
        server_before=server_before,
        server_with=server_with,
        server_after=Scorer(served.batch, server.refreshed()).column((), every),
        model_before=model_before,
        model_with=Scorer(scorer.batch, adapted).column((), every),
        probes=probes,
    )


def _draw(
    engine: LocalEngine, seed: int
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, layer in engine.model.named_modules():
        if name.endswith(_LAYERS) and "vis" not in name:
            out, size = layer.weight.shape
            down = torch.randn(_RANK, size, generator=generator) / math.sqrt(size)
            up = torch.randn(out, _RANK, generator=generator) / math.sqrt(_RANK)
            drawn[name] = down, up * float(layer.weight.float().std())
    if not drawn:
        raise LoadError.build(
            file=engine.name,
            expected=f"linear layers named {' and '.join(_LAYERS)}",
            found="none",
            advice="The line about weights cannot be tested with this architecture.",
        )
    return drawn


def _strength(scorer: Scorer, adapter: Adapter) -> float:
    """Return how strong the change has to be to move tokens by a factor of 2."""
    engine: Any = scorer.engine
    first, factor = scorer.batch[:1], 1.0
    for _ in range(_DOUBLINGS):
        moved = Scorer(first, engine.adapted(adapter.times(factor))).base(0)
        if np.abs(moved - scorer.base(0)).mean() >= _MOVED:
            break
        factor *= 2
    return factor


def _write(
    engine: LocalEngine,
    drawn: dict[str, tuple[torch.Tensor, torch.Tensor]],
    factor: float,
    folder: Path,
) -> None:
    folder.mkdir()
    tensors = {}
    for name, (down, up) in drawn.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = down.contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = (factor * up).contiguous()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "base_model_name_or_path": engine.name,
        "bias": "none",
        "lora_alpha": _RANK,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": _RANK,
        "target_modules": list(_LAYERS),
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
