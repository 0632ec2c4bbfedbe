"""The episodes of a preflight: what an environment says before each round.

Four tasks of four rounds. A model that sees gets screenshots, small, large, tall and
several in one prompt; a text model gets the answers of tools. Nothing depends on what
the model writes, so that the same episodes suit every model. A user's own come from a
batch: its prompts, observations and screenshots, without what its model wrote.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.batch.chains import split_chains
from rounddiag.batch.trajectories import ARE_STEPS
from rounddiag.errors import BatchError
from rounddiag.proof.chat import Chat
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.engines.pictures import data_address
from rounddiag.proof.trajectory import Samples
from rounddiag.vision import Screenshot
from rounddiag.vision.screenshots import EncodedScreenshot

_NUM_TASKS, _NUM_ROUNDS = 4, 4
_REPLY = "\ue003"  # in no text: where the model writes
_THOUGHT = "<think>I look at step {}.</think>\n"


@dataclass(frozen=True, eq=False)
class Observation:
    """What an engine reads between two rounds.

    Attributes
    ----------
    ids: One image token stands for each picture.
    shots: These pictures.
    """

    ids: tuple[int, ...]
    shots: tuple[Screenshot, ...] = ()


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt as messages, and the ids that the model's own template makes of them.

    Attributes
    ----------
    messages: As a client sends them to a server.
    ids: One image token stands for each picture.
    shots: All pictures of the messages.
    """

    messages: tuple[Mapping[str, Any], ...]
    ids: tuple[int, ...]
    shots: tuple[Screenshot, ...]


@dataclass(frozen=True, eq=False)
class Episode:
    """A task: what the environment says before each round.

    Attributes
    ----------
    observations: One for each round; the first is the prompt.
    prompts: The same task as messages, with replies that are written here, once for
        each round; empty for a user's own episodes, which are ids.
    """

    name: str
    observations: tuple[Observation, ...]
    prompts: tuple[Prompt, ...] = ()


@dataclass(frozen=True)
class _Script:
    """A task as text and sizes of screenshots; one entry each for a round."""

    name: str
    texts: tuple[str, ...]
    replies: tuple[str, ...]
    sizes: tuple[tuple[tuple[int, int], ...], ...] = ()


def make_episodes(engine: LocalEngine, seed: int) -> list[Episode]:
    """Return the four tasks, written with the chat template of a model."""
    chat = engine.chat
    if chat is None or chat.write([{"role": "user", "content": "Hello."}]) is None:
        raise BatchError.build(
            file=engine.name,
            expected="a tokenizer with a chat template, to write episodes",
            found="none",
            advice="Save the tokenizer beside the model, or pass `episodes=`: a file"
            " with token ids.",
        )
    rng = np.random.default_rng(seed)
    sees = engine.processor is not None
    scripts = _screen_scripts() if sees else _tool_scripts()
    return [_write_episode(script, chat, engine, rng) for script in scripts]


def _screen_scripts() -> Iterator[_Script]:
    wide, tall, small = (1280, 800), (360, 1280), (320, 240)
    sizes: dict[str, tuple[tuple[tuple[int, int], ...], ...]] = {
        "small": ((small,),) * _NUM_ROUNDS,
        "large": ((wide,),) * _NUM_ROUNDS,
        "tall": ((tall,),) * _NUM_ROUNDS,
        "several": ((wide, tall, small), *((small, (640, 480)),) * (_NUM_ROUNDS - 1)),
    }
    goals = (
        "Turn on notifications.",
        "Find a blue shirt.",
        "Send the form.",
        "Log in.",
    )
    for (name, shown), goal in zip(sizes.items(), goals, strict=True):
        yield _Script(
            name,
            (goal, *("The page after your action.",) * (_NUM_ROUNDS - 1)),
            tuple(
                f"{_THOUGHT.format(step)}click({40 + 9 * step}, {30 + 7 * step})"
                for step in range(_NUM_ROUNDS)
            ),
            shown,
        )


def _tool_scripts() -> Iterator[_Script]:
    tasks = {
        "search": ("Find the height of the tower.", {"query": "tower"}, "height"),
        "files": ("Count the lines of the notes.", {"path": "notes.txt"}, "lines"),
        "calendar": ("When is the next meeting?", {"day": "Friday"}, "hour"),
        "weather": ("Do I need a coat in Oslo?", {"city": "Oslo"}, "degrees"),
    }
    for number, (name, (goal, arguments, key)) in enumerate(tasks.items()):
        call = json.dumps({"name": name, "arguments": arguments})
        yield _Script(
            name,
            (goal, *(json.dumps({key: 7 * number + 3 * step}) for step in range(1, 4))),
            tuple(
                f"{_THOUGHT.format(step)}<tool_call>\n{call}\n</tool_call>"
                for step in range(_NUM_ROUNDS)
            ),
        )


