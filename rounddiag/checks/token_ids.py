"""Token ids: what the trainer holds, the batch's file says and the sampler wrote."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, UntestableError
from rounddiag.checks.places import place_of
from rounddiag.checks.tokenizer import decoded
from rounddiag.checks.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.checks.places import Place

# Tokens that are shown on each side of a difference.
_AROUND = 5


def _as_input_ids(batch: Batch) -> Fault | None:
    """Tell what the loader saw: a Batch does not keep `input_ids`."""
    told = batch.meta.get("input_ids")
    if told is None:
        raise UntestableError(field="input_ids")
    return None if told == "equal" else Fault(str(told))


def _pairs(batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Give, of each sample, the trainer's and the sampler's ids of the response."""
    if batch.rollout_ids is None:
        raise UntestableError(field="rollout_ids")
    begins, lengths = batch.offsets.tolist(), batch.lengths.tolist()
    for begin, length, rollout in zip(begins, lengths, batch.rollout_ids, strict=False):
        yield batch.response_ids[begin : begin + length].cpu(), rollout.cpu()


def _lengths(batch: Batch) -> Fault | None:
    sizes = [(len(own), len(rollout)) for own, rollout in _pairs(batch)]
    found = [row for row, (own, rollout) in enumerate(sizes) if own != rollout]
    if not found:
        return None
    own, rollout = sizes[found[0]]
    return Fault(
        f"{count(len(found), 'sample')} with another length: sample {found[0]} has"
        f" {count(own, 'token')} by the trainer and {rollout:,} by the sampler",
        tuple(found),
    )


def _ids(batch: Batch, *, as_text: bool) -> Fault | None:
    found = {
        sample: at
        for sample, (own, rollout) in enumerate(_pairs(batch))
        if (at := _first_difference(own, rollout)) is not None
    }
    if not found:
        return None
    sample, position = next(iter(found.items()))
    place = place_of(batch, int(batch.offsets[sample]) + position)
    words = _around(batch, place, batch.tokenizer if as_text else None)
    return Fault(
        f"{count(len(found), 'sample')} with other ids: {place}, {words}",
        tuple(found),
    )


def _first_difference(own: Tensor, rollout: Tensor) -> int | None:
    """Compare as far as both reach; that one is longer is told by itself."""
    common = min(len(own), len(rollout))
    if torch.equal(own[:common], rollout[:common]):
        return None
    return int((own[:common] != rollout[:common]).nonzero()[0])


def _around(batch: Batch, place: Place, tokenizer: object | None) -> str:
    """Show the tokens at a difference, divided by |: those of one text may differ."""
    own, rollout = next(islice(_pairs(batch), place.sample, None))
    first, stop = max(place.position - _AROUND, 0), place.position + _AROUND
    parts = (own[first : place.position], own[place.position : stop])
    shown = [*parts, rollout[place.position : stop]]
    before, here, there = (_text(ids.tolist(), tokenizer) for ids in shown)
    return f"after {before} the trainer has {here} and the sampler {there}"


def _text(ids: list[int], tokenizer: object | None) -> str:
    try:
        texts = decoded(ids, tokenizer)
    except UntestableError:  # then the ids themselves have to do
        texts = decoded(ids, None)
    return "|".join(texts) or "nothing"


INPUT_IDS = Contract("prompt and response are `input_ids`", "input_ids", _as_input_ids)
LENGTHS = Contract("both engines' responses have one length", "rollout_ids", _lengths)
IDS = Contract(
    "both engines have the same token ids", "rollout_ids", partial(_ids, as_text=False)
)
IDS_AS_TEXT = replace(IDS, find=partial(_ids, as_text=True))
