"""The lines of a preflight: each compares two things, and passes, fails, or cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import RounddiagError
from rounddiag.findings.reference import guess_kind
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.server import ServerEngine
from rounddiag.proof.episodes import Episode
from rounddiag.proof.noise import RoundingNoise
from rounddiag.proof.playing import Played
from rounddiag.vision import Screenshot
from rounddiag.vision.image_tokens import TokenRuns
from rounddiag.wording import pluralize

_Outcome: TypeAlias = Literal["passes", "fails", "could not be tested"]
_SHOWN = 60  # characters of a text


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
    batch: The same with the log-probs of both.
    noise: Of the model's rounding.
    """

    server: ServerEngine
    engine: LocalEngine
    episodes: Sequence[Episode]
    played: Sequence[Played]
    batch: Batch
    noise: RoundingNoise
    readings: list[Reading] = field(default_factory=list)
    unread: str = ""


@dataclass(frozen=True, eq=False)
class Reading:
    """One prompt: the ids of the model's processor, and those that the server read.

    Attributes
    ----------
    door: How it was asked: by `messages` or by `ids`.
    """

    task: str
    round: int
    door: str
    expected: list[int]
    read: list[int]
    shots: tuple[Screenshot, ...]

    @property
    def where(self) -> str:
        """Task and round."""
        return f"{self.task}, round {self.round}, asked by {self.door}"


def read_prompts(flight: Flight, advance: Callable[[], object]) -> None:
    """Ask the server for the ids of all prompts: as messages, and as they were sent."""
    expand = flight.engine.eyes.expand
    for episode in flight.episodes:
        for number, prompt in enumerate(episode.prompts):
            advance()
            if flight.unread:
                continue
            try:
                read = flight.server.read_messages(prompt.messages)
            except ServerError as error:
                flight.unread = f"{error!s:.200}"
                continue
            if read is None:
                flight.unread = "the server does not return the ids of messages"
                continue
            expected = expand(prompt.ids, prompt.shots)
            flight.readings.append(
                Reading(
                    episode.name,
                    number,
                    "messages",
                    expected,
                    read.tolist(),
                    prompt.shots,
                )
            )
    for played in flight.played:
        for number, turn in enumerate(played.rounds):
            if turn.written.read is not None:
                flight.readings.append(
                    Reading(
                        played.episode.name,
                        number,
                        "ids",
                        expand(turn.context, turn.shots),
                        turn.written.read.tolist(),
                        turn.shots,
                    )
                )


def compare_ids(flight: Flight) -> Line:
    """Compare text tokens: the server's with those of the template and tokenizer."""
    if not flight.readings:
        why = flight.unread or "the server does not return the ids of prompts"
        return Line(check="ids", result="could not be tested", why=why)
    pictures = {flight.engine.eyes.image_token} | flight.engine.eyes.markers
    number, first, prompts = 0, None, 0
    for reading in flight.readings:
        texts = [
            [token for token in ids if token not in pictures]
            for ids in (reading.expected, reading.read)
        ]
        apart = _difference(*texts)
        if apart is not None:
            number += max(len(apart.missing), len(apart.added))
            prompts += 1
            first = first or (reading, apart)
    of = f"of {pluralize(len(flight.readings), 'prompt')}"
    if flight.unread:
        of += f"; by messages it could not be tested: {flight.unread}"
    if first is None:
        return Line(
            check="ids",
            result="passes",
            value=0,
            limit=0,
            why=f"all text tokens are the processor's, {of}",
        )
    reading, apart = first
    return Line(
        check="ids",
        result="fails",
        value=number,
        limit=0,
        where=f"{reading.where}, token {apart.at}",
        why=f"{apart.describe(flight.engine)}; {prompts} {of} differ",
    )


@dataclass(frozen=True)
class _Difference:
    """Where two lists of ids differ: their common start and end are left out."""

    at: int
    missing: list[int]
    added: list[int]

    def describe(self, engine: LocalEngine) -> str:
        """Say what the server lacks and what it has instead."""
        parts = [
            f"{verb} {pluralize(len(ids), 'token')} {_text(engine, ids)}"
            for verb, ids in (("lacks", self.missing), ("has", self.added))
            if ids
        ]
        return f"the server {' and '.join(parts)}"


