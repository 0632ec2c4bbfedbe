"""Per-round totals and packed values with torch alone, for tensors on CUDA.

Runs on any device; on the CPU `sums_cpu` is faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rounddiag.core.divergence import diff, k3

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.segmentation import Rounds


def totals(
    rounds: Rounds, a: Tensor, b: Tensor, out: Array | None = None
) -> dict[str, Array]:
    """Compute the fields of `Totals`, and fill `out` with each token's diff."""
    index = _index(rounds)
    values = diff(_as_float(a)[index], _as_float(b)[index])
    if out is not None:
        torch.from_numpy(out).copy_(values)
    finite = values.isfinite()
    values = torch.where(finite, values, 0).double()
    run = _run_of_token(rounds)

    def run_sums(tokens: Tensor) -> Array:
        sums = tokens.new_zeros(len(rounds)).index_add_(0, run, tokens)
        return sums.cpu().numpy()

    size = values.abs()
    largest = size.new_zeros(len(rounds)).scatter_reduce_(0, run, size, "amax")
    return {
        "num_nonfinite": run_sums((~finite).long()),
        "abs_diff": run_sums(size),
        "diff": run_sums(values),
        "max_abs_diff": largest.cpu().numpy(),
        "k3": run_sums(k3(values)),
    }


def diffs(rounds: Rounds, a: Tensor, b: Tensor, out: Array) -> None:
    """Fill `out` with the diff of every generated token, in order."""
    index = _index(rounds)
    torch.from_numpy(out).copy_(diff(_as_float(a)[index], _as_float(b)[index]))


def pack_tokens(rounds: Rounds, values: Tensor) -> Array:
    """Copy the values of the generated tokens, in order, concatenated."""
    array: Array = _as_float(values)[_index(rounds)].cpu().numpy()
    return array


def _as_float(values: Tensor) -> Tensor:
    half = values.dtype in (torch.bfloat16, torch.float16)
    return (values.float() if half else values).detach()


def _run_of_token(rounds: Rounds) -> Tensor:
    run = torch.arange(len(rounds), device=rounds.start.device)
    return run.repeat_interleave(rounds.num_tokens)


def _index(rounds: Rounds) -> Tensor:
    begins = rounds.num_tokens.cumsum(0) - rounds.num_tokens
    index = (rounds.start - begins).repeat_interleave(rounds.num_tokens)
    return index + torch.arange(len(index), device=index.device)
