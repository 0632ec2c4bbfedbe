"""Validation of the fields of a Batch, on construction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.layout import PAIR, PER_SAMPLE, POSITION_TABLES, require_plain
from rounddiag.errors import BatchError
from rounddiag.wording import encodable

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch


def encodable_names(batch: Batch) -> dict[str, Any]:
    """Return the ids and the names of columns, with lone surrogates escaped.

    Neither frames nor files can hold lone surrogates.
    """
    ids = {name: getattr(batch, name) for name in ("group_ids", "sample_ids")}
    changes: dict[str, Any] = {k: _encodable_ids(k, v) for k, v in ids.items() if v}
    for table in (*POSITION_TABLES, "sample_columns", "round_columns"):
        columns = getattr(batch, table)
        if any(encodable(name) != name for name in columns):
            changes[table] = {
                encodable(name): values for name, values in columns.items()
            }
    return changes


def _encodable_ids(name: str, ids: Sequence[object]) -> tuple[str, ...]:
    other = next((at for at, name in enumerate(ids) if not isinstance(name, str)), None)
    if other is not None:
        raise BatchError.build(
            key=name,
            expected="a text per sample",
            found=f"{ids[other]!r:.40} at sample {other}",
            advice="Name every sample, for example by its number, or leave it out.",
        )
    return tuple(map(encodable, map(str, ids)))


def check_fields(batch: Batch) -> None:
    """Raise a BatchError if shapes, lengths or dtypes do not fit."""
    _check_tensors(batch)
    _check_offsets(batch)
    _check_per_token(batch)
    _check_dtypes(batch)
    _check_per_sample(batch)
    _check_prompts(batch)
    _check_round_columns(batch)


def check_rounds(batch: Batch) -> None:
    """Raise a BatchError if the mask marks padding or has values besides 0 and 1."""
    rounds, offsets = batch.rounds, batch.offsets
    if len(rounds) == 0:
        return
    # It is enough to check the last round of each sample.
    last = torch.searchsorted(rounds.start, offsets[1:]) - 1
    stop = rounds.start[last] + rounds.num_tokens[last]
    end = offsets[:-1] + batch.lengths
    beyond = (last >= 0) & (stop > end) & (rounds.start[last] >= offsets[:-1])
    if beyond.any():
        sample = int(beyond.nonzero()[0])
        raise BatchError.build(
            key="response_mask",
            expected=f"0 beyond the {int(batch.lengths[sample])} real positions"
            f" of sample {sample}",
            found="1 in its padding",
            advice="Correct `lengths`, or mask out the padding.",
        )


def _check_tensors(batch: Batch) -> None:
    optional = ("rewards", "prompt_ids", "prompt_offsets")
    others = {name: getattr(batch, name) for name in ("offsets", "lengths", *optional)}
    for name, value in (*_per_position(batch), *others.items()):
        if value is not None:
            require_plain(name, value)


def _per_position(batch: Batch) -> Iterator[tuple[str, torch.Tensor]]:
    yield from batch.per_token.items()
    for table in POSITION_TABLES:
        yield from getattr(batch, table).items()


def _check_offsets(batch: Batch) -> None:
    num_positions, offsets, lengths = batch.num_positions, batch.offsets, batch.lengths
    fits = (
        offsets.dtype == lengths.dtype == torch.int64
        and tuple(offsets.shape) == (len(lengths) + 1,)
        and int(offsets[0]) == 0
        and int(offsets[-1]) == num_positions
        and bool((offsets.diff() >= 0).all())
    )
    if not fits:
        raise BatchError.build(
            key="offsets",
            expected=f"non-decreasing int64 values from 0 to {num_positions}, one more"
            " than `lengths`",
            found=f"{offsets.dtype} of shape {tuple(offsets.shape)}",
            advice="Build the batch with `Batch.from_padded` or `Batch.from_rows`.",
        )
    if bool(((lengths < 0) | (lengths > offsets.diff())).any()):
        raise BatchError.build(
            key="lengths",
            expected="values from 0 to the stored length of each sample",
            found=f"values from {int(lengths.min())} to {int(lengths.max())}",
            advice="Pass the number of real positions of each row.",
        )


def _check_per_token(batch: Batch) -> None:
    shape, device = batch.response_mask.shape, batch.response_mask.device
    for name, value in _per_position(batch):
        if value.shape != shape or value.device != device:
            raise BatchError.build(
                key=name,
                expected=f"shape {tuple(shape)} on {device}, as `response_mask`",
                found=f"shape {tuple(value.shape)} on {value.device}",
                advice="Cut every field to the response before building the batch.",
            )


def _check_dtypes(batch: Batch) -> None:
    pair = {name: batch.per_token.get(name) for name in PAIR}
    for name, value in {**pair, **batch.scores}.items():
        if value is not None:
            _check_floating(name, value)
    for name, value in batch.token_columns.items():
        if value.is_complex():
            raise BatchError.build(
                key=name,
                expected="numbers or flags",
                found=str(value.dtype),
                advice="Pass the real and the imaginary part as two columns.",
            )
    for name in ("response_ids", "prompt_ids"):
        ids = getattr(batch, name)
        if (
            ids is not None
            and len(ids)
            and (ids.is_floating_point() or ids.is_complex())
        ):
            raise BatchError.build(
                key=name,
                expected="integers",
                found=str(ids.dtype),
                advice="Pass token ids.",
            )


def _check_floating(name: str, value: torch.Tensor) -> None:
    if not value.dtype.is_floating_point:
        raise BatchError.build(
            key=name,
            expected="floating-point log-probabilities",
            found=str(value.dtype),
            advice="Pass log-probabilities in nats.",
        )


def _check_per_sample(batch: Batch) -> None:
    named = {name: getattr(batch, name) for name in ("rewards", *PER_SAMPLE)}
    for name, value in {**named, **batch.sample_columns}.items():
        if name in batch.sample_columns:
            _check_array(name, value)
        if value is not None and len(value) != batch.num_samples:
            raise BatchError.build(
                key=name,
                expected=f"{batch.num_samples} values, one per sample",
                found=f"{len(value)}",
                advice="Pass one value per sample.",
            )


def _check_array(name: str, values: object) -> None:
    if not isinstance(values, np.ndarray) or not values.ndim:
        raise BatchError.build(
            key=name,
            expected="an array with a value per row",
            found=f"a {type(values).__name__}",
            advice="Convert the column with `numpy.array`.",
        )


def _check_prompts(batch: Batch) -> None:
    ids, offsets = batch.prompt_ids, batch.prompt_offsets
    if ids is None and offsets is None:
        return
    if (
        ids is None
        or offsets is None
        or tuple(offsets.shape) != (batch.num_samples + 1,)
        or int(offsets[-1]) != len(ids)
    ):
        raise BatchError.build(
            key="prompt_offsets",
            expected=f"{batch.num_samples + 1} values, the last equal to the number of"
            " `prompt_ids`",
            found="none" if offsets is None else f"shape {tuple(offsets.shape)}",
            advice="Build the batch with `Batch.from_padded` or `Batch.from_rows`.",
        )


def _check_round_columns(batch: Batch) -> None:
    columns = batch.round_columns
    for name, values in columns.items():
        _check_array(name, values)
    sizes = {name: len(values) for name, values in columns.items()}
    if columns and (
        len(set(sizes.values())) > 1 or not {"sample", "round"} <= {*sizes}
    ):
        raise BatchError.build(
            key="round_columns",
            expected="`sample`, `round` and columns of the same length",
            found=f"lengths {sizes}",
            advice="Give the sample and round of each row.",
        )
    keys = [columns[name] for name in ("sample", "round") if columns]
    dtypes = [str(values.dtype) for values in keys if len(values)]
    if not all(dtype.startswith(("int", "uint")) for dtype in dtypes):
        raise BatchError.build(
            key="round_columns",
            expected="integer columns `sample` and `round`",
            found=f"{dtypes}",
            advice="Give the sample and round of each row.",
        )
