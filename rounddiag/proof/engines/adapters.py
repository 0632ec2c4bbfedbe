"""A LoRA adapter in the format of peft, added to a model without peft."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rounddiag.errors import LoadError
from rounddiag.loaders.source import inside
from rounddiag.text.json_text import parse_json

_PREFIX = "base_model.model."
_MOST_BYTES = 1 << 24  # of a configuration
_SHAPE = {
    "lora_alpha?": float | None,
    "alpha_pattern?": dict | None,
    "use_rslora?": bool | None,
}
_KEY = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")


@dataclass(frozen=True, eq=False)
class Update:
    """The change of one linear layer: `scale * up @ down` is added to its weight."""

    down: Tensor
    up: Tensor
    scale: float


@dataclass(frozen=True, eq=False)
class Adapter:
    """The changes of a model's layers.

    Attributes
    ----------
    name: Its folder.
    updates: By the name of the layer.
    factor: All updates are multiplied by it.
    """

    name: str
    updates: Mapping[str, Update] = field(repr=False)
    factor: float = 1.0

    def times(self, factor: float) -> Adapter:
        """Return the same adapter, so many times as strong."""
        return replace(self, factor=self.factor * factor)

    @contextmanager
    def on(self, model: Any) -> Iterator[None]:  # noqa: ANN401 of transformers
        """Add it to a model for a while: the weights themselves are left alone."""
        handles = []
        try:
            for name, update in self.updates.items():
                layer = model.get_submodule(name)
                handles.append(layer.register_forward_hook(self._hook(update)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, update: Update) -> Any:  # noqa: ANN401 torch's own type
        def add(layer: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:  # noqa: ANN401 linear
            like = layer.weight
            lowered = inputs[0].to(like.dtype) @ update.down.to(like).T
            raised = lowered @ update.up.to(like).T
            return output + self.factor * update.scale * raised

        return add


def open_adapter(folder: str, model: Any) -> Adapter:  # noqa: ANN401 of transformers
    """Read a folder that peft's `save_pretrained` wrote, for a model."""
    path = Path(folder)
    try:
        text = inside(path, "adapter_config.json", most_bytes=_MOST_BYTES).read_bytes()
        config = parse_json(text, _SHAPE)
        from safetensors.torch import load_file

        tensors = load_file(inside(path, "adapter_model.safetensors"))
    except (OSError, ValueError, ImportError) as error:
        raise _error(
            folder,
            "`adapter_config.json` and `adapter_model.safetensors`, as peft's"
            " `save_pretrained` writes them",
            f"{type(error).__name__}: {error!s:.200}",
        ) from error
    _refuse_others(folder, config)
    sides: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        match = _KEY.fullmatch(key.removeprefix(_PREFIX))
        if match is None:
            raise _error(folder, "LoRA matrices of linear layers only", repr(key))
        sides.setdefault(match["module"], {})[match["side"]] = value
    updates = {}
    for name, pair in sides.items():
        try:
            layer = model.get_submodule(name)
            shape = (pair["B"].shape[0], pair["A"].shape[1])
        except (AttributeError, KeyError) as error:
            raise _error(
                folder, "two matrices for layers of the model", name
            ) from error
        if not isinstance(layer, torch.nn.Linear) or layer.weight.shape != shape:
            content = f"{name}, of {shape[0]} x {shape[1]}"
            raise _error(folder, "the shapes of the model's linear layers", content)
        updates[name] = Update(pair["A"], pair["B"], _scale(config, name, pair["A"]))
    return Adapter(folder, updates)


def _refuse_others(folder: str, config: Mapping[str, Any]) -> None:
    for name, off in (("use_dora", False), ("fan_in_fan_out", False), ("bias", "none")):
        if config.get(name, off) not in (off, None):
            raise _error(folder, f"an adapter with {name}={off}", f"{config[name]!r}")
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if type(value) not in (int, float):
            content = f"{value!r:.80} for {pattern!r:.80}"
            raise _error(folder, "numbers in `alpha_pattern`", content)
    if config.get("peft_type", "LORA") != "LORA":
        raise _error(folder, "an adapter of type LORA", repr(config["peft_type"]))


def _scale(config: Mapping[str, Any], name: str, down: Tensor) -> float:
    """Return lora_alpha / r of a layer; over the root of r for rank-stabilised LoRA."""
    rank = down.shape[0]
    alpha = float(config.get("lora_alpha") or rank)
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if name == pattern or name.endswith(f".{pattern}"):
            alpha = float(value)
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _error(folder: str, expected: str, content: str) -> LoadError:
    return LoadError.build(
        file=folder,
        expected=expected,
        found=content,
        advice="Merge the adapter into the model with peft, and pass the merged folders"
        " as the engine and as `checkpoints=`.",
    )
