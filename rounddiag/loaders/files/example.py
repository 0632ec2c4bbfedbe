"""An example of `columns=`, made of the names that a file has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

REQUIRED = ("response_ids", "response_mask", "rollout_log_probs", "old_log_probs")
# What such names often say; `...` where none does: nothing is guessed into its place.
_LOG_PROBS = r"(?=.*(?:lo?g?_?p|lp))"
_LIKELY = {
    "response_ids": r"(?!.*prompt).*(?:ids|tokens|response)$",
    "response_mask": r"(?!.*attention).*mask$",
    "rollout_log_probs": _LOG_PROBS
    + r".*(?:rollout|sampl|infer|vllm|sglang|behav|gen)",
    "old_log_probs": _LOG_PROBS + r".*(?:old|train|actor|fsdp|megatron|prox)",
}


def example(names: Collection[str], named: Iterable[str] = ()) -> str:
    """Return how to say what is what, for a message.

    Parameters
    ----------
    names : collection of str
        Of the columns.
    named : iterable of str
        Fields that are named already, and need no example.

    Examples
    --------
    >>> example(["ids", "mask", "vllm_lp", "lp"])[:60]
    'Say what is what: `columns={"response_ids": "ids", "response'
    """
    known = {*named}
    left = [ours for ours in REQUIRED if ours not in known]
    pairs = ", ".join(f'"{ours}": "{_likely(ours, names)}"' for ours in left)
    return f"Say what is what: `columns={{{pairs}}}`."


def _likely(ours: str, names: Collection[str]) -> str:
    found = [name for name in names if re.match(_LIKELY[ours], name.lower())]
    return f"{found[0]:.40}" if len(found) == 1 else "..."
