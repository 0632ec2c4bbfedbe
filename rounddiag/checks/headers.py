"""Rounds begin where the chat template has written the assistant's header."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks.contract import Contract, Fault, UntestableError
from rounddiag.checks.places import fault_at, need_ids, need_tokens
from rounddiag.checks.sequences import mask_runs
from rounddiag.checks.tokenizer import decoded

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.segmentation import Rounds

    Array = np.ndarray[Any, Any]

# Of Qwen, Llama, gpt-oss, GLM, DeepSeek, Gemma, Mistral.
_HEADER = re.compile(
    r"<\|im_start\|>assistant|<\|start_header_id\|>assistant<\|end_header_id\|>"
    r"|<\|start\|>assistant|<\|assistant\|>|<\uff5cAssistant\uff5c>"
    r"|<start_of_turn>model|\[/INST\]"
)
# Line ends, as they are shown, and thoughts that the template opens or leaves out.
_REST = re.compile(r"[·↵]*(<think>[·↵]*(</think>[·↵]*)?)?")
_WIDTH = 12  # tokens that a header and the rest may have
_INSIDE = 8  # tokens of a run in which a header is looked for


def _wrong_starts(batch: Batch) -> Fault | None:
    need_ids(batch)
    need_tokens(batch)
    if batch.tokenizer is None:
        raise UntestableError(field="tokenizer")
    runs = mask_runs(batch)
    befores = _ids_before(batch, runs)
    if not any(map(len, befores)):
        raise UntestableError(field="prompt_ids")
    texts = _texts(befores, batch.tokenizer)
    if not any(_HEADER.search(text) for text in [*texts, *_beginnings(batch, runs)]):
        why = "no assistant header that is known stands before a round"
        raise UntestableError(field="tokenizer", why=why)
    # Where nothing is known to stand before a round, nothing is wrong.
    wrong = [at for at, text in enumerate(texts) if text and not _is_header(text)]
    what = "at the start of a run of the mask, without a header before it"
    fault = fault_at(batch, runs.start[wrong], what)
    return fault and Fault(
        f"{fault.detail}; the first follows {texts[wrong[0]]}", fault.samples
    )


def _is_header(text: str) -> bool:
    """Whether a text ends with a header and perhaps what may follow it."""
    found = list(_HEADER.finditer(text))
    return bool(found) and _REST.fullmatch(text, found[-1].end()) is not None


def _ids_before(batch: Batch, runs: Rounds) -> list[Array]:
    """Return the few tokens of prompt and response before each run of the mask."""
    ids, begins = batch.response_ids.cpu().numpy(), batch.offsets.tolist()
    ends, found = _prompt_ends(batch), []
    for sample, start in zip(runs.sample.tolist(), runs.start.tolist(), strict=True):
        own = ids[max(begins[sample], start - _WIDTH) : start]
        room = _WIDTH - len(own)
        found.append(np.concatenate([ends[sample][-room:], own]) if room else own)
    return found


def _prompt_ends(batch: Batch) -> list[Array]:
    """Return the last few tokens of each prompt; none where there are no prompts."""
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return [np.empty(0, dtype=np.int64)] * batch.num_samples
    ids, limits = batch.prompt_ids.cpu().numpy(), batch.prompt_offsets.tolist()
    return [ids[max(begin, stop - _WIDTH) : stop] for begin, stop in pairwise(limits)]


def _beginnings(batch: Batch, runs: Rounds) -> list[str]:
    """Return what runs begin with: a mask that begins too early has headers there."""
    ids = batch.response_ids.cpu().numpy()
    stops = runs.start + runs.num_tokens.clamp(max=_INSIDE)
    pairs = zip(runs.start.tolist(), stops.tolist(), strict=True)
    return _texts([ids[begin:stop] for begin, stop in pairs], batch.tokenizer)


def _texts(rows: list[Array], tokenizer: object | None) -> list[str]:
    """Decode many short texts at once."""
    limits = np.cumsum([0, *map(len, rows)]).tolist()
    found = decoded(np.concatenate(rows).tolist(), tokenizer, starts=limits)
    return ["".join(found[begin:stop]) for begin, stop in pairwise(limits)]


STARTS = Contract("every round begins after a header", "response_mask", _wrong_starts)
