"""A LoRA adapter that peft loads into a model; it is off but in passes that have it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from rounddiag.errors import LoadError, import_extra
from rounddiag.loaders.source import inside

_FILES = {"adapter_config.json": 1 << 24, "adapter_model.safetensors": None}
"""What peft looks for elsewhere if it is missing, and its most bytes."""
_NUMBERS = count()


@dataclass(frozen=True, eq=False)
class Adapter:
    """An adapter of a model.

    Attributes
    ----------
    name: Among the adapters that the model has.
    layers: The model's layers that have it.
    factor: It is so many times as strong.
    """

    name: str
    layers: tuple[Any, ...] = field(repr=False)
    factor: float = 1.0

    @property
    def scale(self) -> float:
        """By what its first layer multiplies it, such as lora_alpha / r."""
        return float(self.layers[0].scaling[self.name])

    def times(self, factor: float) -> Adapter:
        """Return the same adapter, so many times as strong."""
        return replace(self, factor=self.factor * factor)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Add it for a while: the weights themselves are left alone."""
        scales = [layer.scaling[self.name] for layer in self.layers]
        try:
            for layer, scale in zip(self.layers, scales, strict=True):
                layer.scaling[self.name] = scale * self.factor
                layer.set_adapter(self.name, inference_mode=True)
                layer.enable_adapters(enabled=True)
            yield
        finally:
            for layer, scale in zip(self.layers, scales, strict=True):
                layer.scaling[self.name] = scale
                layer.enable_adapters(enabled=False)


def open_adapter(folder: str, model: Any) -> Adapter:  # noqa: ANN401 of transformers
    """Add a folder that peft's `save_pretrained` wrote to a model, switched off."""
    import_extra("peft", "lora", "which adds the adapter to the model")
    from peft.tuners.lora import LoraLayer

    name = f"adapter_{next(_NUMBERS)}"
    try:
        odd = _inject(folder, model, name)
    except Exception as error:
        content = f"{type(error).__name__}: {error!s:.200}".rstrip(".")
        raise _error(folder, content) from error
    finally:
        lora = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
        for layer in lora:
            layer.enable_adapters(enabled=False)
    if odd:
        raise _error(folder, f"matrices and layers that differ, such as {odd[0]!r}")
    return Adapter(name, tuple(layer for layer in lora if name in layer.scaling))


def _inject(folder: str, model: Any, name: str) -> list[str]:  # noqa: ANN401 of transformers
    """Return matrices that the model lacks, and those of layers that have one only.

    A layer without any, such as of an encoder that was not trained, changes nothing.
    """
    import peft
    from peft.utils.save_and_load import load_peft_weights

    for file, most_bytes in _FILES.items():
        inside(Path(folder), file, most_bytes=most_bytes)
    config = peft.PeftConfig.from_pretrained(folder)
    if (config.peft_type, config.bias) != ("LORA", "none"):
        # Switched off, a trained bias would stay in the model.
        message = f"peft_type={config.peft_type}, bias={config.bias}"
        raise ValueError(message)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Already found a `peft_config`")
        peft.inject_adapter_in_model(config, model, name)
    tensors = {
        key.removeprefix("base_model.model.").replace(".default.", "."): values
        for key, values in load_peft_weights(folder, device="cpu").items()
    }
    keys = peft.set_peft_model_state_dict(model, tensors, name)
    given = {key.partition(".lora_")[0] for key in tensors}
    halves = [key for key in keys.missing_keys if name in key]
    halves = [key for key in halves if key.partition(".lora_")[0] in given]
    return [*keys.unexpected_keys, *halves]


def _error(folder: str, content: str) -> LoadError:
    return LoadError.build(
        file=folder,
        expected=f"{' and '.join(_FILES)} of a LoRA without biases, as peft's"
        " `save_pretrained` writes them",
        found=content,
        advice="Merge the adapter into the model with peft, and pass the merged folders"
        " as the engine and as `checkpoints=`.",
    )
