"""Structured output: where a batch records it, and what it leaves in log-probs.

vLLM 0.32 masks the logits in its model runner, so that `raw_logprobs` are renormalised
too: a token is at least as likely as without the grammar, and exactly 0 where nothing
else is allowed, however unlikely the model finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.divergence import FACTOR_2

# What vLLM, SGLang and TRL call it in requests; `guided_` before vLLM 0.12.
_NAMES = re.compile(
    r"(vllm_)?(structured_outputs?|guided_decoding)(_regex)?"
    r"|guided_(json|json_object|regex|choice|grammar)"
    r"|grammar|ebnf|json_schema|structural_tag|response_format|tool_choice"
    r"|((structured_outputs?|guided_decoding)\.)?(choice|regex|json|json_object)"
)
# Of a request. As names of columns they may be anything.
_BARE = frozenset({"grammar", "choice", "regex", "json", "json_object"})
# Records that have the parameters of requests inside.
_OUTER = ("facts", "sampling", "sampling_params", "sampling_args", "extra_body")
# Parameters that constrain nothing by themselves.
_OPTIONS = re.compile(r"_?backend\w*|disable_\w+|whitespace_pattern")
_OFF = frozenset({"", "none", "null", "false", "0", "nan", "text", "auto"})
# Share of tokens that were left alone, with a log-prob of exactly 0. A convention: half
# and twice of it change no answer of `tests.faults.bench`.
MIN_ALONE = 0.02
# Nearly all diffs are negative: the sum of diff is this part of that of |diff|. 0.98
# changes no answer of `tests.faults.bench`; 0.9 calls blank pictures truncated.
NEARLY_ALL = 0.96


def find_forced(values: Array, others: Array) -> Array:
    """Return the tokens that a grammar forces, if it explains what differs; bool.

    Their values are exactly 0, and the other engine finds them less than half likely:
    no top-p of one half or more leaves such a token alone. Of the other tokens that
    differ by more than a factor of 2, nearly all of |diff| is below 0; beside zeros in
    place of log-probs no other token differs so.
    """
    diff = others - values
    unsure = others < -FACTOR_2
    forced = unsure & (values == 0)
    far = diff[(values != 0) & (np.abs(diff) > FACTOR_2)]
    lower = -np.minimum(far, 0).sum()
    is_grammar = (
        forced.any()
        and forced.sum() >= MIN_ALONE * unsure.sum()
        and lower > 0
        and lower >= NEARLY_ALL * np.abs(far).sum()
    )
    return forced & is_grammar


def recorded_grammar(batch: Batch) -> str:
    """Return the name under which the batch records a grammar; empty if it does not."""
    return next((name for name, _ in _grammars(batch)), "")


def recorded_choices(batch: Batch) -> tuple[str, ...]:
    """Return the texts of which a recorded `choice` allows one.

    Empty without it, and where requests had different ones.
    """
    lists = set()
    for name, value in _grammars(batch):
        texts = value.get("choice") if isinstance(value, Mapping) else value
        is_choice = isinstance(value, Mapping) or name.endswith("choice")
        if is_choice and isinstance(texts, list | tuple) and all(texts):
            lists.add(tuple(map(str, texts)))
    return lists.pop() if len(lists) == 1 else ()


def _grammars(batch: Batch) -> Iterator[tuple[str, object]]:
    """Yield the names and values of what is recorded of the run, samples or rounds."""
    yield from _named(batch.meta)
    for columns in (batch.sample_columns, batch.round_columns):
        for name, values in columns.items():
            if name in _OUTER or (_NAMES.fullmatch(name) and name not in _BARE):
                for value in values.tolist():
                    yield from _named({name: value})


def _named(record: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in record.items():
        inside = _read(value)
        if _NAMES.fullmatch(str(name)) and _is_on(inside):
            yield str(name), inside
        elif name in _OUTER and isinstance(inside, Mapping):
            yield from _named(inside)


def _read(value: object) -> object:
    """Return what a text of JSON holds, as a column has it; else the value."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):
            return json.loads(value)
    return value


def _is_on(value: object) -> bool:
    if isinstance(value, Mapping):
        return value.get("type") != "text" and any(
            _is_on(each)
            for name, each in value.items()
            if not _OPTIONS.match(str(name))
        )
    if isinstance(value, list | tuple):
        return bool(value)
    return str(value).lower() not in _OFF
