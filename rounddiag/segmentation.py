"""Rounds in a response mask, on the CPU and on CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from rounddiag.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rounddiag._typing import Array

    Block: TypeAlias = np.ndarray[Any, Any] | Tensor

# Positions per block: a slice of the mask and its comparison then stay in the cache.
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Rounds:
    """The table of rounds of a batch, in the order of its samples.

    Attributes
    ----------
    sample, round : Tensor of int64, shape (num_rounds,)
        Which sample, and which round of it, counted from 0.
    start : Tensor of int64, shape (num_rounds,)
        Index of the first token in the flat per-token tensors.
    num_tokens : Tensor of int64, shape (num_rounds,)
        Number of generated tokens.
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
    """Find the maximal runs of 1s inside each sample."""
    edges = _edges(response_mask)
    limits = offsets.cpu().numpy()
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
    device = response_mask.device
    return Rounds(**{k: torch.from_numpy(v).to(device) for k, v in columns.items()})


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
        indices = _nonzero(_changes(block))
        stop = num_out + len(indices)
        np.add(indices, begin + 1, out=out[num_out:stop])
        num_out = stop
    return num_out


def _blocks(values: Tensor) -> Iterator[tuple[int, Block]]:
    """Yield blocks that overlap by one position: numpy views on the CPU."""
    if values.device.type != "cpu":
        yield 0, values
        return
    # numpy has no bfloat16
    whole = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    for begin in range(0, len(whole), _BLOCK):
        before = max(begin - 1, 0)
        yield before, whole[before : begin + _BLOCK]


def _holds_zero_one(block: Block) -> bool:
    if isinstance(block, np.ndarray) and block.dtype.kind in "biu":
        return int(np.bitwise_or.reduce(block)) in (0, 1)
    return bool(((block == 0) | (block == 1)).all())


def _mask_error(block: Block) -> BatchError:
    other = block[(block != 0) & (block != 1)][0].item()
    return BatchError.build(
        key="response_mask",
        expected="a mask of 0 and 1",
        found=f"the value {other}",
        advice="Pass the mask itself, not a weight.",
    )


def _changes(block: Block) -> Block:
    flags: Any = block[1:] != block[:-1]
    return flags  # type: ignore[no-any-return] # the stubs give two arrays' != a bool


def _nonzero(flags: Block) -> Array:
    # numpy skips stretches without a flag; torch on the CPU writes as it counts.
    if isinstance(flags, np.ndarray):
        return np.flatnonzero(flags)
    indices: Array = flags.nonzero()[:, 0].cpu().numpy()
    return indices


def _split_runs(start: Array, stop: Array, breaks: Array) -> tuple[Array, Array]:
    """Split the runs at the breaks inside them."""
    if len(start) == 0:
        return start, stop
    run = np.searchsorted(start, breaks) - 1
    inside = np.unique(breaks[(run >= 0) & (breaks < stop[run])])
    if len(inside) == 0:
        return start, stop
    starts, stops = np.concatenate([start, inside]), np.concatenate([stop, inside])
    return np.sort(starts), np.sort(stops)
