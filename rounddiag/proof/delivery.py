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
from rounddiag.proof.hypotheses import all_registered, select_hypotheses
from rounddiag.proof.playing import Played
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.trainer import run_command

_RANK = 8  # the smallest that vLLM takes
_LAYERS = ("q_proj", "down_proj")  # of the language model: attention and MLP
_TOWER = ("down_proj", "fc2")  # of the vision tower
(_WHITE,) = select_hypotheses(all_registered(), ["white_images"])  # new to a server
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
    model_language: With the change of its language model alone.
    leaves_tower: Whether the server leaves that of the tower out; None without one.
    probes: What the server writes with the change, in a new cache and in the one that
        was filled before the change.
    """

    server_before: Array
    server_with: Array
    server_after: Array
    model_before: Array
    model_with: Array
    model_language: Array
    leaves_tower: bool | None
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
    parts = [_draw(engine, seed, is_tower=False)]
    if scorer.has_pictures:
        parts += filter(None, [_draw(engine, seed, is_tower=True)])
    with tempfile.TemporaryDirectory() as home:
        folder, changes = Path(home), list[Path]()
        drawn: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for number, part in enumerate(parts):
            _write(engine, part, 1.0, folder / f"part_{number}")
            adapter = open_adapter(str(folder / f"part_{number}"), engine.model)
            factor = _strength(scorer, adapter)
            drawn |= {name: (down, factor * up) for name, (down, up) in part.items()}
            changes.append(folder / f"change_{number}")
            _write(engine, drawn, 1.0, changes[-1])
        _write(engine, parts[0], 0.0, folder / "no_change")
        for each in played:
            probe(server, each, "")
        try:
            run_command(command, changes[-1])
        except LoadError:  # some servers take no adapter of a vision tower
            if len(changes) == 1:
                raise
            changes = changes[:1]
            run_command(command, changes[0])
        changed = server.refreshed()
        adapters = [open_adapter(str(each), engine.model) for each in changes]
        engines = [changed, *map(engine.adapted, adapters)]
        with_change = [Scorer(served.batch, each) for each in engines]
        # Without a tower, the change of the language model is all.
        server_with, *models = (each.column((), every) for each in with_change)
        leaves_tower = None
        if len(changes) > 1:
            white, *own = (each.column((_WHITE,), every) for each in with_change)
            language, both = (float(np.nanmean(np.abs(white - each))) for each in own)
            leaves_tower = language < both
        probes = [
            (probe(changed, each, None), probe(changed, each, "")) for each in played
        ]
        run_command(command, folder / "no_change")
    return Delivery(
        server_before=server_before,
        server_with=server_with,
        server_after=Scorer(served.batch, server.refreshed()).column((), every),
        model_before=model_before,
        model_with=models[-1],
        model_language=models[0],
        leaves_tower=leaves_tower,
        probes=probes,
    )


def _draw(
    engine: LocalEngine, seed: int, *, is_tower: bool
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, layer in engine.model.named_modules():
        layers = _TOWER if is_tower else _LAYERS
        if name.endswith(layers) and ("vis" in name) == is_tower:
            out, size = layer.weight.shape
            down = torch.randn(_RANK, size, generator=generator) / math.sqrt(size)
            up = torch.randn(out, _RANK, generator=generator) / math.sqrt(_RANK)
            drawn[name] = down, up * float(layer.weight.float().std())
    if not (drawn or is_tower):
        raise LoadError.build(
            file=engine.name,
            expected=f"linear layers named {' and '.join(_LAYERS)}",
            found="none",
            advice="The line about weights cannot be tested with this architecture.",
        )
    return drawn


def _strength(scorer: Scorer, adapter: Adapter) -> float:
    """Return how strong the change has to be to move tokens by `_MOVED`."""
    engine: Any = scorer.engine
    at = next((i for i, each in enumerate(scorer.batch.images or ()) if each), 0)
    first, moved = scorer.batch[[at]], 0.0
    for factor in 2.0 ** np.arange(_DOUBLINGS):
        scores = Scorer(first, engine.adapted(adapter.times(float(factor)))).base(0)
        before, moved = moved, float(np.abs(scores - scorer.base(at)).mean())
        # Behind a norm more moves them no further, which shows far above rounding.
        if moved >= _MOVED or _MOVED / 8 < moved < 1.01 * before:
            return float(factor)
    return 1.0


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
        "target_modules": sorted({name.rpartition(".")[2] for name in drawn}),
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
