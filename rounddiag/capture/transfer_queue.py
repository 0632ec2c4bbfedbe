"""Rows of verl's V1 trainer, which holds keys of a TransferQueue instead of tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.capture.fields import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.capture.fields import Parts

# What a row has none of, the queue leaves out.
FIELDS = [
    *("prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs"),
    *("ref_log_prob", "entropy", "rm_scores", "rollout_ids"),
    *("uid", "session_id", "num_turns", "data_source", "agent_name", "extra_fields"),
]
LATER = [
    *("responses", "response_mask", "rm_scores", "ref_log_prob", "advantages"),
    "rollout_is_weights",
]
_INPUTS, _PADDING = "multi_modal_inputs", "is_padding"


def queued_parts(batch: Any, tq: Any, fields: Sequence[str]) -> Parts:  # noqa: ANN401 a KVBatchMeta and the module transfer_queue, which need not be installed
    """Fetch fields of the rows of a batch, those excepted that only fill it up.

    Tags become columns, and keys the samples' names.
    """
    keys = _keys(batch)
    tags = [tag for tag in batch.tags if not tag.get(_PADDING)]
    parts = parts_of(tq.kv_batch_get(keys, batch.partition_id, select_fields=fields))
    names = dict.fromkeys(name for tag in tags for name in tag if name != _PADDING)
    columns = {name: [tag.get(name) for tag in tags] for name in names}
    return replace(
        parts,
        columns={**columns, **parts.columns},
        info={**parts.info, **(batch.extra_info or {})},
        sample_ids=keys,
    )


def queued_inputs(batch: Any, tq: Any, samples: Sequence[int]) -> Sequence[Any]:  # noqa: ANN401 as above
    """Fetch what the model's processor made of the pictures of some samples."""
    keys = _keys(batch)
    chosen = [keys[sample] for sample in samples]
    rows = tq.kv_batch_get(chosen, batch.partition_id, select_fields=[_INPUTS])
    return parts_of(rows).inputs or [None] * len(samples)


def _keys(batch: Any) -> list[str]:  # noqa: ANN401 as above
    pairs = zip(batch.keys, batch.tags, strict=True)
    return [key for key, tag in pairs if not tag.get(_PADDING)]
