"""What NeMo-RL saves of each step: `train_data_step{N}.jsonl`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.format import Format
from rounddiag.loaders.messages import format_names
from rounddiag.loaders.tabular.json_lines import Record, SampleRecords, others

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source
    from rounddiag.loaders.tabular.json_lines import JsonLines


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

    A sample is a whole sequence, padded to the longest; `input_lengths` says where it
    ends. `token_loss_mask` tells the rounds. A sample with a `sample_loss_mask` of 0
    was rejected: it stays, with its rounds, and only `loss_mask` (the product of the
    two) is 0 for it. Messages and other values that are not plain are columns of JSON
    text. Prompts and groups are ours, and `meta` says so: prompts that differ in their
    images alone are one group.

    Raises
    ------
    LoadError
        If a field is missing, or the rows of a line differ in length.
    """
    lacking = [name for name in _ROWS if name not in lines.first]
    if lacking:
        raise source.error(
            expected=f"`{lacking[0]}` in the records of NeMo-RL",
            found=f"only {format_names(lines.first)}",
            advice="Older releases and some of its algorithms do not save it: update"
            " NeMo-RL, and train with GRPO.",
        )
    samples = SampleRecords(source, "token_loss_mask")
    for line in lines:
        _add(samples, Record(_unwrapped(line), line=line.line, source=source))
    step = _STEP.search(source.path.name)
    info = {
        "old_log_probs_source": "a pass of its own",
        "step": int(step[1]) if step else None,
    }
    return _without_pass(samples.batch(info))


def _unwrapped(record: Record) -> dict[str, Any]:
    """Take values out of the lists of one that a micro batch of one sample leaves."""
    return {name: _only(value) for name, value in record.items()}


def _only(value: Any) -> Any:  # noqa: ANN401 any value of JSON
    if isinstance(value, np.ndarray) and len(value) == 1:
        return value.item()
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _add(samples: SampleRecords, record: Record) -> None:
    """Add the sample of one record, without its padding."""
    num_tokens = len(record.row("token_ids"))
    more, columns, left_out = others(record, _ROWS, num_tokens)
    rows = {name: record.row(key, num_tokens) for key, name in _ROWS.items()}
    is_kept = columns.get("sample_loss_mask", 1) != 0
    rows |= {"loss_mask": rows["response_mask"] * is_kept, **more}
    length = _length(record, num_tokens)
    samples.add({name: row[:length] for name, row in rows.items()}, columns)
    samples.left_out |= left_out


def _length(record: Record, num_tokens: int) -> int:
    length = record.get("input_lengths")
    if isinstance(length, int) and 0 <= length <= num_tokens:
        return length
    raise record.source.error(
        expected=f"0 to {num_tokens} in `input_lengths` of line {record.line}",
        found=f"{length!r:.40}",
        advice="It must say how many of the tokens are no padding.",
    )


def _without_pass(batch: Batch) -> Batch:
    """Say so where the training engine's pass was skipped."""
    generated = batch.response_mask != 0
    if not generated.any() or batch.old_log_probs[generated].any():
        return batch
    return replace(batch, meta={**batch.meta, "not_measurable": _SKIPPED})


NEMO_RL = Format(
    name="training data of a step",
    framework="NeMo-RL",
    files=("train_data_step*.jsonl",),
    keys=("generation_logprobs", "prev_logprobs", "input_lengths"),
    read=read_nemo_rl,
)
