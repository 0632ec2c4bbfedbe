"""A running vLLM or SGLang: ids sent, scores checked, no surprises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import BatchError
from rounddiag.proof.engines.client import Host, ServerError, StatusError
from rounddiag.proof.engines.dialects import (
    Continuation,
    Dialect,
    Sampling,
    ServerAnswer,
    Sglang,
    Vllm,
    read_messages,
)
from rounddiag.proof.engines.engine import TopTokens
from rounddiag.proof.engines.pictures import data_address, with_spans
from rounddiag.proof.hypotheses.hypothesis import Need
from rounddiag.proof.scores import check_log_probs
from rounddiag.proof.trajectory import Request, Samples, Trajectory
from rounddiag.vision import Screenshot

_CHANGED = 0.02  # nat: mean |difference| of the same request, asked again


@dataclass(eq=False)
class ServerEngine:
    """A model that a server has.

    Attributes
    ----------
    dialect: Of vLLM or of SGLang.
    sent: Sample and index of the pictures that were sent.
    """

    host: Host
    dialect: Dialect
    sent: set[tuple[int, int]] = field(default_factory=set, repr=False)
    _weights: set[str] = field(default_factory=set, repr=False)
    _probe: tuple[Request, Array] | None = field(default=None, repr=False)

    @classmethod
    def open(cls, host: Host) -> ServerEngine:
        """Ask a server what it is."""
        vllm = Vllm.open(host)
        if vllm is not None:
            return cls(host, vllm)
        try:
            return cls(host, Sglang.open(host))
        except StatusError as error:
            expected = "a server of vLLM (`/version`) or SGLang (`/model_info`)"
            advice = "Pass the address of the server itself, without `/v1`."
            host.refuse(expected, f"HTTP {error.status}", advice)

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.dialect.title} at {self.host.name}"

    @property
    def abilities(self) -> frozenset[Need]:
        """Ids and pictures; positions, features and logits stay in the server.

        Forced decoding where the server has it.
        """
        abilities: set[Need] = {"pictures"}
        if self.dialect.can_decode:
            abilities.add("decoding")
        return frozenset(abilities)

    def prepare(self, trajectory: Trajectory) -> Trajectory:
        """Find the image tokens of a sample."""
        return with_spans(trajectory)

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        scores = []
        for request in requests:
            self.sent |= {(each.sample, each.index) for each in request.pictures}
            values = self._ask(request, samples).log_probs[request.wanted.numpy()]
            values = check_log_probs(values, self.name, ServerError)
            if self._probe is None:
                self._probe = request, values
            scores.append(values)
        return scores

    def top_tokens(self, request: Request, samples: Samples, number: int) -> TopTokens:
        """Return the likeliest tokens at each scored place, as far as it says them."""
        self.sent |= {(each.sample, each.index) for each in request.pictures}
        answer, at = self._ask(request, samples, number), request.wanted.numpy()
        known = [
            place for place in at if answer.top[place : place + 1] not in ([], [[]])
        ]
        if len(known) < len(at):
            self.host.refuse(
                f"the {number} likeliest tokens at each of {len(at)} places",
                f"those of {len(known)}",
                "Use vLLM 0.12 or newer, or SGLang with `top_logprobs_num`.",
            )
        ids = np.full((len(at), number), -1)
        log_probs, ranks = np.full(ids.shape, np.nan), answer.ranks[at]
        for row, place in enumerate(at):
            for column, (value, token) in enumerate(answer.top[place]):
                ids[row, column], log_probs[row, column] = token, value
                if token == request.ids[place]:
                    ranks[row] = column + 1
        own = check_log_probs(answer.log_probs[at], self.name, ServerError)
        return TopTokens(ids, log_probs, own, ranks)

    def sample(
        self, ids: Sequence[int], shots: Sequence[Screenshot], how: Sampling
    ) -> Continuation:
        """Let the server write after ids that have one image token for each picture.

        Nothing is checked here but that the answer has log-probs: what the server read
        is in it.
        """
        addresses = [data_address(shot) for shot in shots]
        written = self.dialect.sample(self.host, ids, addresses, how)
        log_probs = check_log_probs(written.log_probs, self.name, ServerError)
        return replace(written, log_probs=log_probs)

    def refreshed(self) -> ServerEngine:
        """Return the server after its weights were changed."""
        return ServerEngine(self.host, self.dialect.refreshed(self.host), self.sent)

    def read_messages(
        self, messages: Sequence[Any], tools: Sequence[Any] = ()
    ) -> Array | None:
        """Return the ids that the server makes of messages; None if it says none."""
        return read_messages(self.host, self.dialect.model, messages, tools)

    def confirm(self, samples: Samples) -> None:
        """Check that the server is what it was when scoring began."""
        if self._probe is None:
            return
        version = self.dialect.read_version(self.host)
        if version != self.dialect.version:
            self.host.refuse(
                f"version {self.dialect.version} as when scoring began",
                version or "none",
                "Prove again while the server stays up.",
            )
        request, before = self._probe
        (after,) = self.score([request], samples)
        apart = float(np.nanmean(np.abs(after - before)))
        if apart > _CHANGED:
            self.host.refuse(
                "the same log-probs for the same ids, from beginning to end",
                f"a mean difference of {apart:.3g} nat",
                "What it answers depends on what was asked before, as with a prefix"
                " cache, or its weights changed. Start it without prefix caching, and"
                " use one that no trainer updates.",
            )

    def _ask(self, request: Request, samples: Samples, number: int = 0) -> ServerAnswer:
        """Ask for a request; its log-probs are NaN where there is none."""
        if request.places is not None or any(
            each.look in {"pad", "zeros"} for each in request.pictures
        ):
            raise BatchError.build(
                expected="a change of ids or pictures",
                found="one of positions or features",
                advice="Pass the folder of the model.",
            )
        answer = self.dialect.ask(self.host, request, samples, number)
        self._check_ids(answer, request)
        if answer.num_cached:
            self.host.refuse(
                "scores computed for this request",
                f"{answer.num_cached} tokens from the prefix cache",
                "Start the server without prefix caching: cached scores can be those"
                " of older weights.",
            )
        self._weights |= set(answer.weights)
        if len(self._weights) > 1:
            self.host.refuse(
                "one version of the weights while scoring",
                " and ".join(sorted(self._weights)),
                "Use a server that no trainer updates.",
            )
        return answer

    def _check_ids(self, answer: ServerAnswer, request: Request) -> None:
        sent, read = request.ids.numpy(), answer.ids
        where = f"sample {request.sample}"
        if read.shape != sent.shape:
            pictures = (
                " Start it with the processor's limits of the run (such as"
                " --mm-processor-kwargs)."
                if request.pictures
                else ""
            )
            self.host.refuse(
                f"the {len(sent)} ids of {where}",
                f"{len(read)} ids read by the server",
                f"It read other ids, so its scores mean nothing.{pictures}",
            )
        differs = np.flatnonzero(read != sent)
        if len(differs):
            at = differs[0]
            self.host.refuse(
                f"id {sent[at]} at {at} of {where}",
                f"{read[at]}, and {len(differs) - 1} others differ",
                "The server tokenised text again: its scores mean nothing.",
            )
