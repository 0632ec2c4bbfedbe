"""Tokens decoded one after the other, as a sampler does, instead of in one pass."""

from __future__ import annotations

from dataclasses import replace

import torch

from rounddiag.proof.hypotheses.hypothesis import register
from rounddiag.proof.trajectory import Request, Samples, Trajectory


@register(
    "decoded",
    "decoding, which differs from the same engine's prefill",
    cause="decode_path",
    needs=("decoding",),
)
def _decode(one: Trajectory, samples: Samples) -> list[Request]:
    """Decode each round after its context; the engine forces the tokens."""
    base = replace(Request.of_sample(one), setting="decoded")
    index = torch.arange(len(one.ids))
    requests = []
    for start, stop in one.rounds:
        shown = base.pictures[: sum(end <= start for _, end in one.spans)]
        requests.append(base.keep(index < stop, shown).score_only(start, stop))
    return requests
