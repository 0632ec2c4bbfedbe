"""Rows that are steps, each with a context of its own: made from the trajectories."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import rounddiag as rd
from rounddiag.batch.sample_sequence import known_sequence
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.text import pieces
from rounddiag.vision import Screenshot

from .chat import IMAGE, VISION_END, VISION_START

WINDOW = 2  # screenshots in a context
TRAJECTORIES, LEAST_ROUNDS = 12, 4


class Step(NamedTuple):
    """A row: what was read, what was written, and what it is part of."""

    context: torch.Tensor
    written: torch.Tensor
    shots: tuple[Screenshot, ...]
    sample: int
    number: int


def to_step_rows(batch: rd.Batch, model: Path) -> rd.Batch:
    """Return each round of some trajectories as a row with its own context.

    A context has the last two screenshots only. The trainer's leaves out the thoughts
    of earlier rounds; the sampler's keeps them, which is the fault. Both engines' log-
    probs are scored anew with the model: the trainer's in float32, the sampler's in
    bfloat16.
    """
    counts = np.bincount(batch.rounds.sample.numpy(), minlength=len(batch))
    chosen = np.flatnonzero(counts >= LEAST_ROUNDS)[:TRAJECTORIES].tolist()
    trained, sampled = (
        [step for sample in chosen for step in steps(batch, sample, thoughts=thoughts)]
        for thoughts in (False, True)
    )
    engine = LocalEngine.open(str(model), dtype="float32")
    rows = to_rows(batch, trained)
    old = rd.rescore(rows, engine).log_probs("old")
    sampler = engine.beside(dtype="bfloat16")
    rollout = rd.rescore(to_rows(batch, sampled), sampler).log_probs("old")
    source = {"old_log_probs_source": "one float32 forward pass for each row"}
    return replace(
        rows,
        old_log_probs=old,
        rollout_log_probs=rollout,
        meta={**rows.meta, **source},
    )


def steps(batch: rd.Batch, sample: int, *, thoughts: bool) -> Iterator[Step]:
    """Yield the rounds of a sample, each with the context of one engine."""
    _, ids = known_sequence(batch, sample)
    starts, stops = spans(batch, sample)
    shots = (batch.images or ())[sample]
    observed = [ids[end:start] for end, start in zip([0, *stops], starts, strict=False)]
    written = [ids[start:stop] for start, stop in zip(starts, stops, strict=True)]
    for number in range(len(written)):
        parts = []
        for earlier in range(number):
            is_old = earlier <= number - WINDOW
            seen, reply = observed[earlier], written[earlier]
            parts.append(without_picture(seen) if is_old else seen)
            parts.append(reply if thoughts else without_thoughts(reply, batch))
        context = np.concatenate([*parts, observed[number]])
        first = max(number + 1 - WINDOW, 0)
        places = np.flatnonzero(context == VISION_START) + 1 - len(context)
        yield Step(
            torch.from_numpy(context),
            torch.from_numpy(written[number]),
            tuple(
                replace(shot, position=int(place), round=0)
                for shot, place in zip(shots[first : number + 1], places, strict=True)
            ),
            sample,
            number,
        )


def spans(batch: rd.Batch, sample: int) -> tuple[list[int], list[int]]:
    """Return where the rounds of a sample start and stop in prompt and response."""
    rounds, (num_prompt, _) = batch.rounds, known_sequence(batch, sample)
    own = rounds.sample == sample
    starts = rounds.start[own] - batch.offsets[sample] + num_prompt
    return starts.tolist(), (starts + rounds.num_tokens[own]).tolist()


def without_picture(ids: np.ndarray) -> np.ndarray:
    """Leave out a picture and its markers."""
    return ids[~np.isin(ids, (VISION_START, IMAGE, VISION_END))]


def without_thoughts(ids: np.ndarray, batch: rd.Batch) -> np.ndarray:
    """Leave out what stands before the action."""
    texts = np.cumsum(["</think>" in text for text in texts_up_to(ids, batch)])
    return ids[int((texts == 0).sum()) + 1 :] if texts[-1] else ids


def texts_up_to(ids: np.ndarray, batch: rd.Batch) -> list[str]:
    """Return the text up to each token."""
    texts = pieces(ids, batch.tokenizer)
    return ["".join(texts[: at + 1]) for at in range(len(texts))]


def to_rows(batch: rd.Batch, every: list[Step]) -> rd.Batch:
    """Return steps as a batch with one row each."""
    samples = [step.sample for step in every]
    return rd.Batch.from_rows(
        prompt_ids=[step.context for step in every],
        response_ids=[step.written for step in every],
        response_mask=[torch.ones_like(step.written) for step in every],
        images=tuple(step.shots for step in every),
        group_ids=tuple(np.array(batch.group_ids)[samples].tolist()),
        rewards=batch.rewards[samples],
        sample_columns={
            "traj_uid": np.array(batch.sample_ids)[samples],
            "step_idx": np.array([step.number for step in every]),
        },
        step=batch.step,
        tokenizer=batch.tokenizer,
        meta={"mask_source": "response_mask", "tokenizer": batch.meta["tokenizer"]},
    )
