"""prime-rl's token export of a step: `token_exports/step_{S}/rank_{R}.jsonl`."""

from __future__ import annotations

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks._token_records import TokenRecords
from rounddiag.loaders.json_lines import JsonLines, Record
from rounddiag.loaders.source import Source

_VERSION = 1
_ROWS = {
    "token_ids": "token_ids",
    "loss_mask": "response_mask",
    "inference_logprobs": "rollout_log_probs",
    "trainer_logprobs": "old_log_probs",
}
_USED = {"schema_version", "is_masked", "rewards"}
_COMPUTED = {
    *("importance_ratio", "log_importance_ratio", "prob_delta", "mismatch_kl"),
    *("is_masked_high", "is_masked_low"),
}


def read_prime_rl(lines: JsonLines, source: Source) -> Batch:
    """Build a batch from the sequences that one rank exported.

    - prime-rl's `loss_mask` is the response mask. The batch's `loss_mask` is also 0 at
      tokens that the loss clipped (`is_masked`).
    - A log-probability of null was NaN or infinite; it becomes NaN.
    - Statistics that prime-rl computed from both engines' log-probabilities are left
      out and named in `meta["left_out"]`: rounddiag computes them itself.
    - Prompts and groups are derived from the tokens, and `meta` says so. Samples of one
      group are scattered over the ranks of a step.
    """
    samples = TokenRecords(source, "loss_mask", _COMPUTED)
    for record in lines:
        _add(samples, record)
    info = {
        "old_log_probs_source": "the training pass itself",
        "global_step": lines.first.get("export_step"),  # comes before `step`
        "step": lines.first.get("step"),
    }
    return samples.batch(info)


def _add(samples: TokenRecords, record: Record) -> None:
    _check_version(record)
    rows, columns = samples.split(record, _ROWS, _USED)
    mask = rows["response_mask"]
    rows["loss_mask"] = mask * ~_find_clipped(record, len(mask))
    if "rewards" in record:
        columns["rewards"] = _reward(record.row("rewards", len(mask)), mask)
    samples.add(rows, columns)


def _check_version(record: Record) -> None:
    version = record.get("schema_version")
    if not isinstance(version, int) or version != _VERSION:
        raise record.source.error(
            expected=f"`schema_version` {_VERSION}",
            found=f"{version!r:.40} in line {record.line}",
            advice="Update rounddiag: this one does not know the newer layout.",
        )


def _find_clipped(record: Record, num_tokens: int) -> Array:
    """Return which tokens the loss clipped; null, where no loss applied, is False."""
    if "is_masked" not in record:
        return np.zeros(num_tokens, dtype=bool)
    return record.row("is_masked", num_tokens) == 1


def _reward(rewards: Array, mask: Array) -> float:
    """Return the reward that all generated tokens share, or NaN."""
    values = np.unique(rewards[mask != 0])
    return float(values[0]) if len(values) == 1 else float("nan")


PRIME_RL = Format(
    name="token export",
    framework="prime-rl",
    files=("rank_*.jsonl",),
    keys=("inference_logprobs", "trainer_logprobs", "schema_version"),
    read=read_prime_rl,
    verified="written by prime-rl's TokenExporter, on a micro batch made by hand",
    in_parts=True,
)
