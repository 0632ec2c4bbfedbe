"""What a server read of each prompt: text tokens, image tokens, and the pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import RounddiagError
from rounddiag.proof.engines.client import ServerError
from rounddiag.proof.engines.dialects import Sglang
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.episodes import Prompt
from rounddiag.proof.flight import Flight, Line, counted, untested
from rounddiag.proof.hypotheses import all_registered, select_hypotheses
from rounddiag.proof.trajectory import read_scores
from rounddiag.vision import Screenshot
from rounddiag.vision.image_tokens import TokenRuns
from rounddiag.wording import percent, pluralize

_NO_IDS = "the server does not return the ids of prompts"
# Of a prompt with a tool: its keys are in another order than a server dumps them, and
# it has no description.
_MESSAGES = ({"role": "user", "content": "Press the button."},)
_FUNCTION = {"parameters": {"type": "object", "properties": {}}, "name": "press"}
_TOOLS = ({"function": _FUNCTION, "type": "function"},)
_SHOWN = 60  # characters of a text
(_GREY,) = select_hypotheses(all_registered(), ["grey_images"])
_HALF = 0.5  # of the model's change: nearer to a server that sees no picture


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


def read_prompts(
    flight: Flight, advance: Callable[[], object]
) -> tuple[list[Reading], str]:
    """Ask the server for the ids of all prompts: as messages, and as they were sent.

    Return them, and why the server was not asked by messages; empty if it was.
    """
    prompts: list[Reading] = []
    has_messages = any(episode.prompts for episode in flight.episodes)
    unread = "" if has_messages else "the episodes are ids"
    eyes = flight.engine.eyes
    for episode in flight.episodes:
        for number, prompt in enumerate(episode.prompts):
            advance()
            ids, unread = ([], unread) if unread else _ask_by_messages(flight, prompt)
            if not unread:
                expected = eyes.expand(prompt.ids, prompt.shots)
                prompts.append(
                    Reading(
                        episode.name, number, "messages", expected, ids, prompt.shots
                    )
                )
    for played in flight.played:
        for number, turn in enumerate(played.rounds):
            read = turn.written.read
            if read is None:
                continue
            expected = eyes.expand(turn.context, turn.shots)
            if isinstance(flight.server.dialect, Sglang):
                read = _with_image_tokens(read, expected, flight.engine)
            name, ids = played.episode.name, read.tolist()
            prompts.append(Reading(name, number, "ids", expected, ids, turn.shots))
    return prompts, unread


def _ask_by_messages(flight: Flight, prompt: Prompt) -> tuple[list[int], str]:
    try:
        read = flight.server.read_messages(prompt.messages)
    except ServerError as error:
        return [], f"{error!s:.200}"
    if read is None:
        return [], "the server does not return the ids of messages"
    return read.tolist(), ""


def _with_image_tokens(read: Array, expected: list[int], engine: LocalEngine) -> Array:
    """Put the image token where SGLang has ids made of the hashes of pictures."""
    if len(read) != len(expected):
        return read
    is_image = np.array(expected) == engine.eyes.image_token
    return np.where(is_image, engine.eyes.image_token, read)


def compare_ids(flight: Flight, readings: list[Reading], unread: str) -> Line:
    """Compare text tokens: the server's with those of the template and tokenizer."""
    if not readings:
        return untested("ids", unread or _NO_IDS)
    pictures = {flight.engine.eyes.image_token} | flight.engine.eyes.markers
    number, first, prompts = 0, None, 0
    for reading in readings:
        texts = [
            [token for token in ids if token not in pictures]
            for ids in (reading.expected, reading.read)
        ]
        apart = difference(*texts)
        if apart is not None:
            number += max(len(apart.missing), len(apart.added))
            prompts += 1
            first = first or (reading, apart)
    of = f"of {pluralize(len(readings), 'prompt')}"
    if unread:
        of += f"; by messages it could not be tested: {unread}"
    if first is None:
        tools = "" if unread else _describe_tools(flight)
        return counted("ids", f"all text tokens are the processor's, {of}{tools}")
    reading, apart = first
    why = f"{apart.describe(flight.engine)}; {prompts} {of} differ"
    return counted("ids", why, number, f"{reading.where}, token {apart.at}")


def _describe_tools(flight: Flight) -> str:
    """Say how the server prints tools, if not as the template: vLLM 0.32 dumps them."""
    chat = flight.engine.chat
    if chat is None:
        return ""
    plain, text = (
        chat.write(_MESSAGES, tools=tools, opens_reply=True) for tools in ((), _TOOLS)
    )
    if text is None or text == plain:
        return ""
    try:
        read = flight.server.read_messages(_MESSAGES, _TOOLS)
    except ServerError:
        return ""
    apart = None if read is None else difference(chat.encode(text), read.tolist())
    how = "" if apart is None else apart.describe(flight.engine)
    return how and f"; with `tools` the server's dump of the tools differs: {how}"


