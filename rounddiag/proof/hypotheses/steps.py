"""The rounds of a trajectory that was joined from steps, as hypotheses use them."""

from __future__ import annotations

from rounddiag._typing import Array
from rounddiag.batch.contexts import Context
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.proof.trajectory import Picture, Samples


class Steps:
    """The rounds of a trajectory, with the context of each.

    Parameters
    ----------
    samples : Samples
    sample : int
        Of the joined batch.
    """

    def __init__(self, samples: Samples, sample: int) -> None:
        self._sample = sample
        self.batch = samples.chains.joined
        self.sequence = SampleSequence(self.batch, sample)
        self.pictures = _first_shown(samples, sample)

    def context(self, round_: int) -> Context:
        """Return what the training engine read before a round."""
        return self.batch.context(self._sample, round_)

    def shown(self, round_: int) -> tuple[Picture, ...]:
        """Return the pictures of a round's context, in its order."""
        shown = self.sequence.shown(self.sequence.index(round_))
        return tuple(self.pictures[number] for _, number in shown)

    def shown_before(self, round_: int) -> list[tuple[Picture, int]]:
        """Return all pictures that entered before a round, and their image tokens."""
        start = self.sequence.starts[round_]
        pairs = zip(self.pictures, self.sequence.pictures, strict=True)
        return [
            (picture, placed.stop - placed.start)
            for picture, placed in pairs
            if placed.stop <= start
        ]

    def written(self, round_: int) -> Array:
        """Return the ids that the model wrote in a round."""
        start, stop = self.sequence.starts[round_], self.sequence.stops[round_]
        return self.sequence.ids[start:stop]


def _first_shown(samples: Samples, sample: int) -> list[Picture]:
    known: dict[int, Picture] = {}
    for number in samples.chains.of_sample(sample):
        for index, shown in enumerate(samples.chains.chains[number].shown):
            known.setdefault(shown, Picture(number, index))
    return [known[shown] for shown in sorted(known)]
