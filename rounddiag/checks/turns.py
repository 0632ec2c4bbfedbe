"""Rounds end where the model's turn ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, UntestableError
from rounddiag.checks.places import (
    fault_at,
    fault_in,
    need_ids,
    need_tokens,
    samples_of,
)
from rounddiag.checks.sequences import mask_runs
from rounddiag.checks.tokenizer import special_ids

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.batch import Batch

# What a model writes last, or a template, when it is the other's turn: Qwen, Llama,
# Mistral, Gemma, Phi, gpt-oss, DeepSeek, GLM.
_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    *("</s>", "<end_of_turn>", "<eos>", "<|end|>", "<|return|>", "<|call|>"),
    *("<\uff5cend\u2581of\u2581sentence\uff5c>", "<|user|>", "<|observation|>"),
)


def _wrong_ends(batch: Batch) -> Fault | None:
    last, ends_turn, ends_response = _ends(batch)
    what = "at the end of a run of the mask, and not of a turn"
    return fault_at(batch, last[~ends_turn & ~ends_response], what)


def _cut(batch: Batch) -> Fault | None:
    last, ends_turn, ends_response = _ends(batch)
    cut = samples_of(batch, last[~ends_turn & ends_response]).tolist()
    return fault_in(cut, "whose last round has no end of turn")


def _ends(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the last tokens of runs, which end a turn, and which end a response."""
    need_ids(batch)
    need_tokens(batch)
    ids = list(special_ids(batch.tokenizer, _ENDS).values())
    wanted = torch.tensor(ids, device=batch.response_ids.device)
    if not torch.isin(batch.response_ids, wanted).any():
        why = "no end-of-turn token that is known stands in a response"
        raise UntestableError(field="tokenizer", why=why)
    runs = mask_runs(batch)
    last = runs.start + runs.num_tokens - 1
    final = (batch.offsets[:-1] + batch.lengths)[runs.sample] - 1
    return last, torch.isin(batch.response_ids[last], wanted), last == final


ENDS = Contract("every round ends with its turn", "response_mask", _wrong_ends)
NOT_CUT = Contract("no last round is cut off", "response_ids", _cut)