def _write_episode(
    script: _Script, chat: Chat, engine: LocalEngine, rng: np.random.Generator
) -> Episode:
    shots = [
        tuple(_draw_screen(size, rng) for size in sizes)
        for sizes in script.sizes or ((),) * len(script.texts)
    ]
    said = [
        _messages_of(script, number, shots[number])
        for number in range(len(script.texts))
    ]
    observations, prompts = [], []
    for last, shown in enumerate(shots):
        local, sent = _conversation(said, script.replies, last)
        observations.append(
            Observation(_observed_ids(chat, local, engine, len(shown)), shown)
        )
        every = tuple(shot for before in shots[: last + 1] for shot in before)
        prompts.append(
            Prompt(tuple(sent), _ids_of(chat, local, engine, len(every)), every)
        )
    return Episode(script.name, tuple(observations), tuple(prompts))


def _messages_of(
    script: _Script, number: int, shots: Sequence[Screenshot]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    text = script.texts[number]
    if not script.sizes:
        message = {"role": "tool" if number else "user", "content": text}
        return message, message
    words = {"type": "text", "text": text}
    local: list[Any] = [{"type": "image"} for _ in shots]
    sent: list[Any] = [
        {"type": "image_url", "image_url": {"url": data_address(shot)}}
        for shot in shots
    ]
    return tuple(
        {"role": "user", "content": [*parts, words]} for parts in (local, sent)
    )  # type: ignore[return-value]


def _conversation(
    said: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    replies: Sequence[str],
    last: int,
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    local, sent = [said[0][0]], [said[0][1]]
    for (mine, other), reply in zip(said[1 : last + 1], replies, strict=False):
        written = {"role": "assistant", "content": reply}
        local += [written, mine]
        sent += [written, other]
    return local, sent


def _ids_of(
    chat: Chat,
    messages: Sequence[Mapping[str, Any]],
    engine: LocalEngine,
    num_pictures: int,
) -> tuple[int, ...]:
    text = chat.write(messages, opens_reply=True)
    return _checked(None if text is None else chat.encode(text), engine, num_pictures)


def _observed_ids(
    chat: Chat,
    messages: Sequence[Mapping[str, Any]],
    engine: LocalEngine,
    num_pictures: int,
) -> tuple[int, ...]:
    """Return what the template adds after the last reply; all for the first message."""
    if len(messages) == 1:
        return _ids_of(chat, messages, engine, num_pictures)
    marked = [*messages[:-2], {**messages[-2], "content": _REPLY}, messages[-1]]
    text = chat.write(marked, opens_reply=True)
    is_whole = text is not None and text.count(_REPLY) == 1
    ids = chat.encode(text.split(_REPLY)[1]) if is_whole and text else None
    return _checked(ids, engine, num_pictures)


def _checked(
    ids: Sequence[int] | None, engine: LocalEngine, num_pictures: int
) -> tuple[int, ...]:
    number = None if ids is None else list(ids).count(engine.eyes.image_token)
    if ids is None or number != num_pictures:
        raise BatchError.build(
            file=engine.name,
            expected=f"a chat template that writes {num_pictures} image tokens for"
            f" {num_pictures} pictures",
            found="an error of the template" if ids is None else f"{number}",
            advice="Pass `episodes=`: a file with token ids and screenshots.",
        )
    return tuple(ids)


def _draw_screen(size: tuple[int, int], rng: np.random.Generator) -> Screenshot:
    from PIL import Image, ImageDraw

    width, height = size
    image = Image.new("RGB", size, tuple(rng.integers(200, 256, 3).tolist()))
    pen = ImageDraw.Draw(image)
    for number in range(12):
        left = int(rng.integers(0, width * 3 // 4))
        top = int(rng.integers(0, height * 7 // 8))
        right = left + int(rng.integers(width // 12, width // 4))
        colour = tuple(rng.integers(0, 220, 3).tolist())
        pen.rectangle((left, top, right, top + height // 16), fill=colour)
        pen.text((left + 2, top + 2), f"Button {number}", fill="white")
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue())


def read_episodes(batch: Batch, engine: LocalEngine) -> list[Episode]:
    """Return the prompts, observations and screenshots of the first samples."""
    batch.require_ids()
    note = str(batch.meta.get("rows", ""))
    if note.startswith(ARE_STEPS):
        raise BatchError.build(
            key="episodes",
            expected="one sample per episode",
            found=note,
            advice="Pass the batch that `rounddiag.load(FILE, sample_by=...)` returns,"
            " or `--sample-by` to `rounddiag preflight`.",
        )
    samples = Samples(split_chains(batch), engine.prepare)
    episodes = [
        _episode_of(samples, number) for number in range(min(len(samples), _NUM_TASKS))
    ]
    return [episode for episode in episodes if episode.observations]


def _episode_of(samples: Samples, number: int) -> Episode:
    whole = samples[number]
    ids = whole.ids.tolist()
    inside = {
        at for begin, stop in whole.spans for at in range(begin + 1, stop)
    }  # all image tokens but the first of each picture
    borders = [0, *(at for span in whole.rounds[:_NUM_ROUNDS] for at in span)]
    observations = []
    for begin, stop in list(pairwise(borders))[::2]:
        shots = [
            shot
            for shot, span in zip(whole.shots, whole.spans, strict=False)
            if begin <= span[0] < stop
        ]
        shown = [ids[at] for at in range(begin, stop) if at not in inside]
        observations.append(Observation(tuple(shown), tuple(shots)))
    names = samples.batch.sample_ids
    return Episode(
        f"sample {number}" if names is None else names[number], tuple(observations)
    )
