"""What an engine reads to score a sample: ids, pictures, positions, and edits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.chains import ChainBatch
from rounddiag.batch.sample_sequence import SampleSequence, known_sequence
from rounddiag.checks.contracts import UntestableError
from rounddiag.checks.images import image_token
from rounddiag.proof.chat import Chat
from rounddiag.vision import Screenshot

Places: TypeAlias = Callable[["Tensor", "Tensor"], "Tensor"]
"""From the positions of a request's ids and those of the sample to other positions."""
PACKED = "packed"
"""The setting of a pass without a mask: restarting positions separate its rows."""


@dataclass(frozen=True)
class Picture:
    """Which picture an engine is shown, and how.

    Attributes
    ----------
    sample, index: The sample of the batch that has it, and its number there.
    look: `seen`, as it is, transparent pixels on white; `stored_colour`, these in the
        colour that the file has behind them; `grey`, `white` or `black`, of the same
        size; `mean`, in its mean colour; `mean_0_0_8_8`, with that part in it; `pad`,
        no pixels, so that the embeddings of the image tokens stand in; `zeros`,
        features of zeros.
    scale: How many times as many pixels as the model saw.
    max_pixels: The most pixels, where they are not those of the processor; else 0.
    """

    sample: int
    index: int
    look: str = "seen"
    scale: float = 1.0
    max_pixels: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Trajectory:
    """One sample of the batch, as a sound engine reads it.

    Attributes
    ----------
    sample: Index in the batch.
    ids: Tensor of int64, shape (length,). Prompt and response.
    start: Length of the prompt.
    rounds: Where each round starts and stops in `ids`.
    spans: The image tokens of each picture in `ids`; an engine finds them.
    markers: Ids of the tokens that open and close a picture.
    image_token: The id that stands for pictures, where the batch tells it.
    """

    sample: int
    ids: Tensor
    start: int
    rounds: tuple[tuple[int, int], ...]
    shots: tuple[Screenshot, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    markers: frozenset[int] = frozenset()
    image_token: int | None = None

    @property
    def targets(self) -> Array:
        """Indices in `ids` of the tokens that the model wrote, and have a context."""
        parts = [np.arange(max(start, 1), stop) for start, stop in self.rounds]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def flat_targets(self, batch: Batch) -> Tensor:
        """Return where its targets are in the batch."""
        before = int(batch.offsets[self.sample]) - self.start
        return torch.from_numpy(self.targets + before)

    @property
    def target_rounds(self) -> Array:
        """The round of each target."""
        sizes = [stop - max(start, 1) for start, stop in self.rounds]
        return np.repeat(np.arange(len(sizes)), np.maximum(sizes, 0))

    def picture_tokens(self, first: int, stop: int) -> Tensor:
        """Return which ids belong to pictures `first` to `stop`, with their markers."""
        is_picture = torch.zeros(len(self.ids), dtype=torch.bool)
        for begin, end in self.spans[first:stop]:
            before = begin > 0 and int(self.ids[begin - 1]) in self.markers
            after = end < len(self.ids) and int(self.ids[end]) in self.markers
            is_picture[begin - before : end + after] = True
        return is_picture


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """What an engine reads in one pass.

    Attributes
    ----------
    ids: Tensor of int64, shape (length,)
    source: Tensor of int64, shape (length,). Index of each token in the ids of the
        sample; -1 for one that is inserted.
    is_scored: Tensor of bool, shape (length,). The tokens whose log-probability is
        wanted.
    pictures: The pictures of the image tokens, in order.
    places: Changes the positions; by default they are those of these ids.
    setting: A setting of the engine for this pass, such as `rotary_bfloat16`.
    weights: The name of the weights, where they are not the given ones.
    uncut: Where tokens at the end were left out, the request with them: positions are
        those of all.
    num_cached: The keys and values of so many first tokens are those of
        `cached_weights`.
    """

    sample: int
    ids: Tensor
    source: Tensor
    is_scored: Tensor
    pictures: tuple[Picture, ...] = ()
    places: Places | None = None
    setting: str = ""
    weights: str = ""
    uncut: Request | None = None
    num_cached: int = 0
    cached_weights: str = ""

    @cached_property
    def wanted(self) -> Tensor:
        """Indices of the tokens that are scored: the first has no context."""
        return self.is_scored[1:].nonzero()[:, 0] + 1

    @classmethod
    def of_sample(cls, trajectory: Trajectory) -> Request:
        """Return the request of a sound engine: all of the sample, in one pass."""
        is_scored = torch.zeros(len(trajectory.ids), dtype=torch.bool)
        is_scored[torch.from_numpy(trajectory.targets)] = True
        pictures = tuple(
            Picture(trajectory.sample, i) for i in range(len(trajectory.spans))
        )
        return cls(
            sample=trajectory.sample,
            ids=trajectory.ids,
            source=torch.arange(len(trajectory.ids)),
            is_scored=is_scored,
            pictures=pictures,
        )

    @classmethod
    def of_parts(
        cls,
        trajectory: Trajectory,
        parts: Iterable[slice | Tensor],
        pictures: tuple[Picture, ...],
    ) -> Request:
        """Return the request of parts of a sample and, between them, of other ids."""
        whole, own = cls.of_sample(trajectory), torch.arange(len(trajectory.ids))
        pairs = [
            (trajectory.ids[part], own[part])
            if isinstance(part, slice)
            else (part, torch.full_like(part, -1))
            for part in parts
        ]
        ids, source = map(torch.cat, zip(*pairs, strict=True))
        is_scored = (source >= 0) & whole.is_scored[source.clamp(min=0)]
        return replace(
            whole, ids=ids, source=source, is_scored=is_scored, pictures=pictures
        )

    def keep(self, inside: Tensor, pictures: tuple[Picture, ...]) -> Request:
        """Leave tokens out; `pictures` are those of the image tokens that stay."""
        return replace(
            self,
            ids=self.ids[inside],
            source=self.source[inside],
            is_scored=self.is_scored[inside],
            pictures=pictures,
        )

    def before(self, trajectory: Trajectory, stop: int) -> Request:
        """Leave out what is behind an index of the sample, of which nothing is gone."""
        shown = self.pictures[: sum(begin < stop for begin, _ in trajectory.spans)]
        return self.keep(torch.arange(len(self.ids)) < stop, shown)

    def prepend(self, ids: Tensor, pictures: tuple[Picture, ...] = ()) -> Request:
        """Put tokens that are not scored before the others."""
        nowhere = torch.full((len(ids),), -1)
        return replace(
            self,
            ids=torch.cat([ids, self.ids]),
            source=torch.cat([nowhere, self.source]),
            is_scored=torch.cat([nowhere > 0, self.is_scored]),
            pictures=(*pictures, *self.pictures),
        )

    def score_only(self, begin: int, stop: int) -> Request:
        """Score no tokens but those between two indices of the sample."""
        inside = (self.source >= begin) & (self.source < stop)
        return replace(self, is_scored=self.is_scored & inside)


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of a batch, read when they are needed.

    Attributes
    ----------
    chains: The batch, with one sample per chain of contexts, and what it is part of.
    prepare: Completes a trajectory with what only the engine knows: the image tokens.
    chat: The tokenizer of the engine's model.
    count: From a picture to its number of image tokens.
    """

    chains: ChainBatch
    prepare: Callable[[Trajectory], Trajectory] = field(
        default=lambda trajectory: trajectory
    )
    chat: Chat | None = None
    count: Callable[[Picture, Samples], int] | None = None
    _known: dict[int, Trajectory] = field(default_factory=dict, repr=False)

    @property
    def batch(self) -> Batch:
        """The batch: one sample per chain."""
        return self.chains.batch

    def __len__(self) -> int:
        return self.batch.num_samples

    def __getitem__(self, sample: int) -> Trajectory:
        if sample not in self._known:
            trajectory = replace(
                read_trajectory(self.batch, sample), image_token=self.image_token
            )
            self._known[sample] = self.prepare(trajectory)
        return self._known[sample]

    @cached_property
    def image_token(self) -> int | None:
        """The id that stands for pictures; None if the batch does not tell it."""
        try:
            return image_token(self.batch)
        except UntestableError:
            return None

    @property
    def longest_prompt(self) -> int:
        """The length of the longest prompt of the batch."""
        offsets = self.batch.prompt_offsets
        return 0 if offsets is None or len(offsets) < 2 else int(offsets.diff().max())  # noqa: PLR2004 a start and a stop


def read_trajectory(batch: Batch, sample: int) -> Trajectory:
    """Read a sample of a batch."""
    sequence = SampleSequence(batch, sample)
    return Trajectory(
        sample=sample,
        ids=torch.from_numpy(known_sequence(batch, sample)[1]).long(),
        start=sequence.num_prompt,
        rounds=tuple(zip(sequence.starts, sequence.stops, strict=True)),
        shots=() if batch.images is None else tuple(batch.images[sample]),
    )


def cut_request(
    request: Request, samples: Samples, limit: int | None = None
) -> Request | None:
    """Leave out what no wanted token reads: what comes after the last one.

    With a limit, tokens from that index of the sample on are not wanted either. None if
    none is left.
    """
    if limit is not None:
        request = request.score_only(0, limit)
    if not len(request.wanted):
        return None
    stop = int(request.wanted[-1]) + 1
    pictures = request.pictures
    if pictures:
        first = samples[pictures[0].sample]
        token = first.ids[first.spans[pictures[0].index][0]]
        owners = [(samples[each.sample], each.index) for each in pictures]
        tokens = [whole.ids[slice(*whole.spans[index])] for whole, index in owners]
        is_image = request.ids == token
        sizes = np.array([int((ids == token).sum()) for ids in tokens])
        number, before = int(is_image.sum()), int(is_image[:stop].sum())
        if number == len(pictures):
            sizes[:] = 1
        if number != sizes.sum():  # of another resolution: only the engine knows
            return request
        pictures = pictures[: int((sizes.cumsum() <= before).sum())]
    return replace(
        request,
        ids=request.ids[:stop],
        source=request.source[:stop],
        is_scored=request.is_scored[:stop],
        pictures=pictures,
        uncut=request if request.places is not None else None,
    )


def read_scores(batch: Batch, name: str, trajectory: Trajectory) -> Array:
    """Return an engine's log-probs of a sample's targets, in float64."""
    values = batch.log_probs(name).cpu()[trajectory.flat_targets(batch)]
    return values.double().numpy()


def to_flat(batch: Batch, known: Iterable[tuple[Trajectory, Array]]) -> Tensor:
    """Put log-probs of samples where their tokens are in the batch; NaN elsewhere."""
    flat = torch.full((batch.num_positions,), torch.nan)
    for trajectory, values in known:
        flat[trajectory.flat_targets(batch)] = torch.from_numpy(values).float()
    return flat


def collect_scores(
    trajectory: Trajectory, requests: Sequence[Request], log_probs: Sequence[Array]
) -> Array:
    """Put the log-probs of several passes in the order of the targets, else NaN."""
    scores = np.full(len(trajectory.ids), np.nan)
    for request, values in zip(requests, log_probs, strict=True):
        scores[request.source[request.wanted].numpy()] = values
    return scores[trajectory.targets]
