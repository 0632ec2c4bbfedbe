"""The two engines: one samples token by token with a cache, one scores at once.

Both run the same transformer of an agent, with whatever weights, precision, positions,
pictures and hooks a fault asks for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from sample_data.synthetic.chat import IMAGE, NEVER_SAMPLED, PAD
from sample_data.synthetic.model import GRID
from tests.faults.episodes import Episode, positions
from tests.faults.models import body

CHUNK = 32  # rows of a scoring pass

Head = Callable[["Tensor", "Tensor"], "Tensor"]
"""From logits [..., vocabulary] and the ids before to log-probs, in float32."""

Hook = Callable[["Tensor"], AbstractContextManager[Any]]
"""From the indices of the rows in the pass to a context in which the model runs."""


def precise(net: Any, dtype: torch.dtype, weights: Any = None) -> Any:
    """Return a copy of a model with other weights and precision."""
    found = copy.deepcopy(net)
    if weights is not None:
        found.load_state_dict(weights)
    return found.to(dtype)


def log_softmax(logits: Tensor, before: Tensor) -> Tensor:
    """Return log-probs as both engines of a healthy run do: in float32."""
    del before
    return logits.float().log_softmax(-1)


@dataclass(frozen=True)
class Context:
    """What an engine reads to score some tokens of a row.

    `target[i]` is the index in the row whose token stands at `ids[i]`; -1 for a token
    that is read and not scored. `places` are M-RoPE positions; `patches` the pictures
    for the image tokens in order.
    """

    row: int
    ids: Tensor
    target: Tensor
    places: Tensor
    patches: Sequence[Tensor] = ()


def context(row: int, one: Episode) -> Context:
    """Return what a healthy engine reads: all of it."""
    ids = torch.tensor(one.ids)
    places = positions(ids, sees=one.sees)
    return Context(row, ids, torch.arange(len(ids)), places, one.patches)


@torch.no_grad()
def features(net: Any, patches: Sequence[Tensor]) -> Tensor:
    """Return the vision encoder's output for pictures: [tokens, hidden]."""
    grid = torch.tensor([GRID]).repeat(len(patches), 1)
    found = net.model.get_image_features(torch.cat(list(patches)), grid)
    return torch.cat(list(found.pooler_output))


