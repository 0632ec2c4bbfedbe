"""Fields under verl's names as a Batch: the one table of names.

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
`position_ids`, padding removed            `position_ids`
column `uid`                               `group_ids`
other columns with one plain value a row   `sample_columns`
=========================================  =====================================
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch import Batch
from rounddiag.batch.layout import REQUIRED
from rounddiag.checks.log_probs import why_not_measurable
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.fields.padding import real_positions, without_padding
from rounddiag.loaders.fields.reader import FieldReader
from rounddiag.wording import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def plain_columns(
    columns: Mapping[str, Any], num_samples: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns that hold one plain value (text, number, flag) a sample.

    Parameters
    ----------
    columns : mapping of str to sequence or array
    num_samples : int

    Returns
    -------
    dict of str to array
        Columns of dictionaries, lists or objects are left out.

    Examples
    --------
    >>> plain_columns({"turns": [2, 3], "text": ["a", None], "chat": [[], []]}, 2)
    {'turns': array([2, 3]), 'text': array(['a', None], dtype=object)}
    """
    arrays = {name: _plain(values) for name, values in columns.items()}
    return {
        name: values
        for name, values in arrays.items()
        if values is not None and len(values) == num_samples
    }


def _plain(values: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values if values.ndim == 1 else None
    items = [v.item() if isinstance(v, np.generic) else v for v in values]
    if not all(v is None or isinstance(v, str | int | float) for v in items):
        return None
    kinds = {type(v) for v in items}
    if kinds in ({bool}, {float}) or (kinds == {int} and _fit_int64(items)):
        return np.array(items)
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def _fit_int64(values: list[int]) -> bool:
    return all(-(1 << 63) <= value < 1 << 63 for value in values)


def compare_input_ids(reader: FieldReader) -> dict[str, str]:
    """Return an entry of `meta`: whether `input_ids` are prompt and response.

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
    """Build a batch from fields that are named as in verl.

    Parameters
    ----------
    fields : mapping of str to rows
        Padded tensors, nested tensors, or sequences of rows. Only those in the table
        above are looked up, so the mapping may read each from a file.
    source : path-like
        Their origin, for messages and `meta["source"]`.
    columns : mapping of str to sequence, optional
        One value per sample. Columns of lists, dictionaries and objects are left out.
    info : mapping, optional
        Facts about the whole batch: verl's `meta_info`.
    sample_ids : sequence of str, optional
        A name for each sample.

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If a required field is missing or the fields do not fit together.
    """
    reader = FieldReader(fields, source)
    facts = dict(info or {})
    kept = plain_columns(columns or {}, len(reader.tokens.lengths))
    groups = kept.pop("uid", None)
    rewards = reader.row_sums(*_REWARDS)
    mask, mask_source = reader.mask()
    parts: dict[str, Any] = {
        "response_ids": reader.tokens.values,
        "response_mask": mask,
        "rollout_log_probs": reader.log_probs("rollout_log_probs"),
        "old_log_probs": reader.log_probs("old_log_probs"),
        "offsets": reader.tokens.offsets,
        **without_padding(reader),
        "entropy": reader.per_token("entropys", "entropy"),
        "advantages": reader.per_token("advantages"),
        "round_ids": reader.per_token("round_ids"),
        "loss_mask": reader.response_part("loss_mask"),
        "rewards": _plain_rewards(kept) if rewards is None else rewards,
        "scores": _scores(reader),
        "group_ids": None if groups is None else tuple(map(str, groups)),
        "sample_ids": None if sample_ids is None else tuple(sample_ids),
        "step": _step(facts),
        "sample_columns": kept,
    }
    parts["meta"] = {
        "source": str(source),
        "mask_source": mask_source,
        **compare_input_ids(reader),
        **_origins(mask_source, facts),
        **not_measurable(parts),
    }
    try:
        return Batch(**parts)
    except BatchError as error:
        msg = f"{source}: {error}"
        raise LoadError(msg) from error


def _scores(reader: FieldReader) -> dict[str, Tensor]:
    """Return the other log-probabilities of the same tokens, by name."""
    scores = {}
    for name in reader.names:
        match = SCORE.fullmatch(name)
        if match and match[1] not in {"old", "rollout"}:
            scores[match[1]] = reader.per_token(name)
    return {name: value for name, value in scores.items() if value is not None}


def _plain_rewards(columns: dict[str, np.ndarray[Any, Any]]) -> Tensor | None:
    """Remove the rewards from the columns if they are numbers; None becomes NaN."""
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
    return next((step for step in steps if isinstance(step, int)), None)


def not_measurable(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return an entry of `meta` if both engines' numbers are identical."""
    fields = [parts[name] for name in REQUIRED[1:]]
    fits = len({field.shape for field in fields}) == 1
    reason = why_not_measurable(*fields) if fits else ""
    return {"not_measurable": reason} if reason else {}
