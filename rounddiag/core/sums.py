"""Per-round sums over tokens, in one pass over the batch.

On the CPU with numpy views of the tensors, one block of rounds at a time, so that
intermediate results stay in the cache; on CUDA with operations of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.missing import missing_error
from rounddiag.core.divergence import (
    SERIES_LIMIT,
    compute_prob_diffs,
    diff,
    k3,
    k3_near_zero,
)
from rounddiag.segmentation import Rounds

# Tokens per block.
_BLOCK = 1 << 16
# From this mean length on, one slice per run is faster than one index for all runs.
_LONG = 256
# A float64 diff beyond it is stored as an infinite float32, and counted as infinite.
_LARGEST = float(np.finfo(np.float32).max)
# Values that are not finite are counted and left out, without a warning.
_quiet = np.errstate(invalid="ignore", over="ignore")
_SUMS = ("abs_diff", "diff", "max_abs_diff", "k3")


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Totals of every round over its tokens with a finite diff.

    Attributes
    ----------
    num_nonfinite: Tokens left out because their diff is NaN or infinite.
    abs_diff, diff, k3: Sums of |diff|, diff and k3, in nats.
    max_abs_diff: Largest |diff|; 0 where no token is left.
    """

    num_nonfinite: Array
    abs_diff: Array
    diff: Array
    max_abs_diff: Array
    k3: Array

    def sum_by_group(self, group: Array, num_groups: int) -> Totals:
        """Add up the rounds of each group."""

        def group_sums(values: Array) -> Array:
            # Without rounds, bincount returns integers even with weights.
            sums = np.bincount(group, weights=values, minlength=num_groups)
            return sums.astype(np.float64, copy=False)

        largest = np.zeros(num_groups)
        np.maximum.at(largest, group, self.max_abs_diff)
        return Totals(
            num_nonfinite=group_sums(self.num_nonfinite).astype(np.int64),
            abs_diff=group_sums(self.abs_diff),
            diff=group_sums(self.diff),
            max_abs_diff=largest,
            k3=group_sums(self.k3),
        )


def sum_rounds(batch: Batch, *, out: Array | None = None) -> Totals:
    """Add up each round's tokens."""
    totals = cpu_totals if _is_on_cpu(batch) else torch_totals
    return totals(batch.rounds, *batch.both_log_probs(), out)


def diffs(batch: Batch) -> Array:
    """Return the diff of every generated token, in order, in float32 nats."""
    out = diffs_of_pair(batch)
    if out is None:
        raise missing_error(batch, "old", "rollout")
    return out


@_quiet
def diffs_of_pair(batch: Batch) -> Array | None:
    """Return what `diffs` does; None without the log-probs of both engines."""
    a, b = batch.old_log_probs, batch.rollout_log_probs
    if a is None or b is None:
        return None
    out = np.empty(batch.num_tokens, dtype=np.float32)
    if not _is_on_cpu(batch):
        torch.from_numpy(out).copy_(_torch_diffs(batch.rounds, a, b))
        return out
    start, num = batch.rounds.start.numpy(), batch.rounds.num_tokens.numpy()
    for _ in _diffs(as_numpy(a), as_numpy(b), start, num, out):
        pass  # each block fills its part of `out`
    return out


def prob_diffs(batch: Batch) -> Array:
    """Return |old - rollout| probability of every generated token, in order."""
    scores = (pack_tokens(batch, score) for score in batch.both_log_probs())
    return compute_prob_diffs(*scores)


def pack_tokens(batch: Batch, values: Tensor) -> Array:
    """Return the values of the generated tokens, in order, concatenated."""
    pack = cpu_pack if _is_on_cpu(batch) else torch_pack
    return pack(batch.rounds, values)


def _is_on_cpu(batch: Batch) -> bool:
    return batch.response_mask.device.type == "cpu"


