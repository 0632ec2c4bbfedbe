"""The parts of what a trainer holds, as a Batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.capture.rounds import with_records
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.fields.mapping import batch_from_fields

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.capture.fields import Parts


def batch_of(parts: Parts, step: int | None) -> Batch:
    """Build the batch of a step.

    Raises
    ------
    BatchError
        If a field is missing or does not fit.
    """
    info = parts.info if step is None else {**parts.info, "global_steps": step}
    try:
        batch = batch_from_fields(
            parts.fields,
            source=parts.source,
            columns=parts.columns,
            info=info,
            sample_ids=parts.sample_ids,
        )
    except LoadError as error:
        raise BatchError(str(error)) from error
    if parts.rollout_ids is not None:
        batch = replace(batch, rollout_ids=parts.rollout_ids)
    if parts.round_records is None:
        return batch
    return with_records(batch, parts.round_records)
