"""Episodes, played: a server writes each round, and the batch that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from rounddiag.batch import Batch
from rounddiag.errors import BatchError
from rounddiag.proof.engines.dialects import Continuation, Sampling
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.episodes import Episode
from rounddiag.vision import Screenshot

ROUND_TOKENS = 32  # of a round, at most
_TRIES = 4  # for a round that does not begin with a token of pictures


@dataclass(frozen=True, eq=False)
class Round:
    """A round that a server wrote.

    Attributes
    ----------
    context: What was sent, one image token for each picture.
    shots: All pictures of the context.
    written: What the server answered.
    ids, log_probs: Of it what comes before a token that stands for pictures.
    """

    context: tuple[int, ...]
    shots: tuple[Screenshot, ...]
    written: Continuation
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Played:
    """An episode with its rounds."""

    episode: Episode
    rounds: tuple[Round, ...]


def play(
    server: ServerEngine,
    engine: LocalEngine,
    episodes: Sequence[Episode],
    how: Sampling,
) -> list[Played]:
    """Let a server write all rounds; each context goes on where the last one ended."""
    special = {engine.eyes.image_token} | engine.eyes.markers
    number = sum(len(episode.observations) for episode in episodes)
    played = []
    with tqdm(total=number, desc="sampling", unit="round", leave=False) as bar:
        for episode in episodes:
            context: list[int] = []
            shots: list[Screenshot] = []
            rounds: list[Round] = []
            for observation in episode.observations:
                ids = observation.ids
                # The model may have written the end of its reply itself.
                context += ids[1:] if context and context[-1] == ids[0] else ids
                shots += observation.shots
                rounds.append(_write(server, context, shots, how, special))
                context += rounds[-1].ids
                bar.update()
            played.append(Played(episode, tuple(rounds)))
    return played


def _write(
    server: ServerEngine,
    context: Sequence[int],
    shots: Sequence[Screenshot],
    how: Sampling,
    special: set[int],
) -> Round:
    for _ in range(_TRIES):
        written = server.sample(context, shots, how)
        ids = written.ids.tolist()
        stop = next((at for at, token in enumerate(ids) if token in special), len(ids))
        if stop:
            log_probs = tuple(written.log_probs[:stop].tolist())
            shown = tuple(shots)
            return Round(tuple(context), shown, written, tuple(ids[:stop]), log_probs)
    raise BatchError.build(
        file=server.host.url,
        expected="a model that writes text",
        found=f"tokens of pictures at the start of a round, {_TRIES} times",
        advice="Forbid these ids, such as by `logit_bias` in the server's defaults.",
    )


def as_batch(
    played: Sequence[Played], engine: LocalEngine, server: ServerEngine, how: Sampling
) -> Batch:
    """Return the episodes as a batch: a sample each, with the server's log-probs."""
    rows: dict[str, list[Any]] = {}
    images = []
    for episode in played:
        row, shots = _row(episode, engine)
        images.append(shots)
        for name, values in row.items():
            rows.setdefault(name, []).append(values)
    config = engine.model.config
    facts = {
        "rollout_engine": server.dialect.title,
        "training_engine": "transformers",
        "training_dtype": engine.dtype,
        "model": engine.name,
        "model_type": config.model_type,
        "architectures": list(config.architectures or ()),
    }
    facts_of_rounds = [
        (
            *(sample, number, turn.written.num_cached),
            "length" if len(turn.ids) >= ROUND_TOKENS else "stop",
        )
        for sample, episode in enumerate(played)
        for number, turn in enumerate(episode.rounds)
    ]
    names = ("sample", "round", "cached_tokens", "finish_reason")
    columns = zip(*facts_of_rounds, strict=True)
    round_columns = {
        name: np.array(values) for name, values in zip(names, columns, strict=True)
    }
    return Batch.from_rows(
        **rows,
        images=images if any(images) else None,
        sample_ids=[episode.episode.name for episode in played],
        tokenizer=None if engine.chat is None else engine.chat.tokenizer,
        round_columns=round_columns,
        meta={
            "facts": facts,
            "sampling": {"temperature": how.temperature, "top_p": how.top_p},
            "mask_source": "the rounds that the server wrote",
        },
    )


def _row(
    played: Played, engine: LocalEngine
) -> tuple[dict[str, list[Any]], list[Screenshot]]:
    prompt: list[int] = []
    ids: list[int] = []
    mask: list[int] = []
    log_probs: list[float] = []
    shots: list[Screenshot] = []
    before: Sequence[int] = ()
    for number, turn in enumerate(played.rounds):
        seen = turn.context[len(before) :]
        shown = turn.shots[len(shots) :]
        expanded = engine.eyes.expand(seen, shown) if shown else list(seen)
        starts = _starts(seen, shown, engine)
        begin = len(ids) if number else -len(expanded)
        shots += [
            replace(shot, round=number, position=begin + at)
            for shot, at in zip(shown, starts, strict=True)
        ]
        if number:
            ids += expanded
            mask += [0] * len(expanded)
            log_probs += [0.0] * len(expanded)
        else:
            prompt = expanded
        ids += turn.ids
        mask += [1] * len(turn.ids)
        log_probs += turn.log_probs
        before = (*turn.context, *turn.ids)
    row: dict[str, list[Any]] = {
        "prompt_ids": prompt,
        "response_ids": ids,
        "response_mask": mask,
        "rollout_log_probs": log_probs,
    }
    return row, shots


def _starts(
    ids: Sequence[int], shots: Sequence[Screenshot], engine: LocalEngine
) -> list[int]:
    sizes = [engine.eyes.grid_of(shot)[0] for shot in shots]
    at = [place for place, token in enumerate(ids) if token == engine.eyes.image_token]
    added = np.cumsum([0, *(size - 1 for size in sizes)])[: len(at)]
    return [int(place + more) for place, more in zip(at, added, strict=True)]