@_quiet
def cpu_totals(
    rounds: Rounds, a: Tensor, b: Tensor, out: Array | None = None
) -> Totals:
    """Add up the tokens of each round, and fill `out` with each token's diff."""
    start, num, first = _pieces(rounds.start.numpy(), rounds.num_tokens.numpy())
    blocks = _diffs(as_numpy(a), as_numpy(b), start, num, out)
    return _sum_blocks(blocks, len(start), first)


@_quiet
def sum_diffs(values: Array, counts: Array) -> Totals:
    """Add up concatenated diffs of rounds of these lengths."""
    start, num, first = _pieces(np.cumsum(counts) - counts, counts)
    blocks = (
        (values[low:high].copy(), np.cumsum(nums) - nums)
        for low, high, _, nums in _blocks(start, num)
    )
    return _sum_blocks(blocks, len(start), first)


def _sum_blocks(
    blocks: Iterable[tuple[Array, Array]], num_pieces: int, first: Array
) -> Totals:
    """Add up each block, and the pieces that begin at `first`, in float64."""
    columns = {name: np.empty(num_pieces) for name in _SUMS}
    columns["num_nonfinite"] = np.zeros(num_pieces, dtype=np.int64)
    low = 0
    for values, begins in blocks:
        high = low + len(begins)
        for name, sums in _block_totals(values, begins).items():
            columns[name][low:high] = sums
        low = high
    if len(first) == num_pieces:
        return Totals(**columns)
    added = {name: np.add.reduceat(part, first) for name, part in columns.items()}
    largest = np.maximum.reduceat(columns["max_abs_diff"], first)
    return Totals(**{**added, "max_abs_diff": largest})


def cpu_pack(rounds: Rounds, values: Tensor) -> Array:
    """Copy the values of the generated tokens, in order, concatenated."""
    return take_runs(as_numpy(values), rounds.start.numpy(), rounds.num_tokens.numpy())


def take_runs(values: Array, start: Array, num: Array) -> Array:
    """Copy `num[i]` values from `start[i]` on, for every run `i`, concatenated."""
    out = np.empty(int(num.sum()), dtype=values.dtype)
    for low, high, starts, nums in _blocks(start, num):
        out[low:high] = _selector(starts, nums)(values)
    return out


def as_numpy(values: Tensor) -> Array:
    """View a tensor as an array; half precision becomes float32."""
    if values.dtype in (torch.bfloat16, torch.float16):
        values = values.float()
    return values.detach().numpy()


def _pieces(start: Array, num: Array) -> tuple[Array, Array, Array]:
    """Split rounds longer than a block; also return each round's first piece."""
    if len(num) == 0 or num.max() <= _BLOCK:
        return start, num, np.arange(len(start))
    counts = -(-num // _BLOCK)
    first = np.cumsum(counts) - counts
    skipped = (np.arange(counts.sum()) - np.repeat(first, counts)) * _BLOCK
    left = np.repeat(num, counts) - skipped
    return np.repeat(start, counts) + skipped, np.minimum(left, _BLOCK), first


def _blocks(start: Array, num: Array) -> Iterator[tuple[int, int, Array, Array]]:
    """Yield blocks of runs, with each block's limits among the packed tokens."""
    ends = np.cumsum(num)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(_BLOCK, total, _BLOCK))
    limits = np.unique([0, *cuts.tolist(), len(num)]).tolist()
    for low, high in pairwise(limits):
        begin = int(ends[low] - num[low])
        yield begin, int(ends[high - 1]), start[low:high], num[low:high]


def _diffs(
    a: Array, b: Array, start: Array, num: Array, out: Array | None
) -> Iterator[tuple[Array, Array]]:
    """Yield the diffs of each block of runs, and the start of each run in it."""
    for low, high, starts, nums in _blocks(start, num):
        select = _selector(starts, nums)
        values = select(a) - select(b)
        if out is not None:
            out[low:high] = values
        yield values, np.cumsum(nums) - nums


