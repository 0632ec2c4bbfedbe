"""Structured output by `choice`: log-probs over what a list of texts allows.

vLLM 0.32 masks logits before all else, so that raw log-probs are renormalised too. A
regex or a schema needs the engine's own grammar library, and is not masked here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.hypotheses.processor import Processor, Seen, Step
from rounddiag.text.token_table import TokenTable

STRUCTURED = "structured_output"


def choice_mask(
    choices: Sequence[bytes], tokens: Mapping[int, bytes], ends: Collection[int]
) -> Step:
    """Return what leaves out ids after which a round can become none of some texts.

    A round that is none of them, or their beginning, was not written so: it stays.
    `tokens` are the bytes of ids that are a part of them; `ends` are those that end a
    turn, allowed where a text is complete.
    """

    @cache
    def follow(text: bytes) -> list[int]:
        rest = [each[len(text) :] for each in choices if each.startswith(text)]
        begins = {each[:size] for each in rest for size in range(len(each) + 1)}
        parts = [token for token, part in tokens.items() if part in begins]
        return [*parts, *(ends if b"" in rest else ())]

    def allow(written: Sequence[int]) -> list[list[int]]:
        """Return what is allowed at each token of a round; empty if one is not."""
        text, allowed = b"", []
        for token in written:
            allowed.append(follow(text))
            if token not in allowed[-1]:
                return []
            text += tokens.get(token, b"\0")  # nothing follows an end
        return allowed

    def mask(logits: Tensor, seen: Seen, value: float) -> Tensor:
        ids = seen.ids if seen.names is None else seen.names[seen.ids]
        is_out = torch.zeros_like(logits, dtype=torch.bool)
        for begin in seen.begin.unique().tolist():
            rows = (seen.begin == begin).nonzero()[:, 0]
            stop = int(seen.at[rows[-1]]) + 1
            allowed = allow(ids[begin:stop].tolist())
            for row, at in zip(rows, seen.at[rows] - begin, strict=True):
                if allowed:
                    is_out[row] = True
                    is_out[row, [*map(seen.column, allowed[at])]] = False
        return logits.masked_fill(is_out, -torch.inf)

    return mask


def choice_hypothesis(choices: Sequence[str], engine: Any) -> Hypothesis:  # noqa: ANN401 any engine
    """Return that an engine's log-probs are over what these texts allow."""
    chat, processor = getattr(engine, "chat", None), None
    if chat is not None:
        ids = np.atleast_1d(engine.model.generation_config.eos_token_id)  # or None
        ends = {chat.tokenizer.eos_token_id, *ids.tolist()} - {None}
        table = TokenTable.from_tokenizer(chat.tokenizer, range(len(chat.tokenizer)))
        texts, joined = [c.encode() for c in choices], "\0".join(choices).encode()
        tokens = {
            token: text
            for token, text in table.tokens.items()
            if text and text in joined and token not in table.special
        }
        step = choice_mask(texts, tokens, ends)
        processor = Processor(step, 0.0, rank=-1, ids=(*tokens, *ends))
    return Hypothesis(
        name=STRUCTURED,
        cause=STRUCTURED,
        says="renormalised over what the choice list allows",
        processor=processor,
        needs=frozenset({"logits", "chat"}),
    )
