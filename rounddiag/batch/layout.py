"""The jagged layout: padded tensors and rows become flat tensors with offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rounddiag.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

REQUIRED = ("response_ids", "response_mask", "rollout_log_probs", "old_log_probs")
_INTEGERS = ("response_ids", "response_mask", "loss_mask", "round_ids", "prompt_ids")
# Fields that are a tuple with one entry a sample.
PER_SAMPLE = ("group_ids", "sample_ids", "images", "position_ids", "rollout_ids")
PER_TOKEN = (*REQUIRED, "entropy", "advantages", "loss_mask", "round_ids")


def offsets_of(lengths: Tensor) -> Tensor:
    """Return where each row starts when rows of these lengths stand end to end.

    Examples
    --------
    >>> offsets_of(torch.tensor([3, 0, 2]))
    tensor([0, 3, 3, 5])
    """
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def from_padded(response_ids: Tensor, others: Mapping[str, Any]) -> dict[str, Any]:
    """Turn padded fields into the fields of a Batch."""
    check_present(others)
    if response_ids.dim() != 2:  # noqa: PLR2004 rows and positions
        raise BatchError.build(
            key="response_ids",
            expected="two dimensions, samples and positions",
            found=f"shape {tuple(response_ids.shape)}",
            advice="Stack the samples, or pass them to `Batch.from_rows`.",
        )
    num_samples, width = response_ids.shape
    ends = torch.full((num_samples,), width, device=response_ids.device)
    done = _per_token(
        {"response_ids": response_ids, **others},
        lambda name, value: _flat(name, value, (num_samples, width)),
    )
    if done.get("lengths") is None:
        done["lengths"] = ends
    if done.get("prompt_ids") is not None:
        mask = done.pop("prompt_mask", None)
        done.update(_unpadded_prompts(done["prompt_ids"], mask))
    return {**done, "offsets": offsets_of(ends)}


def from_rows(
    response_ids: Sequence[Tensor], others: Mapping[str, Any]
) -> dict[str, Any]:
    """Turn rows of different lengths into the fields of a Batch."""
    check_present(others)
    lengths = torch.tensor([len(row) for row in response_ids], dtype=torch.int64)
    done = _per_token(
        {"response_ids": response_ids, **others},
        lambda name, rows: _joined(name, rows, lengths.tolist()),
    )
    if done.get("prompt_ids") is not None:
        rows = done["prompt_ids"]
        sizes = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        done["prompt_ids"] = _joined("prompt_ids", rows, sizes.tolist())
        done["prompt_offsets"] = offsets_of(sizes)
    return {**done, "lengths": lengths, "offsets": offsets_of(lengths)}


def check_present(others: Mapping[str, Any]) -> None:
    """Raise a BatchError when a required field is missing."""
    for name in REQUIRED[1:]:
        if others.get(name) is None:
            raise BatchError.build(
                key=name,
                expected="a tensor",
                found="nothing",
                advice="A batch needs `" + "`, `".join(REQUIRED) + "`.",
            )


def _per_token(
    fields: Mapping[str, Any], flatten: Callable[[str, Any], Tensor]
) -> dict[str, Any]:
    done = {
        name: flatten(name, value) if name in PER_TOKEN and value is not None else value
        for name, value in fields.items()
    }
    scores = fields.get("scores") or {}
    done["scores"] = {name: flatten(name, value) for name, value in scores.items()}
    return done


def _flat(name: str, tensor: Tensor, shape: tuple[int, int]) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise BatchError.build(
            key=name,
            expected=f"shape {shape}, as `response_ids`",
            found=f"shape {tuple(tensor.shape)}",
            advice="Slice every field to the response before building the batch.",
        )
    return tensor.reshape(-1)


def _joined(name: str, rows: Sequence[Tensor], lengths: Sequence[int]) -> Tensor:
    found = [tuple(row.shape) for row in rows]
    if found != [(length,) for length in lengths]:
        raise BatchError.build(
            key=name,
            expected=f"{len(lengths)} rows as long as those of `response_ids`",
            found=_first_misfit(found, lengths),
            advice="Slice every field to the response before building the batch.",
        )
    if rows:
        return torch.cat(list(rows))
    return torch.empty(0, dtype=torch.int64 if name in _INTEGERS else torch.float32)


def _first_misfit(found: list[tuple[int, ...]], lengths: Sequence[int]) -> str:
    if len(found) != len(lengths):
        return f"{len(found)} rows"
    pairs = enumerate(zip(found, lengths, strict=True))
    index, (shape, length) = next(p for p in pairs if p[1][0] != (p[1][1],))
    return f"shape {shape} in row {index}, where `response_ids` has {length} tokens"


def _unpadded_prompts(ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
    keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask != 0
    return {"prompt_ids": ids[keep], "prompt_offsets": offsets_of(keep.sum(1))}