def _selector(start: Array, num: Array) -> Callable[[Array], Array]:
    """Return a function that copies and concatenates these runs of an array."""
    if num.sum() >= _LONG * len(num):
        ends = zip(start.tolist(), (start + num).tolist(), strict=True)
        slices = [slice(*limits) for limits in ends]
        return lambda values: np.concatenate([values[part] for part in slices])
    begins = np.cumsum(num) - num
    index: Array = np.repeat(start - begins, num)
    index += np.arange(len(index))
    return lambda values: values[index]


def _block_totals(values: Array, begins: Array) -> dict[str, Array]:
    size = np.abs(values)
    abs_diff = _run_sums(size, begins)
    counts = {}
    if not (abs_diff <= _LARGEST).all():
        bad = ~np.isfinite(values.astype(np.float32, copy=False))
        counts["num_nonfinite"] = _run_sums(bad.astype(np.int64), begins)
        # float64: a sum of values near the largest float32 overflows.
        values = np.where(bad, 0, values).astype(np.float64)
        size = np.abs(values)
        abs_diff = _run_sums(size, begins)
    return {
        **counts,
        "abs_diff": abs_diff,
        "diff": _run_sums(values, begins),
        "max_abs_diff": np.maximum.reduceat(size, begins),
        "k3": _k3_sums(values, size, begins),
    }


def _k3_sums(values: Array, size: Array, begins: Array) -> Array:
    """Add up k3: the series near zero, and the few large values exactly."""
    large = np.flatnonzero(size >= SERIES_LIMIT)
    exact = values[large].astype(np.float64)
    exact = np.expm1(exact) - exact
    k3 = k3_near_zero(values)
    k3[large] = 0
    run = np.searchsorted(begins, large, side="right") - 1
    sums: Array = np.bincount(run, weights=exact, minlength=len(begins))
    return sums + _run_sums(k3, begins)


def _run_sums(values: Array, begins: Array) -> Array:
    """Sum the runs that start at `begins`; runs of one token are their own sums."""
    if len(values) == len(begins):
        return values
    return np.add.reduceat(values, begins)


def torch_totals(
    rounds: Rounds, a: Tensor, b: Tensor, out: Array | None = None
) -> Totals:
    """Do the same as `cpu_totals` on any device; on the CPU that is slower.

    The sums of all rounds come to the host in one copy.
    """
    values = _torch_diffs(rounds, a, b)
    if out is not None:
        torch.from_numpy(out).copy_(values)
    finite = values.float().isfinite()
    values = torch.where(finite, values, 0).double()
    size = values.abs()
    counted = (~finite).double()

    def reduce_runs(tokens: Tensor, how: str = "sum") -> Tensor:
        return torch.segment_reduce(tokens, how, lengths=rounds.num_tokens, unsafe=True)

    sums = [reduce_runs(terms) for terms in (counted, size, values, k3(values))]
    table = torch.stack([*sums, reduce_runs(size, "max")]).cpu().numpy()
    names = ("num_nonfinite", "abs_diff", "diff", "k3", "max_abs_diff")
    columns = dict(zip(names, table, strict=True))
    columns["num_nonfinite"] = columns["num_nonfinite"].astype(np.int64)
    return Totals(**columns)


def _torch_diffs(rounds: Rounds, a: Tensor, b: Tensor) -> Tensor:
    index = _index(rounds)
    return diff(_as_float(a)[index], _as_float(b)[index])


def torch_pack(rounds: Rounds, values: Tensor) -> Array:
    """Copy the values of the generated tokens, in order, concatenated."""
    return _as_float(values)[_index(rounds)].cpu().numpy()


def _as_float(values: Tensor) -> Tensor:
    half = values.dtype in (torch.bfloat16, torch.float16)
    return (values.float() if half else values).detach()


def _index(rounds: Rounds) -> Tensor:
    begins = rounds.num_tokens.cumsum(0) - rounds.num_tokens
    index = (rounds.start - begins).repeat_interleave(rounds.num_tokens)
    return index + torch.arange(len(index), device=index.device)
