"""Scores with transformers: text models, and vision-language models with pictures."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.errors import BatchError, LoadError
from rounddiag.proof.chat import Chat
from rounddiag.proof.engines import llama_vision
from rounddiag.proof.engines.adapters import Adapter
from rounddiag.proof.engines.engine import (
    Readout,
    is_out_of_memory,
    memory_error,
)
from rounddiag.proof.engines.loading import load_model
from rounddiag.proof.engines.pictures import (
    draw,
    refuse_written,
    without_last_run,
)
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
from rounddiag.proof.trajectory import Picture, Request, Samples, Trajectory
from rounddiag.vision import PatchScreenshot, Screenshot

# What the configurations of Qwen, GLM and Gemma call the tokens around a picture.
_MARKERS = (
    *("vision_start_token_id", "vision_end_token_id"),
    *("image_start_token_id", "image_end_token_id"),
    *("boi_token_index", "eoi_token_index"),
)

Layers: TypeAlias = dict[int, "tuple[Tensor, Tensor]"]
"""Keys and values of each layer, of shape (1, heads, length, width)."""


@dataclass(frozen=True, eq=False)
class _Pixels:
    """A picture as the processor gives it, and its size in tokens.

    Both caches know a picture by its `id`, for which it is kept here.
    """

    shot: Screenshot
    values: dict[str, Any]
    num_tokens: int


@dataclass(eq=False)
class LocalEngine:
    """A model of transformers in this process.

    Attributes
    ----------
    name: The folder or name of the model.
    model: As `from_pretrained` gives it.
    processor: The image processor of a vision-language model.
    adapter: Added to the model in every pass.
    """

    name: str
    model: Any = field(repr=False)
    processor: Any = field(repr=False)
    trust_remote_code: bool = False
    adapter: Adapter | None = None
    _pixels: dict[tuple[object, ...], _Pixels] = field(default_factory=dict, repr=False)
    _features: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False)
    _positions: dict[int, tuple[Trajectory | None, Tensor]] = field(
        default_factory=dict, repr=False
    )
    _passes: KeptPasses = field(default_factory=KeptPasses, repr=False)

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
            if hasattr(self.model.model, "get_rope_index"):
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

    @property
    def image_token(self) -> int | None:
        """The id that stands for pictures."""
        config = self.model.config
        found = getattr(config, "image_token_id", None)
        found = getattr(config, "image_token_index", None) if found is None else found
        return None if found is None else int(found)

    @property
    def _pad(self) -> int:
        """The id of image tokens; -1, which no token has, in a text model."""
        return -1 if self.image_token is None else self.image_token

    def beside(self, name: str | None = None, **options: Any) -> LocalEngine:  # noqa: ANN401 of `open`
        """Load the same model again, with another dtype or from another folder."""
        found = LocalEngine.open(
            name or self.name,
            device=str(self.model.device),
            trust_remote_code=self.trust_remote_code,
            **options,
        )
        if name is not None and found.vocabulary != self.vocabulary:
            raise LoadError.build(
                file=name,
                expected=f"a model of {self.vocabulary} ids, as {self.name}",
                found=f"{found.vocabulary}",
                advice="Pass checkpoints of the same model.",
            )
        found._pixels = self._pixels  # noqa: SLF001 the same processor
        return found

    def adapted(self, adapter: Adapter | None) -> LocalEngine:
        """Return the same model with another adapter, or none; nothing is copied."""
        return replace(self, adapter=adapter, _features={}, _passes=KeptPasses())

    def prepare(self, one: Trajectory) -> Trajectory:
        """Check the ids of a sample, and find the image tokens of its pictures."""
        highest = int(one.ids.max()) if len(one.ids) else 0
        if highest >= self.vocabulary:
            raise BatchError.build(
                expected=f"ids below {self.vocabulary}, the vocabulary of {self.name}",
                found=f"id {highest} in sample {one.sample}",
                advice="Pass the model that the batch was sampled with.",
            )
        token = self.image_token
        if token is None or self.processor is None:
            return one
        refuse_written(one, token)
        one = without_last_run(one, token)
        at = (one.ids == token).nonzero()[:, 0]
        markers = {
            value
            for key in _MARKERS
            if (value := getattr(self.model.config, key, None)) is not None
        }
        spans = self._spans(one, at)
        return replace(one, spans=spans, markers=frozenset(markers))

    def _spans(self, one: Trajectory, at: Tensor) -> tuple[tuple[int, int], ...]:
        """Give each picture its image tokens, in order."""
        spans = []
        used = 0
        for index, shot in enumerate(one.shots):
            if used == len(at):
                break  # pictures after the last token, such as those of a cut response
            need = self._process(one, index, "seen").num_tokens
            have = at[used : used + need]
            is_run = len(have) == need and int(have[-1] - have[0]) == need - 1
            if not is_run:
                room = _run_length(at[used:])
                raise BatchError.build(
                    expected=f"{need} image tokens for picture {index} of sample"
                    f" {one.sample}, of {shot.size[0]} x {shot.size[1]} pixels",
                    found=f"{room}",
                    advice="The engines saw it at another size: save pictures as the"
                    " processor got them, with the processor's limits.",
                )
            spans.append((int(have[0]), int(have[-1]) + 1))
            used += need
        if used < len(at):
            raise BatchError.build(
                expected=f"pictures for all {len(at)} image tokens of sample"
                f" {one.sample}",
                found=f"{len(one.shots)} pictures with {used}",
                advice="Save the pictures of this sample, or choose samples that have"
                " them.",
            )
        return tuple(spans)

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        return [self.read(request, samples).log_probs() for request in requests]

    @torch.inference_mode()
    def read(
        self, request: Request, samples: Samples, filled_by: LocalEngine | None = None
    ) -> Readout:
        """Run one pass; return what logits follow from.

        The keys and values of the first `request.kept` tokens are those of `filled_by`.
        """
        one = samples[request.sample]
        at = request.wanted
        cache = None
        if filled_by is not None:
            filled: Layers = {}
            with filled_by.adapted_model():
                filled_by._run(request, samples, _cache(filled))  # noqa: SLF001 of this class
            cache = _cache({}, filled, request.kept)
        change = SETTINGS.get(request.setting, _unchanged)
        with change(self.model), self.adapted_model():
            hidden = self._run(request, samples, cache)[at - 1]
        begin = np.array([start for start, _ in one.rounds], np.int64)
        source = request.source[at].numpy()
        mine = begin[np.searchsorted(begin, source, side="right") - 1]
        shift = at.numpy() - source  # where the round begins in these ids
        seen = Seen(
            request.ids.to(self.model.device),
            at,
            torch.from_numpy(np.maximum(mine + shift, 0)),
            int(self.model.get_output_embeddings().weight.shape[0]),
        )
        return Readout(hidden, self._head, request.ids[at], seen)

    def _head(self, hidden: Tensor) -> Tensor:
        with self.adapted_model():
            logits = self.model.get_output_embeddings()(hidden)
        config = self.model.config.get_text_config()
        cap = getattr(config, "final_logit_softcapping", None)
        logits = logits if cap is None else torch.tanh(logits / cap) * cap
        return logits.float()  # type: ignore[no-any-return]

    def _run(self, request: Request, samples: Samples, cache: Any = None) -> Tensor:  # noqa: ANN401 of transformers
        """Run a pass; once more without the features of pictures if memory is short."""
        for is_last in (False, True):
            try:
                return self._hidden(request, samples, cache)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if is_last:
                    what = f"a pass of {len(request.ids):,} tokens"
                    raise memory_error(what) from error
            self.forget()
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
        raise AssertionError

    def _hidden(self, request: Request, samples: Samples, cache: Any) -> Tensor:  # noqa: ANN401 of transformers
        """Return the last hidden states; of tokens that a kept pass has, its own."""
        positions = self.positions(request, samples)
        if cache is not None or request.setting or not self._can_resume(request):
            return self._forward(request, samples, positions, cache)
        begins = self._begins(request, samples)
        size, known = self._passes.find(request, samples, positions, begins)
        if known is None:
            cache = first_part(None, 0)
            hidden = self._forward(request, samples, positions, cache)
        elif size == len(request.ids):
            return known.hidden[:size]
        else:
            cache = first_part(known.cache, size)
            rest = rest_of(request, begins, size)
            hidden = torch.cat(
                [
                    known.hidden[:size],
                    self._forward(rest, samples, positions[:, size:], cache),
                ]
            )
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
        rows = positions if len(positions) == 1 else positions[:, None]
        arguments["position_ids"] = rows.to(device)
        if request.pictures and self.processor is not None:
            arguments |= self._pictures(request, samples)
        return self.model.base_model(**arguments).last_hidden_state[0]  # type: ignore[no-any-return]

    def _can_resume(self, request: Request) -> bool:
        by_picture = hasattr(self.model.base_model, "get_rope_index")
        return (by_picture or not request.pictures) and can_resume(self.model)

    def _begins(self, request: Request, samples: Samples) -> list[int]:
        """Return the first token of each picture of a request."""
        if not request.pictures:
            return []
        sizes = np.array(self._sizes(request, samples))
        at = request.ids.eq(self._pad).nonzero()[:, 0]
        return at[sizes.cumsum() - sizes].tolist()

    def positions(self, request: Request, samples: Samples) -> Tensor:
        """Return the positions of a request, shape (1 or 3, length)."""
        if request.uncut is not None:
            return self.positions(request.uncut, samples)[..., : len(request.ids)]
        own = self._default_positions(request, samples)
        if request.places is None:
            return own
        base = Request.of_sample(samples[request.sample])
        return request.places(own, self._default_positions(base, samples))

    def _default_positions(self, request: Request, samples: Samples) -> Tensor:
        body: Any = getattr(self.model, "model", None)
        if not hasattr(body, "get_rope_index"):
            return torch.arange(len(request.ids))[None]
        whole = samples[request.sample]
        size = len(request.ids)
        if not torch.equal(request.ids, whole.ids[:size]):
            return self._compute_positions(request, samples, body)
        known, found = self._positions.get(request.sample, (None, torch.empty(0)))
        if known is not whole:  # no later token changes them
            base = Request.of_sample(whole)
            found = self._compute_positions(base, samples, body)
            self._positions[request.sample] = whole, found
        return found[:, :size]

    def _compute_positions(
        self,
        request: Request,
        samples: Samples,
        body: Any,  # noqa: ANN401 of transformers
    ) -> Tensor:
        types = request.ids.eq(self._pad).int()
        sizes = self._sizes(request, samples)
        if len(request.pictures) == 0 or sizes != self._whole_sizes(request, samples):
            return torch.arange(len(request.ids)).expand(3, -1)
        shown = [self._pixels_of(one, samples) for one in request.pictures]
        grids = torch.cat([one.values["image_grid_thw"] for one in shown])
        found, _ = body.get_rope_index(
            input_ids=request.ids[None],
            mm_token_type_ids=types[None],
            image_grid_thw=grids,
            attention_mask=None,
        )
        positions: Tensor = found[:, 0]
        is_wide = int(types.sum()) > len(grids)  # some picture has two tokens or more
        if is_wide and bool((positions[1] == positions[2]).all()):
            raise BatchError.build(
                expected="positions with unequal axes inside of pictures",
                found="equal ones",
                advice="Report this with the version of transformers.",
            )
        return positions

    def _whole_sizes(self, request: Request, samples: Samples) -> list[int]:
        return [self._pixels_of(one, samples).num_tokens for one in request.pictures]

    def _sizes(self, request: Request, samples: Samples) -> list[int]:
        """Return how many image tokens each picture of a request has."""
        number = int(request.ids.eq(self._pad).sum())
        whole = self._whole_sizes(request, samples)
        if number == sum(whole):
            return whole
        if number == len(whole) and all(one.look == "pad" for one in request.pictures):
            return [1] * number
        raise BatchError.build(
            expected=f"{sum(whole)} image tokens for {len(whole)} pictures",
            found=f"{number} in sample {request.sample}",
            advice="A hypothesis has to change ids and pictures together.",
        )

    def count_tokens(self, picture: Picture, samples: Samples) -> int:
        """Return how many image tokens a picture has."""
        return self._pixels_of(picture, samples).num_tokens

    def _pixels_of(self, picture: Picture, samples: Samples) -> _Pixels:
        look = "seen" if picture.look in {"pad", "zeros"} else picture.look
        one = samples[picture.sample]
        limits = (0, picture.most)
        if picture.scale != 1:
            start, stop = one.spans[picture.index]
            vision = self.model.config.vision_config
            side = self.processor.patch_size * vision.spatial_merge_size
            limits = (round((stop - start) * side**2 * picture.scale),) * 2
        return self._process(one, picture.index, look, limits)

    def _process(
        self, one: Trajectory, index: int, look: str, limits: tuple[int, int] = (0, 0)
    ) -> _Pixels:
        """Return the processor's values; `limits` are its fewest and most pixels."""
        shot = one.shots[index]
        key = (id(shot), look, limits)
        if key not in self._pixels:
            is_seen = look == "seen" and not any(limits)
            if isinstance(shot, PatchScreenshot) and is_seen:
                values = {
                    "pixel_values": shot.patches().float(),
                    "image_grid_thw": torch.tensor([shot.grid_thw]),
                }
            else:
                image = draw(shot, look)
                options = self._options(limits)
                values = dict(
                    self.processor(images=[image], return_tensors="pt", **options)
                )
            self._pixels[key] = _Pixels(shot, values, self._count(values))
        return self._pixels[key]

    def _options(self, limits: tuple[int, int]) -> dict[str, Any]:
        """Return how the processor is called."""
        if "internvl" in self.model.config.model_type:
            return {"crop_to_patches": True}
        size = dict(self.processor.size) if any(limits) else {}
        names = ("shortest_edge", "longest_edge")
        size |= {name: n for name, n in zip(names, limits, strict=True) if n}
        return {"size": size} if size else {}

    def _count(self, values: dict[str, Any]) -> int:
        """Return how many image tokens a picture has."""
        if self.model.config.model_type == llama_vision.MODEL_TYPE:
            return 1
        grid = values.get("image_grid_thw")
        if grid is not None:
            merge = getattr(self.model.config.vision_config, "spatial_merge_size", 2)
            return int(grid.prod()) // merge**2
        config = self.model.config
        length = getattr(config, "image_seq_length", None) or getattr(
            config, "mm_tokens_per_image", None
        )
        if length is None:
            raise LoadError.build(
                file=self.name,
                expected="a model whose image tokens can be counted",
                found=f"one of type {config.model_type!r}",
                advice="Pass a function that scores: see `rounddiag.prove`.",
            )
        return int(length) * len(values["pixel_values"])

    def _pictures(self, request: Request, samples: Samples) -> dict[str, Any]:
        config = self.model.config
        if config.model_type == llama_vision.MODEL_TYPE:
            shown = [self._pixels_of(one, samples).values for one in request.pictures]
            tiles = config.vision_config.max_num_tiles
            found = llama_vision.cross_attention(request, self._pad, shown, tiles)
            return {name: one.to(self.model.device) for name, one in found.items()}
        sizes = self._sizes(request, samples)
        encoded = [
            self._encode(picture, size, request.setting, samples)
            for picture, size in zip(request.pictures, sizes, strict=True)
        ]
        features = tuple(one[0] for one in encoded)
        # Families with grids take one entry for each picture, others all in one.
        by_picture = hasattr(self.model.model, "get_rope_index")
        outputs = SimpleNamespace(
            pooler_output=features if by_picture else torch.cat(features)
        )
        eyes = config.vision_config
        levels = len(getattr(eyes, "deepstack_visual_indexes", None) or ())
        if levels:
            outputs.deepstack_features = [
                tuple(_level(one, level) for one in encoded) for level in range(levels)
            ]
        arguments: dict[str, Any] = {"mm_encoder_outputs": {"image": outputs}}
        accepted = inspect.signature(type(self.model.model).forward).parameters
        types = request.ids.eq(self._pad).int()[None].to(self.model.device)
        if "mm_token_type_ids" in accepted:
            arguments["mm_token_type_ids"] = types
        elif "token_type_ids" in accepted:
            arguments["token_type_ids"] = types
        return arguments

    def _encode(
        self, picture: Picture, size: int, setting: str, samples: Samples
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a picture's features and those of deeper levels."""
        if picture.look in {"pad", "zeros"}:
            token = torch.tensor([self.image_token], device=self.model.device)
            embedded = self.model.get_input_embeddings()(token)
            if picture.look == "zeros":
                embedded = torch.zeros_like(embedded)
            return embedded.expand(size, -1), ()
        pixels = self._pixels_of(picture, samples)
        key = (id(pixels), setting == "rotary_bfloat16")
        if key not in self._features:
            values = {
                name: value.to(self.model.device)
                for name, value in pixels.values.items()
            }
            out = self.model.get_image_features(**values, return_dict=True)
            pooled = out.pooler_output
            pooled = pooled[0] if isinstance(pooled, tuple | list) else pooled
            deep = tuple(
                level[0] if isinstance(level, tuple | list) else level
                for level in getattr(out, "deepstack_features", None) or ()
            )
            self._features[key] = (pooled.reshape(-1, pooled.shape[-1]), deep)
        features: tuple[Tensor, tuple[Tensor, ...]] = self._features[key]
        if len(features[0]) != size:
            raise BatchError.build(
                expected=f"{size} features for picture {picture.index} of sample"
                f" {picture.sample}",
                found=f"{len(features[0])}",
                advice="Pass the model that the batch was sampled with.",
            )
        return features

    def forget(self) -> None:
        """Free the features of pictures, and passes that were kept."""
        self._features.clear()
        self._passes.passes.clear()

    def adapted_model(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its adapter."""
        return nullcontext() if self.adapter is None else self.adapter.on(self.model)


def _unchanged(model: Any) -> AbstractContextManager[None]:  # noqa: ANN401 of transformers
    del model
    return nullcontext()


def _cache(found: Layers, kept: Mapping[int, Any] | None = None, size: int = 0) -> Any:  # noqa: ANN401 of transformers
    """Return a cache that notes the keys and values of each layer of one pass.

    The first `size` of them are taken of `kept`.
    """
    from transformers import DynamicCache

    cache: Any = DynamicCache()

    def update(keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> Any:  # noqa: ANN401 of the base
        found[layer] = keys, values
        if kept is None:
            return keys, values
        pairs = zip(kept[layer], (keys, values), strict=True)
        return tuple(
            torch.cat([old[:, :, :size].to(new), new[:, :, size:]], 2)
            for old, new in pairs
        )

    cache.update = update
    return cache


def _level(found: tuple[Tensor, tuple[Tensor, ...]], level: int) -> Tensor:
    features, deep = found
    return deep[level] if deep else torch.zeros_like(features)


def _run_length(at: Tensor) -> int:
    """Return how many indices follow each other from the first on."""
    if not len(at):
        return 0
    breaks = (at.diff() != 1).nonzero()
    return int(breaks[0, 0]) + 1 if len(breaks) else len(at)
