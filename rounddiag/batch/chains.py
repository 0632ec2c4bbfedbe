"""A batch with one sample per chain: each is one context, as an engine scores it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.layout import map_positions
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.columns.sources import build_offsets

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch
    from rounddiag.vision import Screenshot


class ScoredChain(NamedTuple):
    """A chain of a sample.

    Attributes
    ----------
    sample: The number of the sample in the joined batch.
    rounds: Its rounds there.
    shown: The numbers of its pictures among those of the sample, in the order of the
        context.
    """

    sample: int
    rounds: range
    shown: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ChainBatch:
    """A joined batch, and the same with one sample per chain.

    Attributes
    ----------
    joined: The batch whose rounds can have contexts of their own.
    batch: One sample per chain: its first context is the prompt. A batch without
        rewritten contexts is the same.
    chains: What each sample of `batch` is.
    position: Array of int. Where each position of `batch` is in `joined`.
    """

    joined: Batch
    batch: Batch
    chains: tuple[ScoredChain, ...]
    position: Array

    def of_sample(self, sample: int) -> list[int]:
        """Return the chains of a sample of `joined`."""
        return [n for n, chain in enumerate(self.chains) if chain.sample == sample]

    def to_joined(self, flat: Tensor) -> Tensor:
        """Put values per position of `batch` where they are in `joined`; NaN else."""
        values = flat.new_full((self.joined.num_positions,), torch.nan)
        values[torch.from_numpy(self.position)] = flat
        return values


class _Part(NamedTuple):
    """What one chain becomes.

    Attributes
    ----------
    prompt: Ids of its first context; None where the sample is taken as it is.
    position: Where its response is in the joined batch.
    """

    chain: ScoredChain
    prompt: Array
    position: Array
    shots: tuple[Screenshot, ...]
    position_ids: Tensor | None


def split_chains(batch: Batch) -> ChainBatch:
    """Return the batch with one sample per chain.

    The samples of a trajectory are a group where the batch has none, since they are
    not independent. Rounds count from 0 in each chain.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> split_chains(batch).batch is batch
    True
    """
    if batch.contexts is None:
        rounds = np.bincount(batch.rounds.sample.cpu(), minlength=len(batch)).tolist()
        images = batch.images or ((),) * len(batch)
        chains = [
            ScoredChain(sample, range(number), tuple(range(len(shots))))
            for sample, (number, shots) in enumerate(zip(rounds, images, strict=True))
        ]
        return ChainBatch(batch, batch, tuple(chains), np.arange(batch.num_positions))
    parts = [part for sample in range(len(batch)) for part in _parts(batch, sample)]
    position = np.concatenate([part.position for part in parts])
    chains = [part.chain for part in parts]
    samples = np.array([chain.sample for chain in chains], dtype=np.int64)
    sizes = torch.tensor([len(part.position) for part in parts])
    index = torch.from_numpy(position)
    groups = batch.group_ids or tuple(map(str, range(len(batch))))
    positions = [part.position_ids for part in parts]
    columns = {name: values[samples] for name, values in batch.sample_columns.items()}
    split = replace(
        batch,
        **map_positions(batch, lambda _, flat: flat[index]),
        offsets=build_offsets(sizes),
        lengths=sizes,
        prompt_ids=torch.from_numpy(np.concatenate([part.prompt for part in parts])),
        prompt_offsets=build_offsets(torch.tensor([len(p.prompt) for p in parts])),
        rewards=None if batch.rewards is None else batch.rewards[samples],
        group_ids=tuple(groups[sample] for sample in samples),
        sample_ids=_names(batch, chains),
        images=None if batch.images is None else tuple(part.shots for part in parts),
        position_ids=None
        if any(each is None for each in positions)
        else tuple(each for each in positions if each is not None),
        turns=None,
        rollout_ids=None,
        contexts=None,
        sample_columns=columns,
        round_columns=_round_columns(batch, chains),
        meta={name: fact for name, fact in batch.meta.items() if name != "checks"},
    )
    return ChainBatch(batch, split, tuple(chains), position)


def _parts(batch: Batch, sample: int) -> Iterator[_Part]:
    sequence = SampleSequence(batch, sample)
    saved = sequence.position_ids()
    begin = int(batch.offsets[sample]) - sequence.num_prompt
    for number, chain in enumerate(sequence.chains):
        rounds = chain.rounds
        size = len(sequence.index(rounds[0])) if rounds else sequence.num_prompt
        shown = sequence.shown(chain.index)
        images = [(place, sequence.pictures[number].image) for place, number in shown]
        yield _Part(
            ScoredChain(sample, rounds, tuple(number for _, number in shown)),
            sequence.ids[chain.index[:size]].astype(np.int64),
            begin + chain.index[size:],
            tuple(
                replace(image, position=place - size, round=_round_in(image, rounds))
                for place, image in images
            ),
            None if saved is None else saved[number],
        )


def _round_in(shot: Screenshot, rounds: range) -> int | None:
    return None if shot.round is None else max(shot.round - rounds.start, 0)


def _names(batch: Batch, chains: list[ScoredChain]) -> tuple[str, ...] | None:
    if batch.sample_ids is None:
        return None
    return tuple(
        f"{batch.sample_ids[chain.sample]} r{chain.rounds.start}" for chain in chains
    )


def _round_columns(batch: Batch, chains: list[ScoredChain]) -> dict[str, Any]:
    columns = batch.round_columns
    if not columns:
        return {}
    row = {
        key: at
        for at, key in enumerate(
            zip(columns["sample"].tolist(), columns["round"].tolist(), strict=True)
        )
    }
    places = [
        (row[chain.sample, round_], number, at)
        for number, chain in enumerate(chains)
        for at, round_ in enumerate(chain.rounds)
        if (chain.sample, round_) in row
    ]
    rows, samples, rounds = np.array(places, dtype=np.int64).reshape(-1, 3).T
    return {
        **{name: values[rows] for name, values in columns.items()},
        "sample": samples.astype(columns["sample"].dtype),
        "round": rounds.astype(columns["round"].dtype),
    }
