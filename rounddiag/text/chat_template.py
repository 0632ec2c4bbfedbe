"""Headers and ends of turns in chat templates, and which tokens the model wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rounddiag._typing import Array
from rounddiag.text.tokenizers import pieces

# Assistant headers of Qwen, Llama, gpt-oss, GLM, DeepSeek, Gemma, Mistral.
HEADER = re.compile(
    r"<\|im_start\|>assistant|<\|start_header_id\|>assistant<\|end_header_id\|>"
    r"|<\|start\|>assistant|<\|assistant\|>|<\uff5cAssistant\uff5c>"
    r"|<start_of_turn>model|\[/INST\]"
)
# Tokens that end a turn: Qwen, Llama, Mistral, Gemma, Phi, gpt-oss, DeepSeek, GLM.
TURN_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    *("</s>", "<end_of_turn>", "<eos>", "<|end|>", "<|return|>", "<|call|>"),
    *("<\uff5cend\u2581of\u2581sentence\uff5c>", "<|user|>", "<|observation|>"),
)


# Template tokens of Qwen2, Qwen2.5, Qwen3 and their vision-language models, for files
# that name no tokenizer.
_QWEN = {
    151643: "<|endoftext|>",
    151644: "<|im_start|>",
    151645: "<|im_end|>",
    77091: "assistant",
    198: "\n",
}
_LINE_ENDS = re.compile("↵*")


def decode_qwen(ids: Sequence[int]) -> str:
    """Decode the template tokens of Qwen; any other token is a question mark."""
    return "".join(_QWEN.get(token_id, "?") for token_id in ids)


def written_tokens(rows: Sequence[Array], tokenizer: object) -> list[Array] | None:
    """Return which tokens of each response the model wrote, by the chat template.

    A response begins with a turn of the model. A turn ends with the first end-of-turn
    token, which belongs to it, and the next begins after the next header.
    """
    limits = np.cumsum([0, *map(len, rows)]).tolist()
    ids = np.concatenate([np.empty(0, dtype=np.int64), *rows])
    texts = pieces(ids, tokenizer, starts=limits, visible_whitespace=True)
    turns = [_turns(texts[begin:stop]) for begin, stop in pairwise(limits)]
    has_end = any(num_ends for _, _, num_ends in turns)
    has_header = any(num_headers for _, num_headers, _ in turns)
    is_one_turn = all(flags.all() for flags, _, _ in turns)
    if not has_end or not (has_header or is_one_turn):
        return None
    return [flags for flags, _, _ in turns]


def _turns(texts: Sequence[str]) -> tuple[Array, int, int]:
    """Return which tokens the model wrote, and the number of headers and of ends."""
    text = "".join(texts)
    begins = np.cumsum([0, *map(len, texts)])[:-1]
    is_end = np.array([piece in TURN_ENDS for piece in texts], dtype=bool)
    ends = np.flatnonzero(is_end)
    written = np.zeros(len(texts), dtype=bool)
    starts = [0]
    for header in HEADER.finditer(text):
        rest = _LINE_ENDS.match(text, header.end())
        after = header.end() if rest is None else rest.end()
        starts.append(int(np.searchsorted(begins, after)))
    for start in starts:
        later = ends[np.searchsorted(ends, start) :]
        stop = int(later[0]) + 1 if len(later) else len(texts)
        written[start:stop] = True
    return written, len(starts) - 1, len(ends)
