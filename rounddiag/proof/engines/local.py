"""Scores with transformers: text models, and vision-language models with pictures."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.errors import BatchError, LoadError
from rounddiag.proof.chat import Chat
from rounddiag.proof.engines.adapters import Adapter
from rounddiag.proof.engines.engine import Readout, is_out_of_memory, memory_error
from rounddiag.proof.engines.eyes import Eyes
from rounddiag.proof.engines.loading import load_model
from rounddiag.proof.engines.prefix import (
    KeptPasses,
    Pass,
    can_resume,
    first_part,
    rest_of,
)
from rounddiag.proof.engines.settings import SETTINGS, model_abilities
from rounddiag.proof.hypotheses.hypothesis import Need
from rounddiag.proof.hypotheses.processor import Seen
from rounddiag.proof.trajectory import PACKED, Picture, Request, Samples, Trajectory

Layers: TypeAlias = dict[int, "tuple[Tensor, Tensor]"]
"""Keys and values of each layer, of shape (1, heads, length, width)."""


@dataclass(eq=False)
class LocalEngine:
    """A model of transformers in this process.

    Attributes
    ----------
    name: The folder or name of the model.
    model: As `from_pretrained` gives it.
    processor: The image processor of a vision-language model.
    adapter: Added to the model in every pass.
    eyes: Its pictures.
    """

    name: str
    model: Any = field(repr=False)
    processor: Any = field(repr=False)
    trust_remote_code: bool = False
    adapter: Adapter | None = None
    _passes: KeptPasses = field(default_factory=KeptPasses, repr=False)

    def __post_init__(self) -> None:
        self.eyes = Eyes(self.name, self.model, self.processor)

    @classmethod
    def open(
        cls,
        name: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        trust_remote_code: bool = False,
        attention: str | None = None,
    ) -> LocalEngine:
        """Load a model and its image processor."""
        model, processor = load_model(
            name,
            device=device,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            attention=attention,
        )
        return cls(name, model, processor, trust_remote_code)

    @cached_property
    def chat(self) -> Chat | None:
        """Its tokenizer, with a chat template."""
        return Chat.open(self.name, trust_remote_code=self.trust_remote_code)

    @cached_property
    def abilities(self) -> frozenset[Need]:
        """What hypotheses may ask of it."""
        seen: set[Need] = {"logits", "positions"}
        if self.processor is not None:
            seen |= {"pictures", "features"}
            if self.eyes.has_grids:
                seen.add("resolution")  # as many image tokens as there are pixels
        if self.chat is not None:
            seen.add("chat")
        return frozenset(seen | model_abilities(self.model))

    @property
    def dtype(self) -> str:
        """The dtype of its weights."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def vocabulary(self) -> int:
        """The number of ids that have an embedding."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    def beside(self, name: str | None = None, **options: Any) -> LocalEngine:  # noqa: ANN401 of `open`
        """Load the same model again, with another dtype or from another folder."""
        engine = LocalEngine.open(
            name or self.name,
            device=str(self.model.device),
            trust_remote_code=self.trust_remote_code,
            **options,
        )
        if name is not None and engine.vocabulary != self.vocabulary:
            raise LoadError.build(
                file=name,
                expected=f"a model of {self.vocabulary} ids, as {self.name}",
                found=f"{engine.vocabulary}",
                advice="Pass checkpoints of the same model.",
            )
        engine.eyes.pixels = self.eyes.pixels  # the same processor
        return engine

    def adapted(self, adapter: Adapter | None) -> LocalEngine:
        """Return the same model with another adapter, or none; nothing is copied."""
        engine = replace(self, adapter=adapter, _passes=KeptPasses())
        engine.eyes.pixels = self.eyes.pixels
        return engine

    def with_eyes_of(self, other: LocalEngine) -> LocalEngine:
        """Return the same model with pictures that another one has encoded."""
        engine = replace(self, _passes=KeptPasses())
        engine.eyes = other.eyes
        return engine

    def prepare(self, trajectory: Trajectory) -> Trajectory:
        """Check the ids of a sample, and find the image tokens of its pictures."""
        ids = trajectory.ids
        unknown = ids[(ids < 0) | (ids >= self.vocabulary)]
        if len(unknown):
            raise BatchError.build(
                expected=f"ids from 0 to {self.vocabulary - 1}, as {self.name} has",
                found=f"id {int(unknown[0])} in sample {trajectory.sample}",
                advice="Pass the model that the batch was sampled with.",
            )
        return self.eyes.prepare(trajectory)

    def count_tokens(self, picture: Picture, samples: Samples) -> int:
        """Return how many image tokens a picture has."""
        return self.eyes.count_tokens(picture, samples)

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        return [self.read(request, samples).log_probs() for request in requests]

    @torch.inference_mode()
    def read(
        self, request: Request, samples: Samples, filled_by: LocalEngine | None = None
    ) -> Readout:
        """Run one pass; return what logits follow from.

        The keys and values of the first `request.num_cached` tokens are those of
        `filled_by`.
        """
        cache = None
        if filled_by is not None:
            filled: Layers = {}
            with filled_by.adapted_model():
                filled_by._run(request, samples, _cache(filled))  # noqa: SLF001 of this class
            cache = _cache({}, filled, request.num_cached)
        change = SETTINGS.get(request.setting, nullcontext)
        with change(self.model), self.adapted_model():
            return self._readout(request, samples, self._run(request, samples, cache))

    def _readout(self, request: Request, samples: Samples, hidden: Tensor) -> Readout:
        at = request.wanted
        rounds = samples[request.sample].rounds
        begin = np.array([start for start, _ in rounds], np.int64)
        source = request.source[at].numpy()
        mine = begin[np.searchsorted(begin, source, side="right") - 1]
        shift = at.numpy() - source  # where the round begins in these ids
        seen = Seen(
            request.ids.to(self.model.device),
            at,
            torch.from_numpy(np.maximum(mine + shift, 0)),
            int(self.model.get_output_embeddings().weight.shape[0]),
        )
        return Readout(hidden[at - 1], self._head, request.ids[at], seen)

    def _head(self, hidden: Tensor) -> Tensor:
        with self.adapted_model():
            logits = self.model.get_output_embeddings()(hidden)
        config = self.model.config.get_text_config()
        cap = getattr(config, "final_logit_softcapping", None)
        logits = logits if cap is None else torch.tanh(logits / cap) * cap
        return logits.float()

    def _run(self, request: Request, samples: Samples, cache: Any = None) -> Tensor:  # noqa: ANN401 of transformers
        """Run a pass; once more without the features of pictures if memory is short."""
        for is_last in (False, True):
            try:
                return self._hidden(request, samples, cache)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if is_last:
                    work = f"a pass of {len(request.ids):,} tokens"
                    raise memory_error(work) from error
            self.forget()
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
        raise AssertionError

    def _hidden(self, request: Request, samples: Samples, cache: Any) -> Tensor:  # noqa: ANN401 of transformers
        """Return the last hidden states; of tokens that a kept pass has, its own."""
        positions = self.eyes.positions(request, samples)
        if cache is not None or request.setting or not self._can_resume(request):
            return self._forward(request, samples, positions, cache)
        begins = self.eyes.begins(request, samples)
        size, known = self._passes.find(request, samples, positions, begins)
        if known is None:
            cache = first_part(None, 0)
            hidden = self._forward(request, samples, positions, cache)
        elif size == len(request.ids):
            return known.hidden[:size]
        else:
            cache = first_part(known.cache, size)
            rest = rest_of(request, begins, size)
            hidden = self._forward(rest, samples, positions[..., size:], cache)
            hidden = torch.cat([known.hidden[:size], hidden])
        self._passes.add(Pass(request, samples, positions, hidden, cache))
        return hidden

    def _forward(
        self,
        request: Request,
        samples: Samples,
        positions: Tensor,
        cache: Any,  # noqa: ANN401 of transformers
    ) -> Tensor:
        device = self.model.device
        ids = request.ids[None].to(device)
        before = 0 if cache is None else cache.get_seq_length()
        arguments: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": ids.new_ones(1, before + len(request.ids)),
            "use_cache": cache is not None,
        }
        if cache is not None:
            # Its name before transformers 5.24 was the longer one.
            names = inspect.signature(type(self.model.base_model).forward).parameters
            arguments["cache" if "cache" in names else "past_key_values"] = cache
        if request.setting == PACKED:
            # transformers 5.24 separates rows by their positions only without a mask
            # and without a cache; a state of linear attention goes on even so.
            del arguments["attention_mask"]
        places = positions if len(positions) == 1 else positions[:, None]
        arguments["position_ids"] = places.to(device)
        if request.pictures and self.processor is not None:
            arguments |= self.eyes.arguments(request, samples)
        return self.model.base_model(**arguments).last_hidden_state[0]

    def _can_resume(self, request: Request) -> bool:
        has_grids = self.eyes.has_grids
        return (has_grids or not request.pictures) and can_resume(self.model)

    def forget(self) -> None:
        """Free the features of pictures, and passes that were kept."""
        self.eyes.forget()
        self._passes.passes.clear()

    def adapted_model(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its adapter."""
        return nullcontext() if self.adapter is None else self.adapter.on()


def _cache(
    filled: Layers, earlier: Mapping[int, Any] | None = None, size: int = 0
) -> Any:  # noqa: ANN401 of transformers
    """Return a cache that notes the keys and values of each layer of one pass.

    The first `size` of them are taken of `earlier`.
    """
    from transformers import DynamicCache

    cache: Any = DynamicCache()

    def update(keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> Any:  # noqa: ANN401 of the base
        filled[layer] = keys, values
        if earlier is None:
            return keys, values
        pairs = zip(earlier[layer], (keys, values), strict=True)
        return tuple(
            torch.cat([old[:, :, :size].to(new), new[:, :, size:]], 2)
            for old, new in pairs
        )

    cache.update = update
    return cache
