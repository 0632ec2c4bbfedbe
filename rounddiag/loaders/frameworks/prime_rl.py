"""What prime-rl exports of each step: `token_exports/step_{S}/rank_{R}.jsonl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.loaders.format import Format
from rounddiag.loaders.tabular.json_lines import SampleRecords, others

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source
    from rounddiag.loaders.tabular.json_lines import JsonLines, Record


_VERSION = 1
_ROWS = {
    "token_ids": "token_ids",
    "loss_mask": "response_mask",
    "inference_logprobs": "rollout_log_probs",
    "trainer_logprobs": "old_log_probs",
}
_USED = {"schema_version", "is_masked", "rewards", *_ROWS}


def read_prime_rl(lines: JsonLines, source: Source) -> Batch:
    """Build a batch from the sequences that one rank exported.

    A log-probability of null was NaN or infinite: it stays a token, as NaN. prime-rl's
    `loss_mask` tells the rounds; `loss_mask` of the batch also leaves out the tokens
    that its loss clipped (`is_masked`). What it computed from the two engines'
    log-probabilities is left out, as rounddiag computes it, and `meta["left_out"]`
    names it. Samples of one group are scattered over the ranks of a step; prompts and
    groups are ours, and `meta` says so.

    Raises
    ------
    LoadError
        If a field is missing, the rows of a line differ in length, or the layout is of
        another version.
    """
    samples = SampleRecords(source, "loss_mask")
    for record in lines:
        _add(samples, record)
    info = {
        "old_log_probs_source": "the training pass itself",
        "global_step": lines.first.get("export_step"),  # comes before `step`
        "step": lines.first.get("step"),
    }
    return samples.batch(info)


def _add(samples: SampleRecords, record: Record) -> None:
    """Add the sample of one record."""
    _check_version(record)
    num_tokens = len(record.row("token_ids"))
    more, columns, left_out = others(record, _USED, num_tokens)
    rows = {name: record.row(key, num_tokens) for key, name in _ROWS.items()}
    mask = rows["response_mask"]
    rows |= {"loss_mask": mask * ~_clipped(record, num_tokens), **more}
    if "rewards" in record:
        columns["rewards"] = _reward(record.row("rewards", num_tokens), mask)
    samples.add(rows, columns)
    samples.left_out |= left_out


def _check_version(record: Record) -> None:
    version = record.get("schema_version")
    if not isinstance(version, int) or version != _VERSION:
        raise record.source.error(
            expected=f"`schema_version` {_VERSION}",
            found=f"{version!r:.40} in line {record.line}",
            advice="Update rounddiag: this one does not know the newer layout.",
        )


def _clipped(record: Record, num_tokens: int) -> Array:
    """Return which tokens the loss left out; null where no loss looked at them."""
    if "is_masked" not in record:
        return np.zeros(num_tokens, dtype=bool)
    found: Array = record.row("is_masked", num_tokens) == 1
    return found


def _reward(rewards: Array, mask: Array) -> float:
    """Return the reward that all generated tokens of a sample have; else NaN."""
    values = np.unique(rewards[mask != 0])
    return float(values[0]) if len(values) == 1 else float("nan")


PRIME_RL = Format(
    name="token export",
    framework="prime-rl",
    files=("rank_*.jsonl",),
    keys=("inference_logprobs", "trainer_logprobs", "schema_version"),
    read=read_prime_rl,
    in_parts=True,
)
