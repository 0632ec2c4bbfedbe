"""A known change of the weights, delivered to a server: an adapter of our own.

It is written as peft writes one, so that any trainer's sync can take it. How far it
moves each log-prob is known from the model in the trainer's place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.proof.engines.adapters import open_adapter
from rounddiag.proof.engines.dialects import Continuation, Sampling
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.playing import Played
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trainer import run_command

_RANK = 8  # the smallest that vLLM takes
_LAYERS = ("q_proj", "down_proj")  # of the language model: attention and MLP
_MOVED = math.log(2)  # nats: on average each token is twice or half as likely
_DOUBLINGS = 24
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


def score_with(engine: Any, batch: Batch) -> Array:  # noqa: ANN401 of any kind
    """Return an engine's log-probs of all tokens of a batch that were written."""
    scorer = Scorer(batch, engine)
    return np.concatenate([scorer.base(sample) for sample in range(batch.num_samples)])


def deliver(
    command: str,
    server: ServerEngine,
    engine: LocalEngine,
    batch: Batch,
    played: Sequence[Played],
    folder: Path,
    seed: int,
) -> Delivery:
    """Have a command sync an adapter to a server, and then one that changes nothing."""
    change, none = folder / "change", folder / "no_change"
    factor = _strength(engine, batch, _draw(engine, seed), folder / "drawn")
    _write(engine, _draw(engine, seed), factor, change)
    _write(engine, _draw(engine, seed), 0.0, none)
    adapter = open_adapter(str(change), engine.model)
    before = score_with(server, batch)
    for each in played:
        probe(server, each, "")
    run_command(command, change)
    changed = server.refreshed()
    server_with = score_with(changed, batch)
    probes = [(probe(changed, each, None), probe(changed, each, "")) for each in played]
    run_command(command, none)
    return Delivery(
        server_before=before,
        server_with=server_with,
        server_after=score_with(server.refreshed(), batch),
        model_before=score_with(engine, batch),
        model_with=score_with(engine.adapted(adapter), batch),
        probes=probes,
    )


def _draw(
    engine: LocalEngine, seed: int
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the two matrices of each layer, of the size of its weights."""
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


def _strength(
    engine: LocalEngine,
    batch: Batch,
    drawn: dict[str, tuple[torch.Tensor, torch.Tensor]],
    folder: Path,
) -> float:
    """Return how strong the change has to be to move tokens by a factor of 2."""
    _write(engine, drawn, 1.0, folder)
    adapter = open_adapter(str(folder), engine.model)
    first = batch[:1]
    plain, factor = score_with(engine, first), 1.0
    for _ in range(_DOUBLINGS):
        moved = score_with(engine.adapted(adapter.times(factor)), first)
        if np.abs(moved - plain).mean() >= _MOVED:
            break
        factor *= 2
    return factor


def _write(
    engine: LocalEngine,
    drawn: dict[str, tuple[torch.Tensor, torch.Tensor]],
    factor: float,
    folder: Path,
) -> None:
    """Write an adapter as peft's `save_pretrained` does."""
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
