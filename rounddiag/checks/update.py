"""What an update uses: log-probs may agree, and training is wrong nevertheless."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    fault_at,
    require_tokens,
)
from rounddiag.checks.rounds import find_holes
from rounddiag.checks.rows import starts_context
from rounddiag.checks.tokens import decode_ids, mask_runs, special_ids
from rounddiag.text.chat_template import TURN_ENDS
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from rounddiag.batch import Batch


_UPDATE = partial(Contract, kind="update")


def _separators(batch: Batch) -> Fault | None:
    ids = batch.require_ids()
    require_tokens(batch)
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        raise UntestableError(field="prompt_ids")
    runs = mask_runs(batch)
    inner = torch.zeros(len(runs), dtype=torch.bool, device=runs.start.device)
    inner[:-1] = runs.sample[1:] == runs.sample[:-1]
    after = (runs.start + runs.num_tokens)[inner]
    after = after[~starts_context(batch)[after]]
    if not len(after):
        raise UntestableError(
            field="response_mask", why="no row has more than one round"
        )
    ends, counts = ids[after - 1].unique(return_counts=True)
    end = int(ends[counts.argmax()])
    separator, following = _of_prompts(batch, end)
    missing = (ids[after - 1] == end) & (ids[after] == following)
    fault = fault_at(batch, after[missing], "")
    if fault is None:
        return None
    names = decode_ids([end, following, separator], batch.tokenizer)
    num = int(missing.sum())
    word = "turn end is" if num == 1 else "turn ends are"
    return Fault(
        f"{num:,} {word} followed by {names[1]}, in"
        f" {pluralize(len(fault.samples), 'sample')}; in the prompts, {names[0]} is"
        f" followed by {names[2]} first",
        fault.samples,
        fault.tokens,
    )


def _of_prompts(batch: Batch, end: int) -> tuple[int, int]:
    """Return the id between the end of a turn and the next turn in prompts, and that.

    They are the same after each turn, or there is nothing to compare with.
    """
    assert batch.prompt_ids is not None  # noqa: S101 for the type checker
    assert batch.prompt_offsets is not None  # noqa: S101
    ids, offsets = batch.prompt_ids, batch.prompt_offsets
    at = (ids == end).nonzero()[:, 0]
    at = at[at + 2 < offsets[torch.searchsorted(offsets, at, right=True)]]
    separators, following = ids[at + 1].unique(), ids[at + 2].unique()
    if len(separators) != 1 or len(following) != 1 or separators[0] == following[0]:
        raise UntestableError(
            field="prompt_ids",
            why="needs prompts in which one separator follows the end of each turn",
        )
    return int(separators[0]), int(following[0])


SEPARATED = _UPDATE(
    "turns are separated as in the prompts",
    "response_ids",
    _separators,
    effect="turns are trained in a context that the template never gives",
    cause="lost_separators",
    advice="Append the ids that the template writes after the end of a turn, with mask"
    " 0.",
)


def _resumed(batch: Batch) -> Fault | None:
    stored = batch.require_ids()
    require_tokens(batch)
    ids = [*special_ids(batch.tokenizer, TURN_ENDS).values()]
    wanted = torch.tensor(ids, device=stored.device)
    num_ends = torch.isin(stored, wanted).cumsum(0)
    rounds = batch.rounds
    stop = rounds.start + rounds.num_tokens
    later = torch.zeros(len(rounds), dtype=torch.bool, device=stop.device)
    later[1:] = rounds.sample[1:] == rounds.sample[:-1]
    if not later.any():
        return None
    ended = torch.isin(stored[stop - 1], wanted)[:-1][later[1:]]
    # Where turns have no end of their own, as in a completion, nothing resumes.
    if 2 * int(ended.sum()) <= len(ended):
        why = "rounds do not end with a known end of turn"
        raise UntestableError(field="tokenizer", why=why)
    begin, last = rounds.start[later], stop[:-1][later[1:]] - 1
    before = num_ends[last] - torch.isin(stored[last], wanted).long()
    resumes = num_ends[begin - 1] == before
    row = starts_context(batch).cumsum(0)
    resumes &= row[begin] == row[last]
    is_hole = resumes & torch.isin(begin - 1, find_holes(batch))
    resumes &= ~is_hole
    if is_hole.any() and resumes.any():
        why = "the mask has holes, of which a round that goes on may be one"
        raise UntestableError(field="response_mask", why=why)
    return fault_at(batch, begin[resumes], "at which a round goes on with an open turn")


RESUMED = _UPDATE(
    "no round resumes inside a turn",
    "response_mask",
    _resumed,
    effect="parts of one turn count as rounds",
    cause="resumed_turns",
    advice="Join the parts of an aborted turn into one round, and mask none of them by"
    " accident.",
)
