"""Passes whose keys and values are kept: the next one computes what differs only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from rounddiag.proof.trajectory import Request, Samples

LEAST = 16  # tokens in common: fewer save nothing
_MOST = 4  # passes: of two samples, and the last ones


@dataclass(frozen=True, eq=False)
class Pass:
    """What a pass read, its last hidden states, and the cache that it filled."""

    request: Request
    samples: Samples
    positions: Tensor
    hidden: Tensor
    cache: Any

    def common(self, request: Request, positions: Tensor, begins: list[int]) -> int:
        """Return how many first tokens of a request it has.

        `begins` are the first tokens of the request's pictures: one that is another
        picture, or that is cut, is not in common.
        """
        if len(self.positions) != len(positions):
            return 0
        ids = self.request.ids
        size = min(len(ids), len(request.ids))
        differs = ids[:size] != request.ids[:size]
        differs |= (self.positions[:, :size] != positions[:, :size]).any(0)
        if differs.any():
            size = int(differs.nonzero()[0, 0])
        mine = self.request.pictures
        for number, begin in enumerate(begins):
            if begin >= size:
                break
            is_same = mine[number : number + 1] == (request.pictures[number],)
            ends_inside = size < len(request.ids) and bool(
                (request.ids[begin : size + 1] == request.ids[begin]).all()
            )
            if not is_same or ends_inside:
                return begin
        return size


@dataclass(eq=False)
class KeptPasses:
    """The last passes of one model with one adapter, the newest first."""

    passes: list[Pass] = field(default_factory=list)

    def find(
        self, request: Request, samples: Samples, positions: Tensor, begins: list[int]
    ) -> tuple[int, Pass | None]:
        """Return how many first tokens a kept pass has in common, and that pass."""
        best: tuple[int, Pass | None] = LEAST - 1, None
        for earlier in self.passes:
            if earlier.samples is samples:
                size = earlier.common(request, positions, begins)
                best = (size, earlier) if size > best[0] else best
        if best[1] is not None:  # the one that was used last is kept longest
            self.passes.remove(best[1])
            self.passes.insert(0, best[1])
        return best

    def add(self, latest: Pass) -> None:
        """Keep a pass, and forget the one that was not used for longest."""
        self.passes = [latest, *self.passes[: _MOST - 1]]


def first_part(known: Any, size: int) -> Any:  # noqa: ANN401 of transformers
    """Return a cache with the first tokens of another, or none."""
    from transformers import DynamicCache

    cache = DynamicCache()
    for number, layer in enumerate(known.layers if size else ()):
        cache.update(layer.keys[:, :, :size], layer.values[:, :, :size], number)
    return cache


def rest_of(request: Request, begins: Sequence[int], size: int) -> Request:
    """Return a request without its first tokens and their pictures."""
    shown = sum(begin < size for begin in begins)
    return replace(
        request,
        ids=request.ids[size:],
        source=request.source[size:],
        is_scored=request.is_scored[size:],
        pictures=request.pictures[shown:],
        places=None,
        uncut=None,
    )


def can_resume(model: Any) -> bool:  # noqa: ANN401 of transformers
    """Return whether a model's state is keys and values of all tokens, and no more.

    Windows and recurrent layers forget tokens; Llama 3.2 Vision attends to pictures.
    """
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return layers == {"full_attention"} and model.config.model_type != "mllama"