@torch.no_grad()
def score(
    net: Any,
    contexts: Sequence[Context],
    lengths: Sequence[int],
    *,
    head: Head = log_softmax,
    hook: Hook | None = None,
    eyes: Any = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return log-probs and entropies of rows of these lengths, NaN where not scored.

    `eyes` is a model whose vision encoder reads the pictures instead of the net's own.
    """
    log_probs = [torch.full((length,), torch.nan) for length in lengths]
    entropies = [torch.full((length,), torch.nan) for length in lengths]
    order = sorted(range(len(contexts)), key=lambda i: len(contexts[i].ids))
    for first in range(0, len(order), CHUNK):
        chunk = [contexts[i] for i in order[first : first + CHUNK]]
        longest = max(len(one.ids) for one in chunk)
        ids = torch.full((len(chunk), longest), PAD)
        places = torch.zeros(3, len(chunk), longest, dtype=chunk[0].places.dtype)
        for i, one in enumerate(chunk):
            ids[i, : len(one.ids)] = one.ids
            places[:, i, : len(one.ids)] = one.places
        embeds = body(net).embed_tokens(ids)
        patches = [patch for one in chunk for patch in one.patches]
        if patches:
            embeds[ids == IMAGE] = features(eyes or net, patches).to(embeds.dtype)
        rows = torch.tensor([one.row for one in chunk])
        causal = torch.ones(longest, longest, dtype=torch.bool).tril()
        with hook(rows) if hook is not None else nullcontext():
            hidden = body(net)(
                inputs_embeds=embeds,
                position_ids=places if patches else places[0],
                # Causal and nothing else: from positions alone transformers would
                # guess where packed sequences begin.
                attention_mask=causal.expand(len(chunk), 1, -1, -1),
                use_cache=False,
            ).last_hidden_state
        for i, one in enumerate(chunk):
            wanted = one.target[1:] >= 0
            at = torch.nonzero(wanted)[:, 0]
            found = head(net.lm_head(hidden[i, at]), one.ids[: len(one.ids)])
            full = found.log_softmax(-1)
            places_in_row = one.target[1:][wanted]
            token = one.ids[1:][wanted]
            log_probs[one.row][places_in_row] = found.gather(1, token[:, None])[:, 0]
            entropies[one.row][places_in_row] = -(full.exp() * full).sum(-1)
    return log_probs, entropies


@dataclass
class Sampling:
    """How a sampling engine draws tokens, and with what.

    `recorded` gives the log-probs that are written down, `drawn` those that are drawn
    from. `nets` are the models in the order of their first decoding step.
    """

    nets: list[tuple[int, Any]]
    seed: int
    drawn: Head = log_softmax
    recorded: Head = log_softmax
    hook: Callable[[int, list[int]], AbstractContextManager[Any]] | None = None
    eyes: Any = None


@torch.no_grad()
def sample(episodes: list[Episode], how: Sampling) -> None:
    """Let the episodes run to their ends, all at once, one token at a time."""
    generator = torch.Generator().manual_seed(how.seed)
    active = list(range(len(episodes)))
    cache = DynamicCache(config=body(how.nets[0][1]).config)
    pictures = [_pictures(one, how) for one in episodes]
    step = 0
    while True:
        kept = [i for i, row in enumerate(active) if step < len(episodes[row].ids)]
        if not kept:
            return
        if len(kept) < 0.75 * len(active):
            cache.batch_select_indices(torch.tensor(kept))
            active = [active[i] for i in kept]
        net = [one for first, one in how.nets if first <= step][-1]
        logits = _step(net, episodes, active, step, cache, pictures, how)
        last = [i for i, row in enumerate(active) if len(episodes[row].ids) == step + 1]
        last = [i for i in last if episodes[active[i]].status == "running"]
        if last:
            before = [torch.tensor(episodes[active[i]].ids) for i in last]
            drawn = _by_row(how.drawn, logits[last], before)
            recorded = _by_row(how.recorded, logits[last], before)
            chances = drawn.exp()
            chances[:, list(NEVER_SAMPLED)] = 0.0
            empty = chances.sum(-1) == 0  # a nucleus of tokens that are never sampled
            if empty.any():
                recorded[empty] = log_softmax(logits[last][empty], before[0])
                chances[empty] = recorded[empty].exp()
                chances[:, list(NEVER_SAMPLED)] = 0.0
            tokens = torch.multinomial(chances, 1, generator=generator)[:, 0].tolist()
            for i, token, values in zip(last, tokens, recorded, strict=True):
                one = episodes[active[i]]
                num_shots = len(one.patches)
                one.write(token, float(values[token]))
                if len(one.patches) > num_shots:
                    pictures[active[i]] = _pictures(one, how)
        step += 1


def _by_row(head: Head, logits: Tensor, before: list[Tensor]) -> Tensor:
    return (
        torch.cat(
            [
                head(values[None], ids)
                for values, ids in zip(logits.float(), before, strict=True)
            ]
        )
        if head is not log_softmax
        else logits.float().log_softmax(-1)
    )


def _pictures(one: Episode, how: Sampling) -> Tensor | None:
    """Return the features of the pictures seen so far."""
    return features(how.eyes or how.nets[-1][1], one.patches) if one.sees else None


def _step(
    net: Any,
    episodes: list[Episode],
    active: list[int],
    step: int,
    cache: DynamicCache,
    pictures: list[Tensor | None],
    how: Sampling,
) -> Tensor:
    """Feed one token of each active row; return the logits after it."""
    rows = [episodes[row] for row in active]
    tokens = [one.ids[step] if step < len(one.ids) else PAD for one in rows]
    embeds = body(net).embed_tokens(torch.tensor(tokens)[:, None])
    places = torch.full((3, len(rows), 1), step)
    if rows[0].sees:
        for i, one in enumerate(rows):
            if step < len(one.ids):
                places[:, i, 0] = torch.tensor(one.places[step])
                if tokens[i] == IMAGE:
                    which = one.num_image_tokens[step] - 1
                    embeds[i, 0] = pictures[active[i]][which]  # type: ignore[index]
    with how.hook(step, active) if how.hook is not None else nullcontext():
        hidden = body(net)(
            inputs_embeds=embeds,
            position_ids=places if rows[0].sees else places[0],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
    return net.lm_head(hidden[:, 0])
