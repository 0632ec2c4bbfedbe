"""What slime's samples have one value a token of, under verl's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rounddiag.errors import LoadError
from rounddiag.loaders.numpy_nodes import StoredArray, stored_array
from rounddiag.loaders.slime.values import whole
from rounddiag.loaders.tensor_nodes import stored
from rounddiag.loaders.tensors import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from rounddiag.loaders.source import Source

    Sample = Mapping[str, Any]

_REQUIRED = {
    "loss_masks": "response_mask",
    "rollout_log_probs": "rollout_log_probs",
    "log_probs": "old_log_probs",
}
_OPTIONAL = {
    "ref_log_probs": "ref_log_probs",
    "teacher_log_probs": "teacher_log_probs",
    "entropy": "entropy",
    "advantages": "advantages",
}
USED = {"tokens", "response_lengths", *_REQUIRED, *_OPTIONAL}
_ADVICE = {
    "rollout_log_probs": "Let the rollout keep the engine's log-probabilities"
    " (`Sample.rollout_log_probs`), and dump the step again.",
    "log_probs": "The trainer computed none: run without `--use-rollout-logprobs`, or"
    " with `--get-mismatch-metrics`, and dump the step again.",
}
_DAMAGED = (
    "Dump the step again; older versions that trained with context parallelism wrote"
    " a slice of each sample, which cannot be read."
)


def token_fields(samples: Sequence[Sample], source: Source) -> dict[str, list[Tensor]]:
    """Return prompts, responses, mask and log-probabilities, a row a sample.

    Raises
    ------
    LoadError
        If a sample lacks one of them, or has more or fewer values than tokens.
    """
    fields: dict[str, list[Tensor]] = {"prompts": [], "responses": []}
    for number, sample in enumerate(samples):
        row = _row(sample, "tokens", number, source)
        start = len(row) - _response_length(sample, len(row), number, source)
        fields["prompts"].append(row[:start])
        fields["responses"].append(row[start:])
    for key, name in {**_REQUIRED, **_OPTIONAL}.items():
        if key in _REQUIRED or any(sample.get(key) is not None for sample in samples):
            fields[name] = [
                _per_token(sample, key, number, len(response), source)
                for number, (sample, response) in enumerate(
                    zip(samples, fields["responses"], strict=True)
                )
            ]
    return fields


def vector(value: object, source: Source) -> Tensor | None:
    """Return a row of numbers: a tensor, an array or a list; None for anything else.

    Numbers of a list are int64 or, as slime stores them, float32.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source
    >>> vector([1, 2], Source(path=Path("3.pt"), size=0))
    tensor([1, 2])
    """
    if isinstance(value, list):
        return _of_list(value)
    array = stored_array(value, source)
    if isinstance(array, StoredArray):
        return torch.from_numpy(array.read()) if array.dtype.kind in "biuf" else None
    found = stored(value, source)
    if isinstance(found, StoredTensor):
        return found.read() if len(found.shape) == 1 else None
    return value if isinstance(value, torch.Tensor) and value.dim() == 1 else None


def _of_list(values: list[Any]) -> Tensor | None:
    kinds = set(map(type, values))
    dtype = torch.float32 if float in kinds else torch.int64
    if not kinds <= {int, float, bool}:
        return None
    try:
        return torch.tensor(values, dtype=dtype)
    except (RuntimeError, ValueError):  # an integer of more than 64 bits
        return None


def _row(sample: Sample, key: str, number: int, source: Source) -> Tensor:
    found = vector(sample.get(key), source)
    if found is None:
        raise LoadError.build(
            file=source.path,
            key=f"samples[{number}].{key}",
            expected="a row of numbers",
            found="nothing" if sample.get(key) is None else "something else",
            advice=_ADVICE.get(key, _DAMAGED),
        )
    return found


def _per_token(
    sample: Sample, key: str, number: int, count: int, source: Source
) -> Tensor:
    row = _row(sample, key, number, source)
    if len(row) != count:
        raise LoadError.build(
            file=source.path,
            key=f"samples[{number}].{key}",
            expected=f"{count} values, one a token of the response",
            found=str(len(row)),
            advice=_DAMAGED,
        )
    return row


def _response_length(
    sample: Sample, num_tokens: int, number: int, source: Source
) -> int:
    size = whole(sample.get("response_lengths"))
    if size is not None and 0 <= size <= num_tokens:
        return size
    raise LoadError.build(
        file=source.path,
        key=f"samples[{number}].response_lengths",
        expected=f"0 to {num_tokens}, as there are tokens",
        found="nothing" if size is None else str(size),
        advice=_DAMAGED,
    )
