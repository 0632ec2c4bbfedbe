"""Whole samples from the slices that context-parallel ranks of miles dump.

A sequence is cut into `2 * cp_size` chunks. Rank `r` has chunk `r` and the `r`-th from
the end, and the log-probs that their positions give to the next tokens: those of the
response follow from its total length and its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rounddiag.columns.sources import row_list
from rounddiag.loaders.frameworks.slime.samples import whole_numbers
from rounddiag.loaders.source import Source, damage_error, inside, load_errors
from rounddiag.loaders.tables import rows_of
from rounddiag.loaders.torch_file import read_torch
from rounddiag.text.json_text import object_in

# Columns of a rank's slices; the others have whole samples.
_SLICED = (
    *("log_probs", "rollout_log_probs", "ref_log_probs", "entropy", "ref_entropy"),
    *("advantages", "returns"),
)
_RANK = {"cp_rank", "rollout_data"}  # keys of the file of a rank


def response_positions(total: int, response: int, rank: int, size: int) -> Tensor:
    """Return the positions in the response of the tokens of a rank's slice.

    Examples
    --------
    >>> [response_positions(8, 5, rank, 2).tolist() for rank in (0, 1)]
    [[4], [0, 1, 2, 3]]
    """
    chunk = -(-total // (2 * size))
    starts = (rank * chunk, (2 * size - rank - 1) * chunk)
    prompt = total - response
    spans = [
        torch.arange(max(start, prompt - 1), min(start + chunk, total - 1))
        for start in starts
        if max(start, prompt - 1) < min(start + chunk, total - 1)
    ]
    return torch.cat([torch.empty(0, dtype=torch.int64), *spans]) + 1 - prompt


def whole_columns(root: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return the columns of a rank with whole samples, from the files of all ranks."""
    data, size = root["rollout_data"], root["cp_size"]
    if root.get("qkv_format", "thd") != "thd":
        raise source.error(
            expected="samples without padding, `qkv_format` thd",
            found=f"{root['qkv_format']!r:.40}",
            advice="Dump a step with `--context-parallel-size 1`.",
        )
    ranks = _ranks(root, source)
    if missing := {*range(size)} - ranks.keys():
        raise source.error(
            expected=f"the files of all {size} context-parallel ranks of these samples",
            found=f"none of rank {min(missing)}",
            advice="Copy the whole folder `train_data`.",
        )
    totals, lengths = (
        [number or 0 for number in whole_numbers(data[name])]
        for name in ("total_lengths", "response_lengths")
    )
    joined = dict(data)
    for name in _SLICED:
        if all(ranks[rank].get(name) is not None for rank in range(size)):
            rows = [row_list(rows_of(ranks[rank][name])) for rank in range(size)]
            joined[name] = [
                _join([row[at] for row in rows], total, length)
                for at, (total, length) in enumerate(zip(totals, lengths, strict=True))
            ]
    return joined


def _ranks(root: Mapping[str, Any], source: Source) -> dict[int, Mapping[str, Any]]:
    """Return the columns of each context-parallel rank with the samples of this one."""
    by_rank: dict[int, Mapping[str, Any]] = {root["cp_rank"]: root["rollout_data"]}
    wanted = _indices(root)
    name = re.compile(re.escape(source.path.stem.rpartition("_")[0]) + r"_\d+\.pt")
    for file in sorted(source.path.parent.iterdir()):
        if name.fullmatch(file.name) and file.name != source.path.name:
            other = Source.of_file(inside(source.path.parent, file.name))
            with load_errors(other):
                read = object_in(read_torch(other.whole()))
                if {*read} >= _RANK and _indices(read) == wanted:
                    by_rank.setdefault(read["cp_rank"], read["rollout_data"])
    return by_rank


def _indices(root: Mapping[str, Any]) -> list[int | None]:
    return whole_numbers(root["rollout_data"].get("sample_indices", []))


def _join(slices: list[Tensor], total: int, length: int) -> Tensor:
    whole = slices[0].new_empty(length)
    for rank, part in enumerate(slices):
        at = response_positions(total, length, rank, len(slices))
        if len(at) != len(part):
            raise damage_error(
                found=f"a slice of {len(part)} tokens of rank {rank}, not {len(at)}"
            )
        whole[at] = part
    return whole