def _text(engine: LocalEngine, ids: Sequence[int]) -> str:
    if engine.chat is None:
        return f"{list(ids[:8])}"
    text = engine.chat.tokenizer.decode(list(ids), skip_special_tokens=False)
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _difference(expected: list[int], read: list[int]) -> _Difference | None:
    """Return how two lists of ids differ; None if they are equal.

    Examples
    --------
    >>> _difference([1, 2, 3, 4], [1, 1, 2, 3, 4])
    _Difference(at=1, missing=[], added=[1])
    """
    if expected == read:
        return None
    size = min(len(expected), len(read))
    same = (a == b for a, b in zip(expected, read, strict=False))
    at = next((place for place, equal in enumerate(same) if not equal), size)
    end = 0
    while end < size - at and expected[-1 - end] == read[-1 - end]:
        end += 1
    return _Difference(
        at, expected[at : len(expected) - end], read[at : len(read) - end]
    )


def compare_images(flight: Flight) -> Line:
    """Compare the image tokens of each picture with those of the processor."""
    if flight.engine.processor is None:
        return Line(
            check="images", result="could not be tested", why="the model sees none"
        )
    seen = [reading for reading in flight.readings if reading.shots]
    if not seen:
        why = flight.unread or "the server does not return the ids of prompts"
        return Line(check="images", result="could not be tested", why=why)
    wrong = [found for reading in seen for found in _wrong_pictures(flight, reading)]
    number = sum(len(reading.shots) for reading in seen)
    if not wrong:
        sizes = {shot.size for reading in seen for shot in reading.shots}
        return Line(
            check="images",
            result="passes",
            value=0,
            limit=0,
            why=f"{number} pictures of {pluralize(len(sizes), 'size')} have the image"
            " tokens of the processor's grids",
        )
    return Line(
        check="images",
        result="fails",
        value=len(wrong),
        limit=0,
        where=wrong[0][0],
        why=f"{wrong[0][1]}; {len(wrong)} of {number} pictures differ",
    )


def _wrong_pictures(flight: Flight, reading: Reading) -> Iterator[tuple[str, str]]:
    """Yield the place of each picture with other image tokens, and what was read."""
    eyes = flight.engine.eyes
    runs = TokenRuns.of_ids(np.array(reading.read), eyes.image_token).length.tolist()
    have = iter([*runs, *[0] * len(reading.shots)])
    side = _pixels_of_a_token(flight.engine)
    for index, shot in enumerate(reading.shots):
        need, grid = eyes.grid_of(shot)
        there = next(have)
        if there == need:
            continue
        width, height = shot.size
        shape = f", grid {' x '.join(map(str, grid))}" if grid else ""
        size = f"picture {index} ({width} x {height} pixels{shape})"
        text = f"{need} image tokens expected, {there} read"
        if there and side:
            text += f": a picture of {there * side:,} pixels, not {need * side:,}"
        yield f"{reading.where}, {size}", text


def _pixels_of_a_token(engine: LocalEngine) -> int:
    """Return how many pixels an image token stands for; 0 where that is not fixed."""
    vision = getattr(engine.model.config, "vision_config", None)
    side = getattr(vision, "patch_size", None)
    merge = getattr(vision, "spatial_merge_size", None)
    if engine.eyes.has_grids and isinstance(side, int) and isinstance(merge, int):
        return (side * merge) ** 2
    return 0


def compare_log_probs(flight: Flight) -> Line:
    """Compare the server's log-probs with those of the model in the trainer's place."""
    table = SampledPair.of_batch(flight.batch, "old")
    limit = flight.noise.limit(table.rollout, guess_kind(flight.batch)[0])
    size = np.abs(table.diff)
    by_round = [
        float(size[table.round == number].mean()) for number in np.unique(table.round)
    ]
    value = float(size.mean())
    worst = int(np.argmax(by_round))
    fails = not value <= limit.value
    k3 = float(np.mean(np.expm1(table.diff) - table.diff))
    beyond = float(np.mean(size > np.log(2)))
    rounds = ", ".join(f"{mean:.2g}" for mean in by_round)
    return Line(
        check="log-probs",
        result="fails" if fails else "passes",
        value=value,
        limit=limit.value,
        where=table.place(flight.batch) if fails else "",
        why=f"mean |diff| {value:.2g} nat of {len(size)} tokens (rounds: {rounds}), k3"
        f" {k3:.2g}, max {size.max():.2g}, {beyond:.1%} beyond a factor of 2; up to"
        f" {limit.value:.2g}: {limit.ground}"
        + (f"; round {worst} is the worst" if fails else ""),
    )


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


_Compare: TypeAlias = Callable[[Flight], Line]
COMPARISONS: dict[str, _Compare] = {
    "ids": compare_ids,
    "images": compare_images,
    "log-probs": compare_log_probs,
}


def compare(name: str, flight: Flight) -> Line:
    """Return the line of a check; an error of the server says why it has none."""
    try:
        return COMPARISONS[name](flight)
    except RounddiagError as error:
        return Line(check=name, result="could not be tested", why=f"{error!s:.300}")
