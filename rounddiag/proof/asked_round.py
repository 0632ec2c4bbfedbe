"""One round that is asked about, in the context that an engine read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from rounddiag.errors import BatchError
from rounddiag.proof.engines.pictures import COLOURS
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.trajectory import (
    Request,
    Samples,
    Trajectory,
    cut_request,
)
from rounddiag.vision import Screenshot

_EMPTY = {"pad", "zeros", "mean", *COLOURS}  # looks that show nothing


@dataclass(frozen=True, eq=False, kw_only=True)
class AskedRound:
    """A round of a chain, and the last picture that entered before it.

    Attributes
    ----------
    sample, round: In the batch that was given.
    trajectory: The chain of contexts that has the round.
    begin, stop: Where the round is in the ids of the trajectory.
    index: The picture's number in the trajectory; None without one.
    picture: Its number among those of the sample.
    """

    sample: int
    round: int
    trajectory: Trajectory
    begin: int
    stop: int
    index: int | None
    picture: int | None

    @classmethod
    def find(cls, samples: Samples, sample: int, number: int) -> AskedRound:
        """Find a round of the batch among the chains of its samples."""
        chains = samples.chains
        for each in chains.of_sample(sample):
            chain = chains.chains[each]
            if number not in chain.rounds:
                continue
            trajectory = samples[each]
            begin, stop = trajectory.rounds[number - chain.rounds.start]
            before = sum(first < begin for first, _ in trajectory.spans)
            return cls(
                sample=sample,
                round=number,
                trajectory=trajectory,
                begin=begin,
                stop=stop,
                index=before - 1 if before else None,
                picture=chain.shown[before - 1] if before else None,
            )
        raise BatchError.build(
            key="at",
            expected=f"a context of round {number} of sample {sample}",
            found="none",
            advice="Name a round that an engine has read.",
        )

    @property
    def token_ids(self) -> Tensor:
        """The ids of the round."""
        return self.trajectory.ids[self.begin : self.stop]

    @property
    def shot(self) -> Screenshot | None:
        """The last picture that entered."""
        return None if self.index is None else self.trajectory.shots[self.index]

    @property
    def num_image_tokens(self) -> int:
        """How many tokens the picture has."""
        start, stop = self.trajectory.spans[self.index or 0]
        return stop - start

    def request(self, samples: Samples, look: str = "seen") -> Request:
        """Return the pass that scores the round, with its last picture shown so."""
        (request,) = self._cut([Request.of_sample(self.trajectory)], samples)
        if self.index is None or look == "seen":
            return request
        shown = list(request.pictures)
        shown[self.index] = replace(shown[self.index], look=look)
        return replace(request, pictures=tuple(shown))

    def requests(
        self, hypothesis: Hypothesis | None, samples: Samples
    ) -> list[Request]:
        """Return the passes that score the round under a hypothesis."""
        edits = None
        if hypothesis is not None and hypothesis.edit is not None:
            edits = hypothesis.edit(self.trajectory, samples)
        if edits is None:  # it has no place here
            edits = Request.of_sample(self.trajectory)
        return self._cut([edits] if isinstance(edits, Request) else edits, samples)

    def is_seen_in(self, requests: Sequence[Request]) -> bool:
        """Return whether a pass has what the picture shows."""
        return any(
            (each.sample, each.index) == (self.trajectory.sample, self.index)
            and each.look not in _EMPTY
            for request in requests
            for each in request.pictures
        )

    def _cut(self, requests: Sequence[Request], samples: Samples) -> list[Request]:
        mine = (request.score_only(self.begin, self.stop) for request in requests)
        cut = (cut_request(request, samples) for request in mine)
        return [request for request in cut if request is not None]
