"""`batch_from_fields`: from verl's names to the fields of a Batch.

=========================================  =====================================
in the file                                in the Batch
=========================================  =====================================
`responses`                                `response_ids`
`response_mask`, else `loss_mask`, else    `response_mask`; `meta["mask_source"]`
the response part of `attention_mask`      names the field
`rollout_log_probs`, `old_log_probs`       the same
`prompts`, padding removed                 `prompt_ids`
`attention_mask`, response part            `lengths`
`entropys` or `entropy`                    `entropy`
`advantages`, `loss_mask`, `round_ids`     the same
`token_level_scores` or `rm_scores`        `rewards`: their sum over each row
column `rewards`                           `rewards`
`ref_log_prob`, other `*_log_prob(s)`      `scores["ref"]`, ...
`rollout_is_weights`                       `scores["rollout_is"]`
`versions`, one per token                  `min_weight_version` and
                                           `max_weight_version`, of samples and
                                           rounds
`position_ids`, padding removed            `position_ids`
column `uid`                               `group_ids`
`round_records`, `turn_scores`             `round_columns`
other columns, one plain value per row,    `sample_columns`
and entries of `extra_fields`
=========================================  =====================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.layout import PAIR
from rounddiag.checks.log_probs import why_not_measurable
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.fields.columns import (
    expand_entries,
    row_names,
    select_plain_columns,
    take_round_records,
    with_round_records,
    with_versions,
)
from rounddiag.loaders.fields.reader import FieldReader, real_positions, without_padding
from rounddiag.loaders.source import left_out_entry
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
    return {"input_ids": join_names(differences, len(differences)) or "equal"}


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


_WEIGHTS = "rollout_is_weights"  # verl's importance weights, after its correction
# The experts that were chosen at each token, by engine.
_ROUTES = ("rollout_routed_experts", "routed_experts")
_REWARDS = ("token_level_scores", "rm_scores")
SCORE = re.compile(r"(.+)_log_?probs?")  # a further set of log-probabilities
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "do_sample",
    "logprobs_mode",
)


def batch_from_fields(
    fields: Mapping[str, Any],
    *,
    source: object,
    columns: Mapping[str, Any] | None = None,
    info: Mapping[str, Any] | None = None,
    sample_ids: Sequence[str] | None = None,
) -> Batch:
    """Build a batch from fields that are named as in verl."""
    reader = FieldReader(fields, source)
    facts = dict(info or {})
    others = expand_entries(columns or {})
    records = take_round_records(others)
    plain = select_plain_columns(others, len(reader.tokens.lengths))
    groups = plain.pop("uid", None)
    rewards = reader.row_sums(*_REWARDS)
    mask, mask_source = reader.mask()
    scores, unfit = _scores(reader)
    rollout = reader.per_token("rollout_log_probs")
    weights = _optional_per_token(reader, _WEIGHTS)
    if weights is not None and rollout is not None:
        scores["rollout_is"] = weighted_log_probs(rollout, weights, mask)
    parts: dict[str, Any] = {
        "response_ids": reader.tokens.values,
        "response_mask": mask,
        "rollout_log_probs": rollout,
        "old_log_probs": reader.per_token("old_log_probs"),
        "offsets": reader.tokens.offsets,
        **without_padding(reader),
        "entropy": reader.per_token("entropys", "entropy"),
        "advantages": reader.per_token("advantages"),
        "round_ids": reader.per_token("round_ids"),
        "loss_mask": reader.response_part("loss_mask"),
        "rewards": _plain_rewards(plain) if rewards is None else rewards,
        "scores": scores,
        "group_ids": None if groups is None else row_names(groups),
        "sample_ids": None if sample_ids is None else tuple(sample_ids),
        "step": _step(facts),
        "sample_columns": plain,
    }
    parts["meta"] = {
        "source": str(source),
        "mask_source": mask_source,
        **_compare_input_ids(reader),
        **_origins(mask_source, facts),
        **not_measurable(parts),
        **left_out_entry(unfit),
    }
    try:
        batch = Batch(**parts)
        batch = batch if records is None else with_round_records(batch, records)
    except BatchError as error:
        msg = f"{source}: {error}"
        raise LoadError(msg) from error
    versions = _optional_per_token(reader, "versions")
    batch = batch if versions is None else with_versions(batch, versions)
    return _with_routes(batch, reader)


def _optional_per_token(reader: FieldReader, name: str) -> Tensor | None:
    return reader.per_token_if_it_fits(name) if name in reader.names else None


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
    sizes = reader.tokens.lengths.tolist()
    if {*map(len, pairs)} != {len(sizes)}:
        return None
    shares = []
    for start, size, *routes in zip(
        batch.offsets.tolist(), sizes, *pairs, strict=False
    ):
        generated = batch.response_mask[start : start + size] != 0
        experts = [row[len(row) - size :].sort(dim=-1).values for row in routes]
        if experts[0].shape != experts[1].shape:
            return None
        same = (experts[0] == experts[1]).all(dim=-1)[generated].float()
        shares.append(float(same.mean()))
    return shares


def _scores(reader: FieldReader) -> tuple[dict[str, Tensor], list[str]]:
    """Return the other log-probabilities of the same tokens, by name.

    Also returns the names of fields that do not have one value per response token, such
    as verl's `teacher_logprobs`, with several per token of prompt and response.
    """
    scores, unfit = {}, []
    for name in reader.names:
        match = SCORE.fullmatch(name)
        if match is None or match[1] in {"old", "rollout"}:
            continue
        values = reader.per_token_if_it_fits(name)
        if values is None:
            unfit.append(name)
        else:
            scores[match[1]] = values
    return scores, unfit


def _plain_rewards(columns: dict[str, np.ndarray[Any, Any]]) -> Tensor | None:
    """Take numeric rewards out of the columns; None becomes NaN."""
    rewards = columns.get("rewards")
    if rewards is None or rewards.dtype.kind not in "biufO":
        return None
    if any(isinstance(value, str) for value in rewards):
        return None
    return torch.from_numpy(columns.pop("rewards").astype(np.float64))


def _origins(mask_source: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries of `meta` on the origin of the numbers, as far as it is known."""
    rounds = {"rounds": "unknown"} if mask_source == "attention_mask" else {}
    plain = {k: v for k, v in facts.items() if isinstance(v, str | int | float)}
    return {
        **rounds,
        "old_log_probs_source": plain.get("old_log_probs_source", "unknown"),
        "sampling": {name: plain[name] for name in _SAMPLING if name in plain},
    }


def _step(facts: Mapping[str, Any]) -> int | None:
    steps = (facts.get(name) for name in ("global_steps", "global_step", "step"))
    valid = (step for step in steps if isinstance(step, int) and abs(step) < 1 << 63)
    return next(valid, None)


def not_measurable(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return an entry of `meta` if both engines' numbers are identical."""
    known = (parts.get(name) for name in ("response_mask", *PAIR))
    fields = [field for field in known if field is not None]
    fits = len(fields) > len(PAIR) and len({field.shape for field in fields}) == 1
    reason = why_not_measurable(*fields) if fits else ""
    return {"not_measurable": reason} if reason else {}
