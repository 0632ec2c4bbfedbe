"""What a model computes otherwise for one pass, by the name of a `Request.setting`.

Nothing is copied: weights are exchanged while their layer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from rounddiag.proof.hypotheses.hypothesis import Need

_Scope: TypeAlias = Literal["tensor", "row", "none"]
"""What shares a scale: all of a tensor, or one row; `none` is not rounded."""

_LARGEST = {"float8": 448.0, "int8": 127.0}  # float8 is e4m3, as engines have it


@dataclass(frozen=True)
class EightBit:
    """Linear layers whose weights, and inputs, go through 8 bits; not the head's.

    Weights with one scale for all or for each output, inputs with one for all or for
    each token, scales from the largest value: what vLLM and SGLang compute with
    `fp8`, and compressed checkpoints with `dynamic` inputs.
    """

    kind: Literal["float8", "int8"]
    weights: _Scope
    inputs: _Scope

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:  # noqa: ANN401 of transformers
        """Run a model so for a while."""
        saved: dict[Any, Tensor] = {}

        def before(layer: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401 of torch
            for weight in _weights(layer):
                saved[weight] = weight.data
                weight.data = self.round(weight.data, self.weights)
            return (self.round(inputs[0], self.inputs), *inputs[1:])

        def after(layer: Any, inputs: Any, output: Any) -> None:  # noqa: ANN401 of torch
            del inputs, output
            for weight in _weights(layer):
                weight.data = saved.pop(weight)

        handles = []
        for layer in _layers(model):
            handles.append(layer.register_forward_pre_hook(before))
            handles.append(layer.register_forward_hook(after))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for weight, values in saved.items():  # of a layer that failed
                weight.data = values

    def round(self, values: Tensor, scope: _Scope) -> Tensor:
        """Round values to 8 bits and back."""
        if scope == "none":
            return values
        size = values.float()
        top = size.abs().amax(-1, keepdim=True) if scope == "row" else size.abs().amax()
        scale = (top / _LARGEST[self.kind]).clamp(min=1e-12)
        size = size / scale
        small = (
            size.to(torch.float8_e4m3fn).float()
            if self.kind == "float8"
            else size.round()
        )
        return (small * scale).to(values.dtype)


def _layers(model: Any) -> list[Any]:  # noqa: ANN401 of transformers
    """Return the layers that engines quantise: those of the language model."""
    head = model.get_output_embeddings()
    return [
        layer
        for name, layer in model.named_modules()
        if _weights(layer)
        and layer is not head
        and "vis" not in name
        and "lora_" not in name
    ]


def _weights(layer: Any) -> list[Any]:  # noqa: ANN401 of torch
    if isinstance(layer, torch.nn.Linear):
        return [layer.weight]
    experts = 3  # dimensions: experts, outputs, inputs
    return [
        matrix
        for matrix in layer.parameters(recurse=False)
        if matrix.ndim == experts
        and not isinstance(layer, torch.nn.modules.conv._ConvNd)  # noqa: SLF001 no other name
    ]


@contextmanager
def _exchange(values: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Give objects other attributes for a while."""
    saved = []
    try:
        for owner, name, value in values:
            saved.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)
        yield
    finally:
        for each in saved:
            setattr(*each)


def _rounded(values: Tensor) -> Tensor:
    return values.bfloat16().to(values.dtype)


def _round_frequencies(model: Any) -> AbstractContextManager[None]:  # noqa: ANN401 of transformers
    return _exchange(
        (module, "inv_freq", _rounded(module.inv_freq)) for module in _rotaries(model)
    )


def _rotaries(model: Any) -> list[Any]:  # noqa: ANN401 of transformers
    return [
        module
        for module in model.modules()
        if isinstance(getattr(module, "inv_freq", None), torch.Tensor)
    ]


def _routers(model: Any) -> list[Any]:  # noqa: ANN401 of transformers
    return [
        module
        for module in model.modules()
        if isinstance(getattr(module, "top_k", None), int) and hasattr(module, "weight")
    ]


def _route(**changes: Callable[[Any], Any]) -> Setting:
    return lambda model: _exchange(
        (router, name, change(getattr(router, name)))
        for router in _routers(model)
        for name, change in changes.items()
        if hasattr(router, name)
    )


@contextmanager
def _round_routers(model: Any) -> Iterator[None]:  # noqa: ANN401 of transformers
    """Let routers multiply in bfloat16, whatever the model is in."""
    weights = [router.weight for router in _routers(model)]

    def before(router: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # noqa: ANN401 of torch
        del router
        return (_rounded(inputs[0]), *inputs[1:])

    handles = [each.register_forward_pre_hook(before) for each in _routers(model)]
    try:
        with _exchange((weight, "data", _rounded(weight.data)) for weight in weights):
            yield
    finally:
        for handle in handles:
            handle.remove()


Setting: TypeAlias = Callable[[Any], AbstractContextManager[None]]
"""From a model to a context in which it computes otherwise."""

SETTINGS: dict[str, Setting] = {
    "rotary_bfloat16": _round_frequencies,
    "fp8_by_tensor": EightBit("float8", "tensor", "tensor"),
    "fp8_by_row": EightBit("float8", "row", "row"),
    "fp8_weights": EightBit("float8", "row", "none"),
    "int8_by_row": EightBit("int8", "row", "row"),
    "one_expert_fewer": _route(top_k=lambda number: max(number - 1, 1)),
    "one_expert_more": _route(top_k=lambda number: number + 1),
    "experts_not_normalised": _route(norm_topk_prob=lambda is_on: not is_on),
    "router_bfloat16": _round_routers,
}


# Of `layer_types` in configurations of transformers 5.24.
_WITH_STATE = {"linear_attention", "mamba", "conv", "hybrid"}


def model_abilities(model: Any) -> set[Need]:  # noqa: ANN401 of transformers
    """Return which settings a model has something for."""
    abilities: set[Need] = {"weights"}
    if _rotaries(model):
        abilities.add("rotary")
    if _routers(model):
        abilities.add("experts")
    layers = getattr(model.config.get_text_config(), "layer_types", None) or ()
    if _WITH_STATE & {*layers}:
        abilities.add("state")
    return abilities
