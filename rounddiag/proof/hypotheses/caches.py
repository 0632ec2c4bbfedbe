"""A cache that older weights filled: new weights read their keys and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rounddiag.proof.hypotheses.hypothesis import Edit, Hypothesis
from rounddiag.proof.trajectory import Request, Samples, Trajectory

# Tokens of a block: a cache keeps whole ones. SGLang has pages of 1, vLLM 16 on a GPU.
# Without a cache the context is read again with the new weights.
BLOCKS = (0, 1, 16, 32, 64, 128)


def cached_prompt(weights: str, label: str) -> Hypothesis:
    """Return the hypothesis that the prompt was read from a cache of other weights."""

    def edit(one: Trajectory, samples: Samples) -> Request | None:
        kept = one.start - 1  # the last token of a prompt is always computed
        if kept < 1:
            return None
        return replace(Request.of_sample(one), kept=kept, kept_weights=weights)

    return Hypothesis(
        name=f"cached_prompt_of_{label}",
        cause="stale_cache",
        says=f"the prompt from a cache that the weights of {label} filled",
        edit=edit,
    )


def _kept_rounds(weights: str, number: int, block: int) -> Edit:
    """Let older weights write some rounds, and new ones go on, from their cache."""

    def edit(one: Trajectory, samples: Samples) -> Request | list[Request] | None:
        base = Request.of_sample(one)
        if len(one.rounds) <= number:
            return replace(base, weights=weights)
        border = one.rounds[number][0]
        # What is drawn last is not read before the next round.
        last = one.rounds[number - 1][1] - 1
        kept = last // block * block if block else 0
        if block and not kept:
            return None
        before = base.score_only(0, border)
        after = base.score_only(border, len(one.ids))
        return [
            replace(before, weights=weights),
            replace(after, kept=kept, kept_weights=weights),
        ]

    return edit


def kept_rounds(
    places: Iterable[tuple[Hypothesis, str]],
) -> Iterator[Hypothesis]:
    """Yield what may follow where rounds before one are those of older weights."""
    for one, where in places:
        match = re.fullmatch(r"before round (\d+)", where)
        if not one.weights or match is None:
            continue
        number = int(match[1])
        for block in BLOCKS:
            says = f"{one.says} before round {number}"
            if block:
                says += ", and their cache from then on"
            if block > 1:
                says += f" in blocks of {block}"
            yield Hypothesis(
                name=f"{one.name}_before_{number}_kept_{block}",
                cause="stale_cache" if block else "mixed_weights",
                says=says,
                edit=_kept_rounds(one.weights, number, block),
                is_whole=True,
            )
