"""Earlier rounds that an engine reads as other ids than those that were written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.contexts import sampler_prompts
from rounddiag.proof.hypotheses.context import drop_tokens
from rounddiag.proof.hypotheses.hypothesis import Edit, register_hypothesis
from rounddiag.proof.hypotheses.steps import Steps
from rounddiag.proof.trajectory import Picture, Request, Samples, Trajectory
from rounddiag.text import pieces
from rounddiag.vision.image_tokens import TokenRuns

Rewrite = Callable[[list[int], Samples], "Sequence[int] | None"]
"""From the ids of a round to those once it is history; None where these are unknown."""


def _rewrite_history(rewrite: Rewrite) -> Edit:
    def edit(trajectory: Trajectory, samples: Samples) -> list[Request] | None:
        rounds = trajectory.rounds
        written = [trajectory.ids[start:stop].tolist() for start, stop in rounds[:-1]]
        history = [rewrite(ids, samples) for ids in written]
        known = [[*ids] for ids in history if ids is not None]
        if len(known) < len(history) or known == written:
            return None
        return [
            _replace(trajectory, known[:number]).score_only(*span)
            for number, span in enumerate(rounds)
        ]

    return edit


def _replace(trajectory: Trajectory, history: list[list[int]]) -> Request:
    """Put other ids in place of the first rounds, and leave out all after the next."""
    parts: list[slice | Tensor] = []
    end = 0
    for (start, stop), new in zip(trajectory.rounds, history, strict=False):
        parts += [slice(end, start), torch.tensor(new, dtype=torch.int64)]
        end = stop
    stop = trajectory.rounds[len(history)][1]
    pictures = Request.of_sample(trajectory).before(trajectory, stop).pictures
    return Request.of_parts(trajectory, [*parts, slice(end, stop)], pictures)


_again = partial(register_hypothesis, cause="retokenised")


@_again(
    "history_rendered",
    "earlier rounds as the model's chat template writes them again",
    needs=("chat",),
)
@_rewrite_history
def _render(ids: list[int], samples: Samples) -> list[int] | None:
    return None if samples.chat is None else samples.chat.render(ids)


@_again(
    "history_retokenised", "earlier rounds as the ids of their text", needs=("chat",)
)
@_rewrite_history
def _retokenise(ids: list[int], samples: Samples) -> list[int] | None:
    return None if samples.chat is None else samples.chat.retokenise(ids)


@_again(
    "thoughts_removed",
    "no thoughts of earlier rounds, as a template that renders again leaves them",
)
@_rewrite_history
def _drop_thoughts(ids: list[int], samples: Samples) -> Sequence[int] | None:
    tokenizer = samples.batch.tokenizer
    return None if tokenizer is None else without_thoughts(ids, tokenizer)


def without_thoughts(ids: Sequence[int], tokenizer: object) -> Sequence[int]:
    """Return the ids behind `</think>`; all where the round has none.

    Examples
    --------
    >>> words = {4: "<think>", 5: "a", 6: "</think>", 7: "b"}
    >>> without_thoughts([4, 5, 6, 7], lambda ids: "".join(words[id_] for id_ in ids))
    [7]
    """
    text = ""
    for index, piece in enumerate(pieces(ids, tokenizer)):
        text += piece
        if "</think>" in text:
            return ids[index + 1 :]
    return ids


@_again(
    "newline_after_rounds_removed", "no first token after each round, such as a newline"
)
def _drop_newlines(trajectory: Trajectory, samples: Samples) -> Request | None:
    gone = torch.zeros(len(trajectory.ids), dtype=torch.bool)
    gone[[end for _, end in trajectory.rounds[:-1]]] = True
    return drop_tokens(trajectory, gone, compact=True)


@register_hypothesis(
    "recorded_prompts", "the prompts that the sampler recorded", cause="prompt_mismatch"
)
def _read_recorded(trajectory: Trajectory, samples: Samples) -> list[Request] | None:
    """Score each round after the ids that the batch has of its call.

    None where a prompt has more pictures than the trajectory had so far.
    """
    prompts = sampler_prompts(samples.batch, trajectory.sample)
    if not prompts:
        return None
    base = Request.of_sample(trajectory)
    requests = []
    for number, (start, stop) in enumerate(trajectory.rounds):
        request: Request | None = base.before(trajectory, stop).score_only(start, stop)
        if number in prompts:
            prompt = prompts[number]
            shown = _shown_before(trajectory, start)
            request = _after(prompt, trajectory, number, shown)
            if request is None and samples.chains.joined.contexts is not None:
                # A context of the training engine has fewer, as behind a summary.
                chain = samples.chains.chains[trajectory.sample]
                shown = Steps(samples, chain.sample).shown_before(chain.rounds[number])
                request = _after(prompt, trajectory, number, shown)
        if request is None:
            return None
        requests.append(request)
    return requests


def _shown_before(trajectory: Trajectory, stop: int) -> list[tuple[Picture, int]]:
    return [
        (Picture(trajectory.sample, index), end - begin)
        for index, (begin, end) in enumerate(trajectory.spans)
        if end <= stop
    ]


def _after(
    prompt: Array,
    trajectory: Trajectory,
    number: int,
    shown: Sequence[tuple[Picture, int]],
) -> Request | None:
    """Return the pass of a round after a prompt, which shows the newest pictures.

    A prompt has all image tokens of a picture, or one that the engine expands. None if
    it has more pictures, or others.
    """
    start, stop = trajectory.rounds[number]
    ids = torch.tensor(prompt)
    pictures: tuple[Picture, ...] = ()
    if trajectory.spans:
        runs = TokenRuns.of_ids(prompt, int(trajectory.ids[trajectory.spans[0][0]]))
        if len(runs.start) > len(shown):
            return None
        newest = shown[len(shown) - len(runs.start) :]
        pictures = tuple(picture for picture, _ in newest)
        repeats = torch.ones(len(ids), dtype=torch.int64)
        for at, length, (_, size) in zip(
            runs.start.tolist(), runs.length.tolist(), newest, strict=True
        ):
            if length not in {1, size}:
                return None
            repeats[at] = size - length + 1
        ids = ids.repeat_interleave(repeats)
    return Request.of_parts(trajectory, [ids, slice(start, stop)], pictures)
