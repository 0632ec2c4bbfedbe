"""Rounds in a response mask, on the CPU and on CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.errors import BatchError

# Positions per block: a slice of the mask and its comparison then stay in the cache.
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Rounds:
    """The table of rounds of a batch, in the order of its samples.

    Attributes
    ----------
    sample, round: Tensor of int64, shape (num_rounds,). Which sample, and which round
        of it, counted from 0.
    start: Tensor of int64, shape (num_rounds,). Index of the first token in the flat
        per-token tensors.
    num_tokens: Tensor of int64, shape (num_rounds,). Number of generated tokens.
    """

    sample: Tensor
    round: Tensor
    start: Tensor
    num_tokens: Tensor

    def __len__(self) -> int:
        return len(self.start)


def find_rounds(
    response_mask: Tensor, offsets: Tensor, round_ids: Tensor | None = None
) -> Rounds:
    """Find the maximal runs of 1s inside each sample, on the device of the mask."""
    is_on_cpu = response_mask.device.type == "cpu"
    find = _find_in_blocks if is_on_cpu else find_on_device
    return find(response_mask, offsets, round_ids)


def find_on_device(
    response_mask: Tensor, offsets: Tensor, round_ids: Tensor | None = None
) -> Rounds:
    """Do the same with operations of torch on whole tensors, on any device.

    Nothing is copied to the host but the number of rounds. The CPU is faster with
    blocks that stay in its cache.
    """
    is_one = response_mask != 0
    if not bool((is_one == response_mask).all()):
        raise _mask_error(response_mask)
    # A round ends where a sample ends, and where the round id changes.
    is_break = torch.zeros(len(is_one) + 1, dtype=torch.bool, device=is_one.device)
    is_break[offsets] = True
    if round_ids is not None:
        is_break[1:-1] |= round_ids[1:] != round_ids[:-1]
    begins = is_one.clone()
    begins[1:] &= ~is_one[:-1] | is_break[1:-1]
    start = begins.nonzero()[:, 0]
    # The 1s from one start to the next are those of one round.
    count = is_one.cumsum(0)
    ends = torch.cat([count[start[1:]] - 1, count[-1:].expand(min(len(start), 1))])
    sample = torch.searchsorted(offsets, start, right=True) - 1
    first = torch.searchsorted(start, offsets[:-1])
    index = torch.arange(len(start), device=start.device)
    return Rounds(
        sample=sample,
        round=index - first[sample],
        start=start,
        num_tokens=ends - count[start] + 1,
    )


def _find_in_blocks(
    response_mask: Tensor, offsets: Tensor, round_ids: Tensor | None = None
) -> Rounds:
    edges = _edges(response_mask)
    limits = offsets.numpy()
    breaks = limits[1:-1]
    if round_ids is not None:
        changes = np.empty(len(round_ids), dtype=np.int64)
        num_changes = _write_changes(round_ids, changes, 0)
        breaks = np.concatenate([breaks, changes[:num_changes]])
    start, stop = _split_runs(edges[0::2].copy(), edges[1::2], breaks)
    num_tokens = stop - start
    del edges, stop  # twice as large as a column
    first = np.searchsorted(start, limits)
    counts = np.diff(first)
    index = np.arange(len(start))
    index -= np.repeat(first[:-1], counts)
    columns = {
        "sample": np.repeat(np.arange(len(counts)), counts),
        "round": index,
        "start": start,
        "num_tokens": num_tokens,
    }
    return Rounds(
        **{name: torch.from_numpy(values) for name, values in columns.items()}
    )


def _edges(mask: Tensor) -> Array:
    """Return the starts and stops of runs of 1s, alternating."""
    # Memory that is allocated but never written costs nothing.
    edges = np.empty(len(mask) + 1, dtype=np.int64)
    edges[0] = 0
    num_edges = 1 if len(mask) and mask[0] != 0 else 0
    num_edges = _write_changes(mask, edges, num_edges, is_mask=True)
    if num_edges % 2:
        edges[num_edges] = len(mask)
        num_edges += 1
    return edges[:num_edges]


def _write_changes(
    values: Tensor, out: Array, num_out: int, *, is_mask: bool = False
) -> int:
    """Append to `out` the positions whose value differs from the one before."""
    for begin, block in _blocks(values):
        if is_mask and not _holds_zero_one(block):
            raise _mask_error(block)
        indices = np.flatnonzero(block[1:] != block[:-1])
        stop = num_out + len(indices)
        np.add(indices, begin + 1, out=out[num_out:stop])
        num_out = stop
    return num_out


def _blocks(values: Tensor) -> Iterator[tuple[int, Array]]:
    """Yield blocks that overlap by one position, as views."""
    # numpy has no bfloat16
    whole = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    for begin in range(0, len(whole), _BLOCK):
        before = max(begin - 1, 0)
        yield before, whole[before : begin + _BLOCK]


def _holds_zero_one(block: Array) -> bool:
    if block.dtype.kind in "biu":
        return int(np.bitwise_or.reduce(block)) in (0, 1)
    return bool(((block == 0) | (block == 1)).all())


def _mask_error(block: Array | Tensor) -> BatchError:
    other = block[(block != 0) & (block != 1)][0].item()
    return BatchError.build(
        key="response_mask",
        expected="a mask of 0 and 1",
        found=f"the value {other}",
        advice="Pass the mask itself, not a weight.",
    )


def _split_runs(start: Array, stop: Array, breaks: Array) -> tuple[Array, Array]:
    if len(start) == 0:
        return start, stop
    run = np.searchsorted(start, breaks) - 1
    inside = np.unique(breaks[(run >= 0) & (breaks < stop[run])])
    if len(inside) == 0:
        return start, stop
    starts, stops = np.concatenate([start, inside]), np.concatenate([stop, inside])
    return np.sort(starts), np.sort(stops)
