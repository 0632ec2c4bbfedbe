"""NeMo-RL's training data of a step: `train_data_step{N}.jsonl`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks._token_records import TokenRecords
from rounddiag.loaders.json_lines import JsonLines, Record
from rounddiag.loaders.source import Source
from rounddiag.wording import format_names

_STEP = re.compile(r"train_data_step(\d{1,18})")
_ROWS = {
    "token_ids": "token_ids",
    "token_loss_mask": "response_mask",
    "generation_logprobs": "rollout_log_probs",
    "prev_logprobs": "old_log_probs",
}
_SKIPPED = (
    "`prev_logprobs` is 0 at all generated tokens: NeMo-RL skipped the pass"
    " (`force_on_policy_ratio`)"
)


def read_nemo_rl(lines: JsonLines, source: Source) -> Batch:
    """Build a batch from the records of one step.

    - A sample is a whole sequence, padded; `input_lengths` is its length.
    - `token_loss_mask` is the response mask.
    - A sample with a `sample_loss_mask` of 0 was rejected. It keeps its rounds, and its
      `loss_mask` (the product of the two masks) is 0.
    - Messages and other nested values are columns of JSON text.
    - Prompts and groups are derived from the tokens, and `meta` says so. Prompts that
      differ only in their images are one group.
    """
    missing = [name for name in _ROWS if name not in lines.first]
    if missing:
        raise source.error(
            expected=f"`{missing[0]}` in the records of NeMo-RL",
            found=f"only {format_names(lines.first)}",
            advice="Older releases and some of its algorithms do not save it: update"
            " NeMo-RL, and train with GRPO.",
        )
    samples = TokenRecords(source, "token_loss_mask")
    for line in lines:
        # For micro batches of one, NeMo-RL writes lists of one value.
        values = {name: _only(value) for name, value in line.items()}
        _add(samples, Record(values, line=line.line, source=source))
    step = _STEP.search(source.path.name)
    info = {
        "old_log_probs_source": "a pass of its own",
        "step": int(step[1]) if step else None,
    }
    return _with_skipped_pass(samples.batch(info))


def _only(value: Any) -> Any:  # noqa: ANN401 any value of JSON
    if isinstance(value, np.ndarray) and len(value) == 1:
        return value.item()
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _add(samples: TokenRecords, record: Record) -> None:
    rows, columns = samples.split(record, _ROWS)
    rows["loss_mask"] = rows["response_mask"] * (
        columns.get("sample_loss_mask", 1) != 0
    )
    length = _length(record, len(rows["token_ids"]))
    samples.add({name: row[:length] for name, row in rows.items()}, columns)


def _length(record: Record, num_tokens: int) -> int:
    length = record.get("input_lengths")
    if isinstance(length, int) and 0 <= length <= num_tokens:
        return length
    raise record.source.error(
        expected=f"0 to {num_tokens} in `input_lengths` of line {record.line}",
        found=f"{length!r:.40}",
        advice="It must say how many of the tokens are not padding.",
    )


def _with_skipped_pass(batch: Batch) -> Batch:
    if not batch.num_tokens or batch.log_probs("old").any():
        return batch
    return replace(batch, meta={**batch.meta, "not_measurable": _SKIPPED})


NEMO_RL = Format(
    name="training data of a step",
    framework="NeMo-RL",
    files=("train_data_step*.jsonl",),
    keys=("generation_logprobs", "prev_logprobs", "input_lengths"),
    read=read_nemo_rl,
    verified="written by NeMo-RL's own logger function, on a batch made by hand",
)
