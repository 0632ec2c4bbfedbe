"""Trajectories of agents as a batch: with token ids, calls or texts alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain, takewhile
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.contexts import context_columns
from rounddiag.batch.layout import as_tensor
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.batch.picture_places import with_pictures
from rounddiag.batch.turns import as_turns
from rounddiag.columns.column import is_real
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.assembly.turns import Transcript
from rounddiag.loaders.plain_columns import (
    collect_columns,
    record_columns,
    replaced_names,
    row_names,
    select_plain_columns,
    sum_rewards,
    with_sample_advantages,
)
from rounddiag.loaders.source import Source
from rounddiag.schema import ERROR
from rounddiag.segmentation import find_rounds
from rounddiag.vision import Screenshot
from rounddiag.wording import pluralize

REF = "ref"  # the further log-probs that the tokens of a turn may have


def batch_of(
    trajectories: Iterable[Transcript], source: Source, **meta: object
) -> Batch:
    """Return trajectories as a batch: with token ids if all rounds have them."""
    samples = [*trajectories]
    rounds = [turn for transcript in samples for turn in transcript.rounds]
    if not rounds:
        failed = [
            e for transcript in samples if (e := transcript.columns.get(ERROR.name))
        ]
        raise source.error(
            expected="trajectories in which a model wrote something",
            found=f"{len(samples)} without an answer"
            + "".join(f", {error!s:.80}" for error in failed[:1]),
            advice="Pass the file that is written after the episodes have run.",
        )
    num_called = sum(turn.call is not None for turn in rounds)
    num_with_ids = num_called + sum(turn.tokens is not None for turn in rounds)
    has_ids = num_with_ids == len(rounds)
    columns, left_out = collect_columns([transcript.columns for transcript in samples])
    plain = select_plain_columns(columns, len(samples))
    lost = [name for name in columns if name not in plain]
    rewards, groups = plain.get("rewards"), plain.pop("uid", None)
    if rewards is not None and all(v is None or is_real(v) for v in rewards.tolist()):
        del plain["rewards"]
    names = [
        min(transcript.names, key=transcript.names.__getitem__, default="")
        for transcript in samples
    ]
    facts = {
        "source": str(source.path),
        "mask_source": "the turns of the model",
        **meta,
        **left_out_entry(
            {*left_out, *lost}.union(*(transcript.left_out for transcript in samples))
        ),
        **_notes(samples, num_with_ids, len(rounds)),
    }
    if rewards is None:
        rewards, note = sum_rewards(plain)
        facts |= note
    names_of_groups = None if groups is None else row_names(groups)
    if names_of_groups is None and (names_of_groups := _prompt_groups(samples)):
        facts["group_source"] = "samples whose prompts have the same text"
    fields: dict[str, Any] = {
        "rewards": None if rewards is None else [*map(_number, rewards.tolist())],
        "step": _only_step(plain),
        "group_ids": names_of_groups,
        "sample_ids": tuple(names) if len({*names} - {""}) == len(names) else None,
        "sample_columns": plain,
        "meta": facts,
    }
    try:
        build = _with_calls if num_called else _with_ids
        build = build if has_ids else _with_text
        return with_sample_advantages(build(samples, fields))
    except BatchError as error:
        raise LoadError(f"{source.path}: {error}") from error


def _number(value: Any) -> float:  # noqa: ANN401 of any column
    return float(value) if is_real(value) else float("nan")


def _prompt_groups(samples: Sequence[Transcript]) -> tuple[str, ...] | None:
    prompts = [
        [*takewhile(lambda turn: not turn.is_round, transcript.turns)]
        for transcript in samples
    ]
    keys = [
        "".join(f"{turn.role}\0{turn.text}\0" for turn in turns) for turns in prompts
    ]
    if not all(any(turn.text for turn in turns) for turns in prompts):
        return None
    return tuple(
        blake2b(key.encode(errors="replace"), digest_size=8).hexdigest() for key in keys
    )


def _only_step(columns: dict[str, Array]) -> int | None:
    steps = {*columns["step"].tolist()} if "step" in columns else {None}
    if len(steps) > 1 or type(step := steps.pop()) is not int:
        return None
    del columns["step"]
    return step


def _notes(
    samples: Sequence[Transcript], num_with_ids: int, num_rounds: int
) -> dict[str, object]:
    notes: dict[str, object] = {}
    if 0 < num_with_ids < num_rounds:
        share = f"{num_with_ids} of {pluralize(num_rounds, 'round')} have them"
        notes["token_ids"] = f"left out: {share}"
    if num_blocks := sum(transcript.num_unread_blocks for transcript in samples):
        notes["num_unread_blocks"] = num_blocks
    if num_silent := sum(not transcript.rounds for transcript in samples):
        notes["answers"] = (
            f"{num_silent} of {pluralize(len(samples), 'sample')} have none"
        )
    if num_unread := sum(transcript.num_unread for transcript in samples):
        missing = f"{pluralize(num_unread, 'picture')} missing or outside the folder"
        notes["screenshots"] = [missing]
    return notes


def _with_text(samples: Sequence[Transcript], fields: dict[str, Any]) -> Batch:
    rounds = [
        [index for index, turn in enumerate(transcript.turns) if turn.is_round]
        for transcript in samples
    ]
    pictures = [_shots(*pair) for pair in zip(samples, rounds, strict=True)]
    turns = [
        [(turn.role, turn.text, next(shots)) for turn in transcript.turns]
        for transcript, shots in zip(samples, map(iter, pictures), strict=True)
    ]
    return Batch.from_turns(
        turns, round_columns=_round_columns(samples, rounds), **fields
    )


def _with_ids(samples: Sequence[Transcript], fields: dict[str, Any]) -> Batch:
    rows = [_token_rows(transcript) for transcript in samples]
    names = dict.fromkeys(name for row in rows for name in row)
    none = np.empty(0, dtype=np.int64)
    unknown = [np.full(len(row.get("response_ids", none)), np.nan) for row in rows]
    tokens = {
        name: [row.get(name, gap) for row, gap in zip(rows, unknown, strict=True)]
        for name in names
    }
    tokens["prompt_ids"] = [row.get("prompt_ids", none) for row in rows]
    turn_of_token = [row.astype(np.int64) for row in tokens.pop("round_ids")]
    scores = {name: tokens.pop(name) for name in (REF,) if name in tokens}
    marks = zip(tokens["rollout_log_probs"], tokens["response_mask"], strict=True)
    if all(np.isnan(row[mask != 0]).all() for row, mask in marks):
        del tokens["rollout_log_probs"]  # ids alone
    batch = Batch.from_rows(
        round_ids=turn_of_token,
        turns=_plain_turns(samples),
        scores=scores,
        **tokens,
        **fields,
    )
    if len(batch.rounds) == len(find_rounds(batch.response_mask, batch.offsets)):
        batch = replace(batch, round_ids=None)  # the mask alone separates the rounds
    starts = np.concatenate(turn_of_token)[batch.rounds.start.numpy()]
    return _with_rounds(batch, samples, starts)


def _with_calls(samples: Sequence[Transcript], fields: dict[str, Any]) -> Batch:
    """Join the calls of each sample: steps, each with a context of its own."""
    none = np.empty(0, dtype=np.int64)
    calls = [
        (number, index, turn.call)
        for number, transcript in enumerate(samples)
        for index, turn in enumerate(transcript.turns)
        if turn.is_round and turn.call
    ]
    calls += [
        (number, 0, (none, none, None))  # it ended before the first call
        for number, transcript in enumerate(samples)
        if not transcript.rounds
    ]
    calls.sort(key=lambda call: call[:2])
    is_scored = any(log_probs is not None for _, _, (*_, log_probs) in calls)
    steps = [
        {
            "trajectory": number,
            "step": index,
            "prompt_ids": prompt,
            "response": written,
            **({"rollout_log_probs": log_probs} if is_scored else {}),
        }
        for number, index, (prompt, written, log_probs) in calls
    ]
    joined = Batch.from_steps(steps)
    turn_of_step = np.array([index for _, index, _ in calls])
    rewards = fields["rewards"]
    others = {
        **fields,
        "rewards": None if rewards is None else as_tensor("rewards", rewards),
        "turns": as_turns(_plain_turns(samples)),
    }
    known = joined.round_columns
    turn_of_round = turn_of_step[known["row"]]
    batch = _with_rounds(replace(joined, **others), samples, turn_of_round)
    keys = {name: known[name] for name in ("sample", "round")}
    derived = context_columns(batch)
    lost = replaced_names(batch.round_columns, derived)
    return replace(
        batch,
        round_columns={**keys, **batch.round_columns, **derived},
        meta={**batch.meta, **left_out_entry({*left_out_of(batch), *lost})},
    )


def _plain_turns(samples: Sequence[Transcript]) -> list[list[tuple[str, str, int]]]:
    return [
        [(turn.role, turn.text, len(turn.images)) for turn in transcript.turns]
        for transcript in samples
    ]


def _with_rounds(
    batch: Batch, samples: Sequence[Transcript], turn_of_round: Array
) -> Batch:
    ends = np.searchsorted(batch.rounds.sample.numpy(), range(1, len(batch)))
    parts = [row.tolist() for row in np.split(turn_of_round, ends)]
    batch = replace(batch, round_columns=_round_columns(samples, parts))
    shots = [[*chain(*_shots(*pair))] for pair in zip(samples, parts, strict=True)]
    return with_pictures(batch, shots)


def _token_rows(transcript: Transcript) -> dict[str, Array]:
    """Return the tokens of a sample; its prompt ends before the first round."""
    parts = [
        (index, turn.tokens)
        for index, turn in enumerate(transcript.turns)
        if turn.tokens
    ]
    if not parts:  # it ended before the first call
        return {}
    whole = {
        name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]
    }
    sizes = [len(part["response_mask"]) for _, part in parts]
    whole["round_ids"] = np.repeat([index for index, _ in parts], sizes)
    written = np.flatnonzero(whole["response_mask"])
    start = int(written[0]) if len(written) else sum(sizes)
    prompt = whole["response_ids"][:start]
    return {"prompt_ids": prompt, **{k: row[start:] for k, row in whole.items()}}


def _shots(transcript: Transcript, rounds: Sequence[int]) -> list[list[Screenshot]]:
    after = np.searchsorted(rounds, range(len(transcript.turns))).tolist()
    return [
        [
            replace(shot, round=index if index < len(rounds) else None)
            for shot in turn.images
        ]
        for turn, index in zip(transcript.turns, after, strict=True)
    ]


def _round_columns(
    samples: Sequence[Transcript], rounds: Sequence[Sequence[int]]
) -> dict[str, Array]:
    rows = []
    for sample, places in enumerate(rounds):
        for index, at in enumerate(places):
            turn = samples[sample].turns[at]
            action = {} if turn.action is None else {"action": turn.action}
            rows.append((sample, index, {**turn.columns, **action}))
    columns, _ = record_columns(rows)
    return columns if any(record for _, _, record in rows) else {}
