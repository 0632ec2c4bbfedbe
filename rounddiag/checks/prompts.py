"""Prompts: none stands in the response a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, UntestableError
from rounddiag.checks.places import fault_in, need_ids
from rounddiag.checks.sequences import prompt_lengths

if TYPE_CHECKING:
    from rounddiag.batch import Batch

# A response may begin with the one token that its prompt is.
_TOKENS = 2


def _begins_with_prompt(batch: Batch) -> Fault | None:
    need_ids(batch)
    lengths = prompt_lengths(batch)
    long = [sample for sample, size in enumerate(lengths) if size >= _TOKENS]
    if not long:
        why = f"no prompt has {_TOKENS} tokens"
        raise UntestableError(field="prompt_ids", why=why)
    found = [sample for sample in long if _is_repeated(batch, sample, lengths[sample])]
    if len(found) <= len(long) / 2:
        return None
    return fault_in(found, f"of {len(long):,} whose response begins with its prompt")


def _is_repeated(batch: Batch, sample: int, size: int) -> bool:
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return False
    if size > int(batch.lengths[sample]):
        return False
    first, begin = int(batch.prompt_offsets[sample]), int(batch.offsets[sample])
    prompt = batch.prompt_ids[first : first + size]
    return torch.equal(prompt, batch.response_ids[begin : begin + size])


NOT_REPEATED = Contract(
    "responses do not begin with their prompt", "prompt_ids", _begins_with_prompt
)