@dataclass(frozen=True)
class Difference:
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


def difference(expected: list[int], read: list[int]) -> Difference | None:
    """Return how two lists of ids differ; None if they are equal.

    Examples
    --------
    >>> difference([1, 2, 3, 4], [1, 1, 2, 3, 4])
    Difference(at=1, missing=[], added=[1])
    """
    if expected == read:
        return None
    size = min(len(expected), len(read))
    same = (a == b for a, b in zip(expected, read, strict=False))
    at = next((place for place, equal in enumerate(same) if not equal), size)
    end = 0
    while end < size - at and expected[-1 - end] == read[-1 - end]:
        end += 1
    return Difference(
        at, expected[at : len(expected) - end], read[at : len(read) - end]
    )


def compare_images(flight: Flight, readings: list[Reading], unread: str) -> Line:
    """Compare the image tokens of each picture with those of the processor."""
    if flight.engine.processor is None:
        return counted("images", "the model sees none")
    seen = [reading for reading in readings if reading.shots]
    if not seen:
        return untested("images", unread or _NO_IDS)
    wrong = [fault for reading in seen for fault in _wrong_pictures(flight, reading)]
    number = sum(len(reading.shots) for reading in seen)
    if not wrong:
        sizes = {shot.size for reading in seen for shot in reading.shots}
        same = (
            f"{number} pictures of {pluralize(len(sizes), 'size')} have the image"
            " tokens of the processor's grids"
        )
        return _compare_looks(flight, same)
    where, why = wrong[0]
    why += f"; {len(wrong)} of {number} pictures differ"
    return counted("images", why, len(wrong), where)


def _wrong_pictures(flight: Flight, reading: Reading) -> Iterator[tuple[str, str]]:
    eyes = flight.engine.eyes
    runs = TokenRuns.of_ids(np.array(reading.read), eyes.image_token).length.tolist()
    have = iter([*runs, *[0] * len(reading.shots)])
    side = _pixels_of_a_token(flight.engine)
    for index, shot in enumerate(reading.shots):
        need, grid = eyes.grid_of(shot)
        present = next(have)
        if present == need:
            continue
        width, height = shot.size
        shape = f", grid {' x '.join(map(str, grid))}" if grid else ""
        size = f"picture {index} ({width} x {height} pixels{shape})"
        text = f"{need} image tokens expected, {present} read"
        if present and side:
            text += f": a picture of {present * side:,} pixels, not {need * side:,}"
        yield f"{reading.where}, {size}", text


def _compare_looks(flight: Flight, same: str) -> Line:
    """Show grey pictures: a server that sees them moves as the model does.

    Where `prompt_logprobs` are further from what it decoded than half of that, they do
    not tell what it sees; what it decoded may.
    """
    blind: list[str] = []
    unknown, seen, weakest = "", "", np.inf
    for sample, played in enumerate(flight.played):
        if not played.rounds[-1].shots:
            continue
        try:
            (served, moved), (own, wanted) = (
                (base := scorer.base(sample), scorer.scores((_GREY,), sample) - base)
                for scorer in (flight.served, flight.scorer)
            )
        except RounddiagError as error:
            unknown = f"{error!s:.200}"
            break
        decoded = read_scores(flight.batch, "rollout", flight.scorer.samples[sample])
        effect, apart, far = (
            float(np.nanmean(np.abs(each)))
            for each in (wanted, served - decoded, decoded - own)
        )
        if apart > _HALF * effect:
            if far > _HALF * effect:
                unknown = (
                    f"{played.episode.name}: its `prompt_logprobs` are {apart:.2g} nat"
                    f" from what it decoded, and grey pictures move the model by"
                    f" {effect:.2g}"
                )
            seen = (
                f"what it decoded is {far:.2g} nat from the model, which grey ones move"
                f" by {effect:.2g}"
            )
            continue
        share = float(moved @ wanted / max(float(wanted @ wanted), 1e-12))
        weakest = min(weakest, share)
        if share < _HALF:
            blind.append(
                f"{played.episode.name}: grey pictures move the model by"
                f" {effect:.2g} nat, the server by {np.abs(moved).mean():.2g}"
            )
    if blind:
        why = f"{same}, but the server does not see them: {blind[0]}"
        return counted("images", why, len(blind), blind[0].partition(":")[0])
    if unknown:
        why = f"{same}; whether it sees them could not be tested: {unknown}"
        return untested("images", why)
    seen = seen or f"grey ones move the server {percent(weakest)} as far as the model"
    return counted("images", f"{same}; {seen}")


def _pixels_of_a_token(engine: LocalEngine) -> int:
    """Return how many pixels an image token stands for; 0 where that is not fixed."""
    vision = getattr(engine.model.config, "vision_config", None)
    side = getattr(vision, "patch_size", None)
    merge = getattr(vision, "spatial_merge_size", None)
    if engine.eyes.has_grids and isinstance(side, int) and isinstance(merge, int):
        return (side * merge) ** 2
    return 0
