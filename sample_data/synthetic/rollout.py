"""Episodes: the engine writes a round of every one, and the pages answer."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from PIL import Image
from tokenizers import Tokenizer

from .action import parse
from .app import App
from .chat import Conversation
from .screen import render
from .train import MAX_ROUNDS

if TYPE_CHECKING:
    from .vllm_engine import Engine, Written  # vLLM has an environment of its own

COLOURS = 48


@dataclass
class Trajectory:
    """The record of one episode."""

    kind: str
    task: str
    talk: Conversation
    prompt_length: int
    weight_version: int
    log_probs: list[float] = field(default_factory=list)
    pictures: list[Image.Image] = field(default_factory=list)
    screenshots: list[bytes] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    parsed: list[bool] = field(default_factory=list)
    reward: float = 0.0
    status: str = "truncated"


def shot(app: App) -> tuple[Image.Image, bytes]:
    """Return the screen as the agent sees it and as a small PNG: the same pixels."""
    picture = render(app.screen()).quantize(COLOURS)
    data = io.BytesIO()
    picture.save(data, "PNG", optimize=True)
    return picture.convert("RGB"), data.getvalue()


def roll_out(
    engine: "Engine", tokenizer: Tokenizer, apps: Sequence[App], weight_version: int
) -> list[Trajectory]:
    """Let the agent act on each page until it says `finished()`, for 8 rounds at most.

    A round of all running episodes is one batch of requests.
    """
    found = [begin(app, tokenizer, weight_version) for app in apps]
    running = list(zip(found, apps, strict=True))
    for round_ in range(MAX_ROUNDS):
        rounds = engine.write([(one.talk.ids, one.pictures) for one, _ in running])
        running = [
            (one, app)
            for (one, app), written in zip(running, rounds, strict=True)
            if goes_on(one, app, tokenizer, written, is_last=round_ == MAX_ROUNDS - 1)
        ]
        if not running:
            break
    return found


def begin(app: App, tokenizer: Tokenizer, weight_version: int) -> Trajectory:
    """Show the first screen and the task."""
    picture, data = shot(app)
    talk = Conversation.start(tokenizer, app.task, picture)
    return Trajectory(
        app.kind,
        app.task,
        talk,
        len(talk.ids),
        weight_version,
        pictures=[picture],
        screenshots=[data],
    )


def goes_on(
    one: Trajectory,
    app: App,
    tokenizer: Tokenizer,
    written: "Written",
    *,
    is_last: bool,
) -> bool:
    """Add a round, act, and show the next screen; tell whether there is one."""
    observed = len(one.talk.ids) - one.prompt_length - len(one.log_probs)
    one.log_probs += [0.0] * observed + written.log_probs
    one.talk.write(written.ids)
    text = tokenizer.decode(written.ids)
    action = parse(text)
    one.actions.append(text.rpartition("</think> ")[2])
    one.parsed.append(action is not None)
    if action is not None and action.verb == "finished":
        one.status = "solved" if app.is_solved() else "failed"
        one.reward = float(app.is_solved())
        return False
    if action is not None:
        app.act(action)
    if is_last:
        return False
    picture, data = shot(app)
    one.talk.observe(tokenizer, picture)
    one.pictures.append(picture)
    one.screenshots.append(data)
    return True
