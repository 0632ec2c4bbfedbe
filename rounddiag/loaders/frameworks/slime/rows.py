"""Rows of numbers in slime's samples, read one by one and within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rounddiag.errors import LoadError
from rounddiag.loaders.frameworks.slime.values import whole
from rounddiag.loaders.tensors.numpy_nodes import StoredArray, stored_array
from rounddiag.loaders.tensors.stored import StoredTensor
from rounddiag.loaders.tensors.tensor_nodes import stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from rounddiag.loaders.source import Source

# A file can name the same numbers again and again, which costs it nothing.
SPARE_BYTES = 1 << 26
_ADVICE = {
    "rollout_log_probs": "Let the rollout keep the engine's log-probabilities"
    " (`Sample.rollout_log_probs`), and dump the step again.",
    "log_probs": "The trainer computed none: run without `--use-rollout-logprobs`, or"
    " with `--get-mismatch-metrics`, and dump the step again.",
}
_AGAIN = (
    "Dump the step again; older versions that trained with context parallelism wrote"
    " a slice of each sample, which cannot be read."
)


class RowReader:
    """Reads what samples have one value a token of.

    Parameters
    ----------
    samples : sequence of mapping
    source : Source
    """

    def __init__(self, samples: Sequence[Mapping[str, Any]], source: Source) -> None:
        self._samples, self._source = samples, source
        self._bytes_left = 2 * source.size + SPARE_BYTES

    def row(self, number: int, key: str) -> Tensor:
        """Return the numbers that a sample has under a key.

        Raises
        ------
        LoadError
            If it has none, or all samples together more than the file can hold.
        """
        value = self._samples[number].get(key)
        found = vector(value, self._source)
        if found is None:
            raise self._misfit(
                number,
                key,
                expected="a row of numbers",
                found="nothing" if value is None else "something else",
            )
        self._bytes_left -= found.nbytes
        if self._bytes_left < 0:
            raise self._source.damaged(found="samples that repeat each other's numbers")
        return found

    def per_token(self, number: int, key: str, count: int) -> Tensor:
        """Return the numbers under a key, which must be `count`."""
        row = self.row(number, key)
        if len(row) != count:
            expected = f"{count} values, one a token of the response"
            raise self._misfit(number, key, expected=expected, found=str(len(row)))
        return row

    def divided(self, number: int, length_key: str) -> tuple[Tensor, Tensor]:
        """Return the tokens of the prompt, and of the response, which has a length."""
        row = self.row(number, "tokens")
        size = whole(self._samples[number].get(length_key))
        if size is None or not 0 <= size <= len(row):
            expected = f"0 to {len(row)}, as there are tokens"
            found = "nothing" if size is None else str(size)
            raise self._misfit(number, length_key, expected=expected, found=found)
        start = len(row) - size
        return row[:start], row[start:]

    def _misfit(self, number: int, key: str, *, expected: str, found: str) -> LoadError:
        return LoadError.build(
            file=self._source.path,
            key=f"samples[{number}].{key}",
            expected=expected,
            found=found,
            advice=_ADVICE.get(key, _AGAIN) if found == "nothing" else _AGAIN,
        )


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
    if isinstance(array, StoredArray) and array.dtype.kind in "biuf":
        found = torch.from_numpy(array.read())
        return found if found.dim() == 1 else None
    tensor = stored(value, source)
    if isinstance(tensor, StoredTensor) and len(tensor.shape) == 1:
        return tensor.read()
    return None


def _of_list(values: list[Any]) -> Tensor | None:
    kinds = set(map(type, values))
    if not kinds <= {int, float, bool}:
        return None
    dtype = torch.float32 if float in kinds else torch.int64
    try:
        return torch.tensor(values, dtype=dtype)
    except (RuntimeError, ValueError):  # an integer of more than 64 bits
        return None
