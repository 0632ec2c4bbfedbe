"""What the lines of a preflight compare, and what a line says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import RounddiagError
from rounddiag.findings.reference import guess_kind
from rounddiag.proof.delivery import Delivery, deliver
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.episodes import Episode
from rounddiag.proof.noise import Limit, RoundingNoise
from rounddiag.proof.playing import Played
from rounddiag.proof.scorer import Scorer

_Outcome: TypeAlias = Literal["passes", "fails", "could not be tested"]
SAME_ENGINE = "same_engine"  # the kind of a server that is compared with itself


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a preflight.

    Attributes
    ----------
    check, result: What was compared, and how it went.
    value, limit: What was measured, and the largest value of a sound pair; NaN where
        there is none.
    where: The task, round and picture of the first difference; empty if it passes.
    why: What was found, and the ground of the limit.
    """

    check: str
    result: _Outcome
    value: float = np.nan
    limit: float = np.nan
    where: str = ""
    why: str = ""


@dataclass(eq=False, kw_only=True)
class Flight:
    """What the lines compare.

    Attributes
    ----------
    server, engine: What samples, and the model in the trainer's place.
    episodes, played: What was asked, and what the server wrote.
    scorer: The model's scores of the episodes.
    batch: The episodes with the log-probs of both.
    noise: Of the model's rounding.
    packs: The user's function of the trainer, where one was passed.
    after: The command that syncs weights, where one was passed.
    seed: Of the change that it syncs.
    sampling: How the user's run samples, as far as the episodes' file says it.
    """

    server: ServerEngine
    engine: LocalEngine
    episodes: Sequence[Episode]
    played: Sequence[Played]
    scorer: Scorer
    batch: Batch
    noise: RoundingNoise
    packs: Callable[..., object] | None = None
    after: str | None = None
    seed: int = 0
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def kind(self) -> str:
        """The kind of this pair of engines, for published levels."""
        return guess_kind(self.batch)[0]

    @cached_property
    def served(self) -> Scorer:
        """The server's own scores of the episodes, by prefill."""
        return Scorer(self.batch, self.server)

    @cached_property
    def delivery(self) -> Delivery | str:
        """The log-probs before, with and after a known change; or why not."""
        if self.after is None:
            return "needs `after`, a command that syncs the adapter in a folder"
        try:
            return deliver(self.after, self.served, self.scorer, self.played, self.seed)
        except RounddiagError as error:
            return f"{error!s:.300}"

    def judge(
        self,
        check: str,
        log_probs: Array,
        diff: Array,
        *,
        kind: str,
        where: str,
        compared: str,
        more: str = "",
    ) -> Line:
        """Return the line of mean |diff| against what a sound pair may have."""
        limit = self.noise.limit(log_probs, kind)
        value = float(np.abs(diff).mean())
        fails = not value <= limit.value
        return Line(
            check=check,
            result="fails" if fails else "passes",
            value=value,
            limit=limit.value,
            where=where if fails else "",
            why=f"{compared}: mean |diff| {value:.2g} nat of {len(diff)} tokens"
            f"{more}; {describe_limit(limit)}",
        )


def describe_limit(limit: Limit) -> str:
    """Return a limit with its ground, as part of a sentence."""
    return f"limit {limit.value:.2g}, {limit.ground}"


def untested(check: str, why: str) -> Line:
    """Return the line of a check that has nothing to compare."""
    return Line(check=check, result="could not be tested", why=why)


def counted(check: str, why: str, number: int = 0, where: str = "") -> Line:
    """Return the line of a check that counts what differs: none may."""
    result: _Outcome = "fails" if number else "passes"
    return Line(check=check, result=result, value=number, limit=0, where=where, why=why)


@dataclass(frozen=True, eq=False)
class SampledPair:
    """Two sets of log-probs of the tokens that the server wrote.

    Attributes
    ----------
    rollout, other: The server's as it sampled, and those that it is compared with.
    sample, round: Where the tokens are.
    """

    rollout: Array
    other: Array
    sample: Array
    round: Array

    @classmethod
    def of_batch(cls, batch: Batch, name: str) -> SampledPair:
        """Read two scores of a batch, where both are finite."""
        rounds = batch.rounds
        sizes = rounds.num_tokens.numpy()
        starts = np.repeat(rounds.start.numpy() - np.cumsum([0, *sizes[:-1]]), sizes)
        flat = starts + np.arange(len(starts))
        rollout, other = (
            batch.log_probs(score).double().numpy()[flat] for score in ("rollout", name)
        )
        known = np.isfinite(rollout) & np.isfinite(other)
        sample = np.repeat(rounds.sample.numpy(), sizes)
        number = np.repeat(rounds.round.numpy(), sizes)
        return cls(*(values[known] for values in (rollout, other, sample, number)))

    @property
    def diff(self) -> Array:
        """Other minus rollout, in nats."""
        return self.other - self.rollout

    def place(self, batch: Batch) -> str:
        """Return the task and round whose tokens differ most on average."""
        size = np.abs(self.diff)
        cells = self.sample * (self.round.max() + 1) + self.round
        _, code = np.unique(cells, return_inverse=True)
        worst = int(np.argmax(np.bincount(code, size) / np.bincount(code)))
        inside = code == worst
        sample, number = int(self.sample[inside][0]), int(self.round[inside][0])
        assert batch.sample_ids is not None  # noqa: S101 episodes have names
        return (
            f"{batch.sample_ids[sample]}, round {number}: mean |diff|"
            f" {size[inside].mean():.2g} nat"
        )
