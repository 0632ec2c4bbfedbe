"""The positions of a request, as a model of transformers gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rounddiag.errors import BatchError
from rounddiag.proof.engines.eyes import Eyes
from rounddiag.proof.trajectory import Request, Samples, Trajectory


@dataclass(eq=False)
class Positions:
    """Computes positions; those of whole samples are kept."""

    model: Any = field(repr=False)
    eyes: Eyes
    _known: dict[int, tuple[Trajectory | None, Tensor]] = field(
        default_factory=dict, repr=False
    )

    def of(self, request: Request, samples: Samples) -> Tensor:
        """Return the positions of a request, shape (1 or 3, length)."""
        if request.uncut is not None:
            return self.of(request.uncut, samples)[..., : len(request.ids)]
        own = self._default(request, samples)
        if request.places is None:
            return own
        base = Request.of_sample(samples[request.sample])
        return request.places(own, self._default(base, samples))

    def _default(self, request: Request, samples: Samples) -> Tensor:
        if not self.eyes.has_grids:
            return torch.arange(len(request.ids))[None]
        whole = samples[request.sample]
        size = len(request.ids)
        if not torch.equal(request.ids, whole.ids[:size]):
            return self._compute(request, samples)
        known, positions = self._known.get(request.sample, (None, torch.empty(0)))
        if known is not whole:  # no later token changes them
            positions = self._compute(Request.of_sample(whole), samples)
            self._known[request.sample] = whole, positions
        return positions[:, :size]

    def _compute(self, request: Request, samples: Samples) -> Tensor:
        sizes = self.eyes.sizes(request, samples)
        if not sizes or sizes != self.eyes.whole_sizes(request, samples):
            return torch.arange(len(request.ids)).expand(3, -1)
        types = request.ids.eq(self.eyes.image_token).int()
        grids = self.eyes.grids(request, samples)
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
