"""What the servers of vLLM and SGLang share: ids sent, scores checked, no surprises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rounddiag.errors import BatchError
from rounddiag.proof.engines.http import Host, ServerError
from rounddiag.proof.engines.pictures import with_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag._typing import Array
    from rounddiag.proof.hypotheses.hypothesis import Need
    from rounddiag.proof.trajectory import Request, Samples, Trajectory

_CHANGED = 0.02  # nat: mean |difference| of the same request, asked again


@dataclass(eq=False)
class ServerEngine(ABC):
    """A model that a server has.

    Attributes
    ----------
    host : Host
    model : str
        The name that the server gives it.
    version : str
        Of the server's program.
    sent : set of (int, int)
        Sample and index of the pictures that were sent.
    """

    host: Host
    model: str
    version: str
    sent: set[tuple[int, int]] = field(default_factory=set, repr=False)
    _weights: set[str] = field(default_factory=set, repr=False)
    _probe: tuple[Request, Array] | None = field(default=None, repr=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """As it is printed."""

    @property
    def abilities(self) -> frozenset[Need]:
        """Ids and pictures; positions, features and logits stay in the server."""
        return frozenset({"pictures"})

    @abstractmethod
    def read_version(self) -> str:
        """Ask for the version of the server's program."""

    @abstractmethod
    def ask(self, request: Request, samples: Samples) -> Array:
        """Return a log-prob for each id of a request; NaN where there is none."""

    @abstractmethod
    def beside(self, model: str) -> ServerEngine:
        """Return an engine of another model that the server has, such as an adapter."""

    def prepare(self, one: Trajectory) -> Trajectory:
        """Find the image tokens of a sample."""
        return with_spans(one)

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        found = []
        for request in requests:
            self.sent |= {(each.sample, each.index) for each in request.pictures}
            values = self.ask(request, samples)
            scored = request.is_scored.clone()
            scored[0] = False
            values = values[scored.numpy()]
            if np.isnan(values).any():
                self.refuse(
                    "a number for each token",
                    f"NaN for {int(np.isnan(values).sum())} tokens of sample"
                    f" {request.sample}",
                    "Restart the server: some versions return NaN for cached prompts.",
                )
            if self._probe is None:
                self._probe = request, values
            found.append(values)
        return found

    def confirm(self, samples: Samples) -> None:
        """Check that the server is what it was when scoring began."""
        if self._probe is None:
            return
        version = self.read_version()
        if version != self.version:
            self.refuse(
                f"version {self.version} as when scoring began",
                version,
                "Prove again while the server stays up.",
            )
        request, before = self._probe
        (after,) = self.score([request], samples)
        apart = float(np.nanmean(np.abs(after - before)))
        if apart > _CHANGED:
            self.refuse(
                "the same log-probs for the same ids, from beginning to end",
                f"a mean difference of {apart:.3g} nat",
                "Its weights changed: use a server that no trainer updates.",
            )

    def check_ids(self, sent: Array, returned: Any, request: Request) -> None:  # noqa: ANN401 JSON
        """Raise a ServerError unless the server read the ids that were sent."""
        found = np.asarray(returned)
        where = f"sample {request.sample}"
        if found.shape != sent.shape:
            pictures = (
                " Start it with the processor's limits of the run (such as"
                " --mm-processor-kwargs)."
                if request.pictures
                else ""
            )
            self.refuse(
                f"the {len(sent)} ids of {where}",
                f"{found.size} ids read by the server",
                f"It read other ids, so its scores mean nothing.{pictures}",
            )
        differs = np.flatnonzero(found != sent)
        if len(differs):
            at = differs[0]
            self.refuse(
                f"id {sent[at]} at {at} of {where}",
                f"{found[at]}, and {len(differs) - 1} others differ",
                "The server tokenised text again: its scores mean nothing.",
            )

    def check_cache(self, number: Any) -> None:  # noqa: ANN401 JSON
        """Raise a ServerError if scores come from a cache."""
        if number:
            self.refuse(
                "scores computed for this request",
                f"{number} tokens from the prefix cache",
                "Start the server without prefix caching: cached scores can be those"
                " of older weights.",
            )

    def note_weights(self, version: Any) -> None:  # noqa: ANN401 JSON
        """Remember a version of weights; raise a ServerError for a second one."""
        if version is None:
            return
        self._weights.add(str(version))
        if len(self._weights) > 1:
            self.refuse(
                "one version of the weights while scoring",
                " and ".join(sorted(self._weights)),
                "Use a server that no trainer updates.",
            )

    def refuse(self, expected: str, found: str, advice: str) -> NoReturn:
        """Raise a ServerError that names the server."""
        raise ServerError.build(
            file=self.host.url, expected=expected, found=found, advice=advice
        )

    def require_text(self, request: Request) -> None:
        """Raise a BatchError where a request needs what no server takes."""
        if request.places is not None or any(
            each.look in {"pad", "zeros"} for each in request.pictures
        ):
            raise BatchError.build(
                expected="a change of ids or pictures",
                found="one of positions or features",
                advice="Pass the folder of the model.",
            )
