"""Tokens decoded one after the other, as a sampler does, instead of in one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.proof.hypotheses.hypothesis import register
from rounddiag.proof.trajectory import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.proof.trajectory import Samples, Trajectory


@register(
    "decoded",
    cause="decode_path",
    says="decoding, which differs from the same engine's prefill",
    needs=("decoding",),
)
def _decode(one: Trajectory, samples: Samples) -> Sequence[Request] | None:
    """Decode each round after its context; the engine forces the tokens."""
    del samples
    base = replace(Request.of_sample(one), setting="decoded")
    index = torch.arange(len(one.ids))
    requests = []
    for start, stop in one.rounds:
        seen = sum(end <= start for _, end in one.spans)
        shown = base.pictures[:seen]
        requests.append(base.keep(index < stop, shown).score_only(start, stop))
    return [request for request in requests if not request.is_empty]
