"""`batch_from_fields`: from the fields of a table to a Batch; every format ends here.

=========================================  =====================================
in the file (see `loaders.fields`)         in the Batch
=========================================  =====================================
the first mask, its response part          `response_mask`; `meta["mask_source"]`
                                           names the field
prompts, padding removed                   `prompt_ids`
`attention_mask`, response part            `lengths`
`token_level_scores`                       `rewards`: their sum over each row; over each
                                           round, `round_columns["round_reward"]`
one of `advantages` per row                `advantages` of the tokens of the mask
`ref_log_prob`, other `*_log_prob(s)`      `scores["ref"]`, ...
`rollout_is_weights`                       `scores["rollout_is"]`
`versions`, one per token                  `token_columns["weight_version"]`; lowest
                                           and highest of samples and of rounds
`position_ids`, padding removed            `position_ids`
`round_records`, `turn_scores`             `round_columns`
other columns, one plain value per row     `sample_columns`
other columns, one number per token        `token_columns`
=========================================  =====================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.layout import PER_TOKEN, real_rows
from rounddiag.batch.left_out import left_out_entry
from rounddiag.checks.mask import MASKED_PADDING
from rounddiag.columns.sources import Ragged
from rounddiag.core.versions import TRAINER
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.field_reader import FieldReader, real_positions, without_padding
from rounddiag.loaders.fields import (
    SAMPLING,
    SCORE,
    SCORES,
    aliases_of,
    field_of,
    names_where,
)
from rounddiag.loaders.plain_columns import (
    expand_entries,
    row_names,
    select_plain_columns,
    sum_rewards,
    take_round_records,
    with_round_records,
    with_round_rewards,
    with_sample_advantages,
    with_versions,
)
from rounddiag.schema import TOKENS
from rounddiag.wording import join_names


def _compare_input_ids(reader: FieldReader) -> dict[str, str]:
    """Return an entry of `meta` on whether `input_ids` are prompt and response.

    The model ran on `input_ids`. If they differ from prompt and response, the
    log-probabilities belong to other tokens. Padding may differ.
    """
    whole, prompts = reader.rows("input_ids"), reader.prompts
    if whole is None or prompts is None:
        return {}
    fields = (whole, prompts, reader.tokens)
    if len({len(field.lengths) for field in fields}) > 1:
        return {"input_ids": "it has another number of rows"}
    rows = zip(*(field.rows() for field in fields), strict=True)
    unequal = {
        sample: (ids, prompt, response)
        for sample, (ids, prompt, response) in enumerate(rows)
        if not torch.equal(ids, torch.cat([prompt, response]))
    }
    real = real_positions(reader) if unequal else None
    differences = [
        f"sample {sample} {difference}"
        for sample, parts in unequal.items()
        if (difference := _difference(*parts, None if real is None else real[sample]))
    ]
    return {"input_ids": join_names(differences) or "equal"}


def _difference(
    ids: Tensor, prompt: Tensor, response: Tensor, real: Tensor | None
) -> str:
    joined = torch.cat([prompt, response])
    if ids.shape != joined.shape:
        return f"has {len(ids)} of them for {len(joined)} tokens"
    differ = ids != joined if real is None else (ids != joined) & real
    if not differ.any():
        return ""
    at = int(differ.nonzero()[0])
    return f"has {int(ids[at])}, not {int(joined[at])}, at position {at - len(prompt)}"


# Fields per token that a Batch has under the same name.
_PER_TOKEN = [
    name
    for name in names_where(scope="token", part="response")
    if name in PER_TOKEN and name not in ("response_ids", "response_mask")
]
_OF_FRAMES = {column.name for column in TOKENS.columns}  # which a file's would hide
# The experts that each engine chose at each token.
_ROUTES = ("rollout_routed_experts", "routed_experts")


def batch_from_fields(
    fields: Mapping[str, Any],
    *,
    source: object,
    columns: Mapping[str, Any] | None = None,
    info: Mapping[str, Any] | None = None,
    sample_ids: Sequence[str] | None = None,
) -> Batch:
    """Build a batch from fields and columns under the names of `FIELDS`."""
    reader = FieldReader(fields, source)
    facts = dict(info or {})
    others = expand_entries(columns or {})
    records = take_round_records(others)
    plain = select_plain_columns(others, len(reader.tokens.lengths))
    groups = plain.pop("uid", None)
    rewards, note = _rewards(reader, plain)
    mask, mask_source = reader.mask()
    scores, token_columns, unfit = _open_columns(reader)
    tokens = {name: reader.per_token(name) for name in _PER_TOKEN}
    weights = reader.optional("rollout_is_weights")
    rollout = tokens["rollout_log_probs"]
    if weights is not None and rollout is not None:
        scores["rollout_is"] = weighted_log_probs(rollout, weights, mask)
    versions = reader.optional("versions")
    if versions is not None:
        token_columns["weight_version"] = versions
    unpadded = without_padding(reader)
    mask, plain = _without_masked_padding(mask, reader.tokens, unpadded, plain)
    parts: dict[str, Any] = {
        "response_ids": reader.tokens.values,
        "response_mask": mask,
        **tokens,
        "offsets": reader.tokens.offsets,
        **unpadded,
        "rewards": rewards,
        "scores": scores,
        "group_ids": None if groups is None else row_names(groups),
        "sample_ids": None if sample_ids is None else tuple(sample_ids),
        "step": _step(facts),
        "sample_columns": plain,
        "token_columns": token_columns,
    }
    parts["meta"] = {
        "source": str(source),
        "mask_source": mask_source,
        **_compare_input_ids(reader),
        **_origins(mask_source, facts),
        **note,
        **left_out_entry(unfit),
    }
    try:
        batch = Batch(**parts)
        batch = batch if records is None else with_round_records(batch, records)
    except BatchError as error:
        raise LoadError(f"{source}: {error}") from error
    batch = batch if versions is None else with_versions(batch, versions)
    scores_of_tokens = reader.optional(SCORES)
    if scores_of_tokens is not None:
        batch = with_round_rewards(batch, scores_of_tokens)
    return _with_routes(with_sample_advantages(batch), reader)


def _without_masked_padding(
    mask: Tensor,
    tokens: Ragged,
    unpadded: Mapping[str, Any],
    columns: Mapping[str, np.ndarray[Any, Any]],
) -> tuple[Tensor, dict[str, np.ndarray[Any, Any]]]:
    """Return the mask with 0 in the padding, and a column of the 1s that it had there.

    Agent-Lightning 0.3.0 repeats 1s where it merges the turns of a trajectory. The
    check that the mask covers only what the model wrote names them.
    """
    ends = (tokens.offsets[:-1] + unpadded["lengths"]).tolist()
    tails = [*map(slice, ends, tokens.offsets[1:].tolist())]
    counts = np.array([int(mask[tail].count_nonzero()) for tail in tails])
    if not counts.any():
        return mask, {**columns}
    mask = mask.clone()
    for tail in tails:
        mask[tail] = 0
    return mask, {MASKED_PADDING: counts, **columns}


def _open_columns(
    reader: FieldReader,
) -> tuple[dict[str, Tensor], dict[str, Tensor], list[str]]:
    """Return further log-probs by name, the file's own columns of tokens, and the rest.

    The rest has other than one value per response token, such as verl's
    `teacher_logprobs`, with several per token of prompt and response.
    """
    scores, columns, unfit = {}, {}, []
    for name in reader.names:
        field, score = field_of(name), SCORE.fullmatch(name)
        is_score = score is not None and score[1] not in {"old", "rollout"}
        is_read = field is not None and not (
            field.name == SCORES and name != reader.find(SCORES)
        )
        if not is_score and (is_read or not reader.may_fit(name)):
            continue
        values = reader.per_token_if_it_fits(name)
        if values is None or (not is_score and name in _OF_FRAMES):
            unfit.append(name)
        elif score is not None and is_score:
            scores[score[1]] = values
        else:
            columns[name] = values
    return scores, columns, unfit


def weighted_log_probs(rollout: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """Return the sampler's log-probs plus the log of importance weights.

    Where the mask is 0, there are no weights, and the log-probs stay the sampler's.

    Examples
    --------
    >>> half = torch.tensor([0.5, 1.0])
    >>> weighted_log_probs(torch.zeros(2), half, torch.ones(2)).exp().tolist()
    [0.5, 1.0]
    """
    return torch.where(mask != 0, rollout + weights.log(), rollout)


def _with_routes(batch: Batch, reader: FieldReader) -> Batch:
    """Note in `meta` that routed experts were saved, and compare both engines' experts.

    The sample column `same_experts` is the share of generated tokens and layers at
    which both engines chose the same experts.
    """
    names = [name for name in _ROUTES if name in reader.names]
    if not names:
        return batch
    note = f"`{names[0]}` are in the file: the sampler's, for the trainer to replay"
    shares = _same_experts(batch, reader) if len(names) == len(_ROUTES) else None
    columns = dict(batch.sample_columns)
    if shares is not None:
        note = "of both engines: `same_experts` is the share at which they agree"
        columns["same_experts"] = np.array(shares)
    meta = {**batch.meta, "routed_experts": note}
    return replace(batch, sample_columns=columns, meta=meta)


def _same_experts(batch: Batch, reader: FieldReader) -> list[float] | None:
    pairs = [reader.row_list(name) or [] for name in _ROUTES]
    masks = real_rows(batch, batch.response_mask)
    if {*map(len, pairs)} != {len(masks)}:
        return None
    shares = []
    for mask, *routes in zip(masks, *pairs, strict=True):
        experts = [row[len(row) - len(mask) :].sort(dim=-1).values for row in routes]
        if experts[0].shape != experts[1].shape:
            return None
        same = (experts[0] == experts[1]).all(dim=-1)[mask != 0].float()
        shares.append(float(same.mean()))
    return shares


def _rewards(
    reader: FieldReader, columns: dict[str, np.ndarray[Any, Any]]
) -> tuple[Tensor | None, dict[str, str]]:
    """Return rewards and a note on them: of tokens, else of columns, else a sum.

    Numeric rewards are taken out of the columns; None becomes NaN.
    """
    of_tokens = reader.row_sums(SCORES)
    if of_tokens is not None:
        return of_tokens, {}
    rewards = columns.get("rewards")
    is_plain = rewards is not None and rewards.dtype.kind in "biufO"
    if is_plain and not any(isinstance(value, str) for value in columns["rewards"]):
        return torch.from_numpy(columns.pop("rewards").astype(np.float64)), {}
    total, note = sum_rewards(columns)
    return None if total is None else torch.from_numpy(total), note


def _origins(mask_source: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    rounds = {"rounds": "unknown"} if mask_source == "attention_mask" else {}
    plain = {k: v for k, v in facts.items() if isinstance(v, str | int | float)}
    return {
        **rounds,
        "old_log_probs_source": plain.get("old_log_probs_source", "unknown"),
        **({TRAINER: plain[TRAINER]} if TRAINER in plain else {}),
        "sampling": {name: plain[name] for name in SAMPLING if name in plain},
    }


def _step(facts: Mapping[str, Any]) -> int | None:
    steps = map(facts.get, aliases_of("step"))
    valid = (step for step in steps if isinstance(step, int) and abs(step) < 1 << 63)
    return next(valid, None)
