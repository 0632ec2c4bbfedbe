"""Rounds in the mask: headers before them, ends of turns, holes from rejection."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.batch.sequence_difference import index_of
from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    fault_at,
    fault_in,
    find_samples,
    merge_faults,
    require_tokens,
)
from rounddiag.checks.rows import starts_context
from rounddiag.checks.tokens import decode_ids, mask_runs, special_ids
from rounddiag.segmentation import Rounds
from rounddiag.text.chat_template import HEADER, TURN_ENDS
from rounddiag.wording import join_names, pluralize

_MAX_HOLE = 3  # tokens: rejected ones are rarely neighbours


def find_holes(batch: Batch) -> Tensor:
    """Find masked tokens inside a round, at most three in a row, that were sampled.

    A trainer that rejects tokens may write 0 into the mask it saves, as verl does with
    `response_mask`. This splits the round and hides the worst tokens. Such tokens have
    1s on both sides and finite sampling log-probabilities below 0; observations have
    none, or are filled with 0. Where more observations than holes have them, the
    sampler scored its input, and there are no holes.
    """
    rounds = batch.rounds
    after = rounds.start + rounds.num_tokens
    same_sample = rounds.sample[1:] == rounds.sample[:-1]
    begin, stop = after[:-1][same_sample], rounds.start[1:][same_sample]
    if batch.rollout_log_probs is None:
        return begin.new_empty(0)
    if batch.round_ids is not None:
        same_round = batch.round_ids[begin - 1] == batch.round_ids[stop]
        begin, stop = begin[same_round], stop[same_round]
    size = stop - begin
    if not ((size > 0) & (size <= _MAX_HOLE)).any():
        return begin.new_empty(0)
    steps = torch.arange(_MAX_HOLE, device=begin.device)
    inside = steps < size[:, None]
    places = torch.minimum(begin[:, None] + steps, stop[:, None] - 1)
    log_probs = batch.rollout_log_probs[places]
    sampled = (~inside | ((log_probs < 0) & log_probs.isfinite())).all(dim=1)
    holes = sampled & (size > 0) & (size <= _MAX_HOLE)
    if (sampled & (size > _MAX_HOLE)).sum() > holes.sum():
        return begin.new_empty(0)
    return places[holes][inside[holes]]


def _find_unknown_rounds(batch: Batch) -> Fault | None:
    """Report what the loader noted: a Batch has rounds even if they are meaningless."""
    if batch.meta.get("rounds") != "unknown":
        return None
    if str(batch.meta.get("mask_source")).startswith("attention_mask"):
        return Fault(
            "the file has no `response_mask`: observations count as generated tokens,"
            " and all rounds of a sample as one"
        )
    why = batch.meta.get("rows", "the file does not say where they begin")
    return Fault(f"every row counts its rounds from 0: {why}")


KNOWN = Contract(
    "the rounds are known",
    "response_mask",
    _find_unknown_rounds,
    effect="numbers per round are not those of the model's turns",
)


def _holes(batch: Batch) -> Fault | None:
    old, rollout = batch.both_log_probs()
    holes = find_holes(batch)
    fault = fault_at(batch, holes, "masked between two of a round")
    if fault is None:
        return None
    away = (old[holes] - rollout[holes]).abs().double()
    away = away[away.isfinite()]
    level = f"mean |diff| {away.mean():.3g} nat there" if len(away) else "no diff there"
    return replace(fault, detail=f"{fault.detail}; {level}")


NO_HOLES = Contract(
    "the mask has no holes",
    "response_mask",
    _holes,
    effect="rejected tokens split rounds, and the metric does not count them",
    kind="bug",
    cause="mask_punched",
    refutes="mask_punched",
    advice="Save the batch before the rejection (verl: before"
    " `compute_rollout_correction_and_add_to_batch`), or pass the mask after it as"
    " `loss_mask`.",
)


# Visible line ends, and thoughts that the template opens or omits.
_REST = re.compile(r"[·↵]*(<think>[·↵]*(</think>[·↵]*)?)?")
_WIDTH = 12  # tokens of a header and what may follow it
_INSIDE = 8  # tokens of a run that are searched for a header


def _wrong_starts(batch: Batch) -> Fault | None:
    batch.require_ids()
    require_tokens(batch)
    if batch.tokenizer is None:
        raise UntestableError(field="tokenizer")
    runs = mask_runs(batch)
    befores = _ids_before(batch, runs)
    if not any(map(len, befores)):
        raise UntestableError(field="prompt_ids")
    texts = _texts(befores, batch.tokenizer)
    if not any(HEADER.search(text) for text in [*texts, *_beginnings(batch, runs)]):
        why = "no round begins after a known assistant header"
        raise UntestableError(field="tokenizer", why=why)
    # A round without known tokens before it is not a failure.
    wrong = [at for at, text in enumerate(texts) if text and not _is_header(text)]
    words = "at the start of a run of the mask, without a header before it"
    fault = fault_at(batch, runs.start[wrong], words)
    return fault and Fault(
        f"{fault.detail}; the first follows {texts[wrong[0]]}", fault.samples
    )


def _is_header(text: str) -> bool:
    headers = list(HEADER.finditer(text))
    return bool(headers) and _REST.fullmatch(text, headers[-1].end()) is not None


def _ids_before(batch: Batch, runs: Rounds) -> list[Array]:
    ids, begins = batch.require_ids().cpu().numpy(), batch.offsets.tolist()
    ends, before = _prompt_ends(batch), []
    for sample, start in zip(runs.sample.tolist(), runs.start.tolist(), strict=True):
        own = ids[max(begins[sample], start - _WIDTH) : start]
        room = _WIDTH - len(own)
        before.append(np.concatenate([ends[sample][-room:], own]) if room else own)
    return _with_ends_of_contexts(batch, runs, before)


def _with_ends_of_contexts(
    batch: Batch, runs: Rounds, before: list[Array]
) -> list[Array]:
    """Replace what is before rounds in whose context other tokens stand last."""
    contexts = batch.contexts
    if contexts is None:
        return before
    places = dict(zip(runs.start.tolist(), range(len(before)), strict=True))
    begins = batch.offsets.tolist()
    for sample in np.unique(contexts.sample).tolist():
        sequence = SampleSequence(batch, sample)
        first = begins[sample] - sequence.num_prompt
        for round_, context in sequence.rewritten.items():
            at = places.get(first + sequence.starts[round_])
            if at is not None:
                before[at] = sequence.ids[index_of(context.ranges)[-_WIDTH:]]
    return before


def _prompt_ends(batch: Batch) -> list[Array]:
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return [np.empty(0, dtype=np.int64)] * batch.num_samples
    ids, limits = batch.prompt_ids.cpu().numpy(), batch.prompt_offsets.tolist()
    return [ids[max(begin, stop - _WIDTH) : stop] for begin, stop in pairwise(limits)]


def _beginnings(batch: Batch, runs: Rounds) -> list[str]:
    """Return the first texts of runs: a mask that begins too early covers headers."""
    ids = batch.require_ids().cpu().numpy()
    stops = runs.start + runs.num_tokens.clamp(max=_INSIDE)
    pairs = zip(runs.start.tolist(), stops.tolist(), strict=True)
    return _texts([ids[begin:stop] for begin, stop in pairs], batch.tokenizer)


def _texts(rows: list[Array], tokenizer: object | None) -> list[str]:
    limits = np.cumsum([0, *map(len, rows)]).tolist()
    texts = decode_ids(np.concatenate(rows).tolist(), tokenizer, starts=limits)
    return ["".join(texts[begin:stop]) for begin, stop in pairwise(limits)]


STARTS = Contract(
    "every round begins after a header",
    "response_mask",
    _wrong_starts,
    effect="text outside of the model's turns may be trained",
)


def _never_stops(batch: Batch) -> Fault | None:
    """Find ends of turns that stand after the runs of the mask, and in none of them.

    A template also ends turns that were cut off: one run that has its end is enough,
    and a round whose recorded `finish_reason` is "length" shows nothing.
    """
    last, ends_turn, ends_response = _ends(batch)
    stored, wanted = batch.require_ids(), _turn_ends(batch)
    following = torch.where(ends_response, last, last + 1)
    is_followed = ~ends_turn & torch.isin(stored[following], wanted)
    sample = find_samples(batch, last)
    is_final = torch.ones_like(ends_turn)
    is_final[:-1] = sample[1:] != sample[:-1]
    is_whole = ~_is_cut(batch, len(last))
    if not is_whole.any():
        raise UntestableError(field="response_mask", why="every round was cut off")
    for runs, which in ((is_whole, ""), (is_whole & is_final, " of the last round")):
        rows = sample[runs & is_followed].unique().tolist()
        if ends_turn[runs].any() or 2 * is_followed[runs].sum() <= runs.sum():
            continue
        detail = (
            f"the end token{which} is in no mask, in {len(rows):,} of"
            f" {pluralize(len(sample.unique()), 'sample')}"
        )
        first = join_names(rows)
        tokens = following[runs & is_followed]
        return Fault(f"{detail}: samples {first}", tuple(rows), tokens)
    return None


def _is_cut(batch: Batch, num_runs: int) -> Tensor:
    is_cut = torch.zeros(num_runs, dtype=torch.bool, device=batch.response_mask.device)
    columns, rounds = batch.round_columns, batch.rounds
    if "finish_reason" not in columns or len(rounds) != num_runs:
        return is_cut
    rows = np.asarray(columns["finish_reason"], dtype=object) == "length"
    keys = {*zip(columns["sample"][rows], columns["round"][rows], strict=True)}
    own = zip(rounds.sample.tolist(), rounds.round.tolist(), strict=True)
    return is_cut | is_cut.new_tensor([key in keys for key in own])


STOPS = Contract(
    "the end of a turn is in the mask",
    "response_mask",
    _never_stops,
    effect="stopping is never trained",
    kind="update",
    cause="untrained_stops",
    advice="Put the end token that the model wrote into the mask of the loss.",
)


def _wrong_ends(batch: Batch) -> Fault | None:
    last, ends_turn, ends_response = _ends(batch)
    if _never_stops(batch) is not None:
        why = "the end of a turn is in no mask"
        raise UntestableError(field="response_mask", why=why)
    is_wrong = ~ends_turn & ~ends_response
    if not is_wrong.any():
        return None
    last, start = last[is_wrong], mask_runs(batch).start[is_wrong]
    ends = torch.isin(batch.require_ids(), _turn_ends(batch)).nonzero()[:, 0]
    first_end = torch.searchsorted(ends, start)
    goes_on = first_end < torch.searchsorted(ends, last, right=True)
    run = "at the end of a run of the mask that"
    return merge_faults(
        fault_at(batch, last[tokens], f"{run} {words}")
        for tokens, words in (
            (~goes_on, "has no end of turn"),
            (goes_on, "goes on after the end of a turn"),
        )
    )


def _cut_off(batch: Batch) -> Fault | None:
    last, ends_turn, ends_response = _ends(batch)
    cut = find_samples(batch, last[~ends_turn & ends_response]).unique().tolist()
    return fault_in(cut, "whose response does not end with its turn")


def _ends(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    stored = batch.require_ids()
    require_tokens(batch)
    wanted = _turn_ends(batch)
    if not torch.isin(stored, wanted).any():
        why = "no response contains a known end-of-turn token"
        raise UntestableError(field="tokenizer", why=why)
    runs = mask_runs(batch)
    last = runs.start + runs.num_tokens - 1
    final = (batch.offsets[:-1] + batch.lengths)[runs.sample] - 1
    ends_row = (last == final) | starts_context(batch).roll(-1)[last]
    return last, torch.isin(stored[last], wanted), ends_row


def _turn_ends(batch: Batch) -> Tensor:
    ids = list(special_ids(batch.tokenizer, TURN_ENDS).values())
    return torch.tensor(ids, device=batch.response_mask.device)


ENDS = Contract(
    "every round ends with its turn",
    "response_mask",
    _wrong_ends,
    effect="the mask does not end where turns do",
)
NOT_CUT = Contract(
    "no last round is cut off",
    "response_ids",
    _cut_off,
    effect="these answers are cut off, and their end is not trained",
    refutes="truncated_round",
)
