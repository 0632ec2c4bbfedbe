"""The pictures of a model of transformers: pixels, tokens, features, positions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rounddiag.errors import BatchError, LoadError
from rounddiag.proof.engines.pictures import draw, refuse_written, without_last_run
from rounddiag.proof.trajectory import Picture, Request, Samples, Trajectory
from rounddiag.vision import PatchScreenshot, Screenshot
from rounddiag.vision.image_tokens import LONGEST_GAP

# What the configurations of Qwen, GLM and Gemma call the tokens around a picture.
_MARKERS = (
    *("vision_start_token_id", "vision_end_token_id"),
    *("image_start_token_id", "image_end_token_id"),
    *("boi_token_index", "eoi_token_index"),
)
_LLAMA, _PIXTRAL = "mllama", "mistral3"


@dataclass(frozen=True, eq=False)
class _Pixels:
    """A picture as the processor gives it, and its size in tokens.

    Both caches know a picture by its `id`, for which it is kept here.
    """

    shot: Screenshot
    values: dict[str, Any]
    num_tokens: int


@dataclass(eq=False)
class Eyes:
    """The image processor and the vision encoder of a model.

    Attributes
    ----------
    processor: None of a text model, which has no pictures.
    pixels: What the processor gave, by picture: models with one processor share it.
    """

    name: str
    model: Any = field(repr=False)
    processor: Any = field(repr=False)
    pixels: dict[tuple[object, ...], _Pixels] = field(default_factory=dict, repr=False)
    _features: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False)
    _positions: dict[int, tuple[Trajectory | None, Tensor]] = field(
        default_factory=dict, repr=False
    )  # of whole samples

    @property
    def image_token(self) -> int:
        """The id that stands for pictures; -1, which no token has, in a text model."""
        config = self.model.config
        token = getattr(config, "image_token_id", None)
        token = getattr(config, "image_token_index", None) if token is None else token
        return -1 if token is None else int(token)

    @property
    def has_grids(self) -> bool:
        """Whether pictures have as many tokens as they are large."""
        return hasattr(self.model.base_model, "get_rope_index")

    def prepare(self, trajectory: Trajectory) -> Trajectory:
        """Find the image tokens of the pictures of a sample."""
        if self.image_token < 0 or self.processor is None:
            return trajectory
        refuse_written(trajectory, self.image_token)
        trajectory = without_last_run(trajectory, self.image_token)
        return replace(trajectory, spans=self._spans(trajectory), markers=self.markers)

    def _spans(self, trajectory: Trajectory) -> tuple[tuple[int, int], ...]:
        at = (trajectory.ids == self.image_token).nonzero()[:, 0]
        spans = []
        used = 0
        for index, shot in enumerate(trajectory.shots):
            if used == len(at):
                break  # pictures after the last token, such as those of a cut response
            need = self._process(shot, "seen").num_tokens
            have = at[used : used + need]
            gap = 1 if self.has_grids else LONGEST_GAP + 1
            if len(have) < need or (have.diff() > gap).any():
                room = _run_length(at[used:])
                raise BatchError.build(
                    expected=f"{need} image tokens for picture {index} of sample"
                    f" {trajectory.sample}, of {shot.size[0]} x {shot.size[1]} pixels",
                    found=f"{room}",
                    advice="The engines saw it at another size: save pictures as the"
                    " processor got them, with the processor's limits.",
                )
            spans.append((int(have[0]), int(have[-1]) + 1))
            used += need
        if used < len(at):
            raise BatchError.build(
                expected=f"pictures for all {len(at)} image tokens of sample"
                f" {trajectory.sample}",
                found=f"{len(trajectory.shots)} pictures with {used}",
                advice="Save the pictures of this sample, or choose samples that have"
                " them.",
            )
        return tuple(spans)

    def whole_sizes(self, request: Request, samples: Samples) -> list[int]:
        """Return how many image tokens the pictures of a request have by their size."""
        return [self.count_tokens(picture, samples) for picture in request.pictures]

    def sizes(self, request: Request, samples: Samples) -> list[int]:
        """Return how many image tokens each picture has among the ids of a request."""
        number = int(request.ids.eq(self.image_token).sum())
        whole = self.whole_sizes(request, samples)
        if number == sum(whole):
            return whole
        looks = {picture.look for picture in request.pictures}
        if number == len(whole) and looks <= {"pad"}:
            return [1] * number
        raise BatchError.build(
            expected=f"{sum(whole)} image tokens for {len(whole)} pictures",
            found=f"{number} in sample {request.sample}",
            advice="A hypothesis has to change ids and pictures together.",
        )

    def begins(self, request: Request, samples: Samples) -> list[int]:
        """Return the first token of each picture of a request."""
        if not request.pictures:
            return []
        sizes = torch.tensor(self.sizes(request, samples))
        at = request.ids.eq(self.image_token).nonzero()[:, 0]
        return at[sizes.cumsum(0) - sizes].tolist()

    def count_tokens(self, picture: Picture, samples: Samples) -> int:
        """Return how many image tokens a picture has."""
        return self._pixels_of(picture, samples).num_tokens

    def grids(self, request: Request, samples: Samples) -> Tensor:
        """Return the patches of each picture: in time, height and width."""
        shown = [self._pixels_of(picture, samples) for picture in request.pictures]
        return torch.cat([pixels.values["image_grid_thw"] for pixels in shown])

    def _pixels_of(self, picture: Picture, samples: Samples) -> _Pixels:
        look = "seen" if picture.look in {"pad", "zeros"} else picture.look
        trajectory = samples[picture.sample]
        limits = (0, picture.max_pixels)
        if picture.scale != 1:
            start, stop = trajectory.spans[picture.index]
            vision = self.model.config.vision_config
            side = self.processor.patch_size * vision.spatial_merge_size
            limits = (round((stop - start) * side**2 * picture.scale),) * 2
        return self._process(trajectory.shots[picture.index], look, limits)

    def grid_of(self, shot: Screenshot) -> tuple[int, tuple[int, ...]]:
        """Return how many image tokens a picture has, and its grid of patches.

        The grid is in time, height and width; empty where the model has none.
        """
        pixels = self._process(shot, "seen")
        grid = pixels.values.get("image_grid_thw")
        return pixels.num_tokens, () if grid is None else tuple(grid[0].tolist())

    def expand(self, ids: Sequence[int], shots: Sequence[Screenshot]) -> list[int]:
        """Repeat the one image token of each picture as often as the model has it."""
        expanded: list[int] = []
        sizes = iter([self.grid_of(shot)[0] for shot in shots])
        for token in ids:
            expanded += [token] * (next(sizes) if token == self.image_token else 1)
        return expanded

    @property
    def markers(self) -> frozenset[int]:
        """The ids of the tokens that open and close a picture."""
        values = (getattr(self.model.config, key, None) for key in _MARKERS)
        return frozenset(value for value in values if value is not None)

    def _process(
        self, shot: Screenshot, look: str, limits: tuple[int, int] = (0, 0)
    ) -> _Pixels:
        """Return the processor's values; `limits` are its fewest and most pixels."""
        key = (id(shot), look, limits)
        if key not in self.pixels:
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
            self.pixels[key] = _Pixels(shot, values, self._count(values))
        return self.pixels[key]

    def _options(self, limits: tuple[int, int]) -> dict[str, Any]:
        if "internvl" in self.model.config.model_type:
            return {"crop_to_patches": True}
        size = dict(self.processor.size) if any(limits) else {}
        names = ("shortest_edge", "longest_edge")
        size |= {name: n for name, n in zip(names, limits, strict=True) if n}
        return {"size": size} if size else {}

    def _count(self, values: dict[str, Any]) -> int:
        config = self.model.config
        if config.model_type == _LLAMA:
            return 1
        grid = values.get("image_grid_thw")
        if grid is not None:
            merge = getattr(config.vision_config, "spatial_merge_size", 2)
            return int(grid.prod()) // merge**2
        vision, pixels = config.vision_config, values["pixel_values"]
        if "image_sizes" in values and hasattr(config, "spatial_merge_size"):  # Pixtral
            side = vision.patch_size * config.spatial_merge_size
            return int((torch.as_tensor(values["image_sizes"][0]) // side).prod())
        if hasattr(config, "scale_factor"):  # Idefics3 and SmolVLM: a run for each tile
            side = vision.image_size // vision.patch_size // config.scale_factor
            return int(side**2 * pixels.shape[1])
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
        return int(length) * len(pixels)

    def arguments(self, request: Request, samples: Samples) -> dict[str, Any]:
        """Return what the model is called with, for one request."""
        config = self.model.config
        if config.model_type == _LLAMA:
            pixels = [self._pixels_of(each, samples) for each in request.pictures]
            shown = [each.values for each in pixels]
            tiles = config.vision_config.max_num_tiles
            inputs = _cross_attention(request, self.image_token, shown, tiles)
            device = self.model.device
            return {name: values.to(device) for name, values in inputs.items()}
        sizes = self.sizes(request, samples)
        encoded = [
            self._encode(picture, size, request.setting, samples)
            for picture, size in zip(request.pictures, sizes, strict=True)
        ]
        features = tuple(of_picture for of_picture, _ in encoded)
        # Some families take one entry for each picture, others all in one.
        is_split = self.has_grids or config.model_type == _PIXTRAL
        outputs = SimpleNamespace(
            pooler_output=features if is_split else torch.cat(features)
        )
        levels = getattr(config.vision_config, "deepstack_visual_indexes", None) or ()
        if levels:
            outputs.deepstack_features = [
                tuple(_level(picture, level) for picture in encoded)
                for level in range(len(levels))
            ]
        arguments: dict[str, Any] = {"mm_encoder_outputs": {"image": outputs}}
        accepted = inspect.signature(type(self.model.base_model).forward).parameters
        types = request.ids.eq(self.image_token).int()[None]
        for name in ("mm_token_type_ids", "token_type_ids"):
            if name in accepted:
                return arguments | {name: types.to(self.model.device)}
        return arguments

    def _encode(
        self, picture: Picture, size: int, setting: str, samples: Samples
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
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

    def positions(self, request: Request, samples: Samples) -> Tensor:
        """Return the positions of a request, shape (1 or 3, length)."""
        if request.uncut is not None:
            return self.positions(request.uncut, samples)[..., : len(request.ids)]
        own = self._own_positions(request, samples)
        if request.places is None:
            return own
        base = Request.of_sample(samples[request.sample])
        return request.places(own, self._own_positions(base, samples))

    def _own_positions(self, request: Request, samples: Samples) -> Tensor:
        if not self.has_grids:
            return torch.arange(len(request.ids))[None]
        whole = samples[request.sample]
        size = len(request.ids)
        if not torch.equal(request.ids, whole.ids[:size]):
            return self._compute_positions(request, samples)
        known, positions = self._positions.get(request.sample, (None, torch.empty(0)))
        if known is not whole:  # no later token changes them
            positions = self._compute_positions(Request.of_sample(whole), samples)
            self._positions[request.sample] = whole, positions
        return positions[:, :size]

    def _compute_positions(self, request: Request, samples: Samples) -> Tensor:
        sizes = self.sizes(request, samples)
        if not sizes or sizes != self.whole_sizes(request, samples):
            return torch.arange(len(request.ids)).expand(3, -1)
        types = request.ids.eq(self.image_token).int()
        grids = self.grids(request, samples)
        every, _ = self.model.base_model.get_rope_index(
            input_ids=request.ids[None],
            mm_token_type_ids=types[None],
            image_grid_thw=grids,
            attention_mask=None,
        )
        positions: Tensor = every[:, 0]
        is_wide = int(types.sum()) > len(grids)  # some picture has two tokens or more
        if is_wide and bool((positions[1] == positions[2]).all()):
            raise BatchError.build(
                expected="positions with unequal axes inside of pictures",
                found="equal ones",
                advice="Report this with the version of transformers.",
            )
        return positions

    def forget(self) -> None:
        """Free the features of pictures."""
        self._features.clear()

    def forget_looks(self, kind: str) -> None:
        """Free the pixels of pictures that were shown so, and all features."""
        for key in [key for key in self.pixels if str(key[1]).startswith(kind)]:
            del self.pixels[key]
        self.forget()


def _level(encoded: tuple[Tensor, tuple[Tensor, ...]], level: int) -> Tensor:
    features, deep = encoded
    return deep[level] if deep else torch.zeros_like(features)


def _run_length(at: Tensor) -> int:
    if not len(at):
        return 0
    breaks = (at.diff() != 1).nonzero()
    return int(breaks[0, 0]) + 1 if len(breaks) else len(at)


def _cross_attention(
    request: Request, token: int, shown: Sequence[Mapping[str, Any]], max_tiles: int
) -> dict[str, Tensor]:
    """Return pixels and masks for Llama 3.2 Vision, as `MllamaProcessor` builds them.

    Its text attends to pictures; their tokens have no features.
    """
    from transformers.models.mllama.processing_mllama import (
        convert_sparse_cross_attention_mask_to_dense,
        get_cross_attention_token_mask,
    )

    looks = {picture.look for picture in request.pictures}
    if looks == {"pad"}:
        return {}
    if looks & {"pad", "zeros"}:
        raise BatchError.build(
            expected="pictures of which all or none have pixels",
            found="other ones",
            advice="This architecture attends to pictures outside of the text.",
        )
    ids = request.ids.tolist()
    mask = convert_sparse_cross_attention_mask_to_dense(
        [get_cross_attention_token_mask(ids, token)],
        [[values["num_tiles"][0][0] for values in shown]],
        max_tiles,
        len(ids),
    )
    names = ("pixel_values", "aspect_ratio_ids", "aspect_ratio_mask")
    inputs = {name: torch.cat([each[name] for each in shown], 1) for name in names}
    return {**inputs, "cross_attention_mask": torch.from_numpy(mask)}
