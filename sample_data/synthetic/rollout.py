"""The sampling engine: bfloat16, a KV cache, one token at a time."""

import io
from dataclasses import dataclass, field

import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor
from transformers import DynamicCache, Qwen2_5_VLForConditionalGeneration

from .action import parse
from .app import App
from .chat import IM_END, NEVER_SAMPLED, Conversation
from .model import GRID, positions
from .screen import render
from .train import MAX_ROUNDS

MAX_NEW_TOKENS = 48
COLOURS = 48


@dataclass
class Trajectory:
    """The record of one episode."""

    kind: str
    task: str
    talk: Conversation
    prompt_length: int
    log_probs: list[float]
    screenshots: list[bytes]
    weight_version: int
    actions: list[str] = field(default_factory=list)
    parsed: list[bool] = field(default_factory=list)
    reward: float = 0.0
    status: str = "truncated"


class Sampler:
    """A bfloat16 copy of the model with the state of one episode."""

    def __init__(self, model: Qwen2_5_VLForConditionalGeneration, seed: int) -> None:
        self.model = model
        self.generator = torch.Generator().manual_seed(seed)
        self.cache = DynamicCache(config=model.config.get_text_config())

    def read(self, talk: Conversation) -> Tensor:
        """Feed what is not in the cache yet; return log-probs of the next token."""
        known = self.cache.get_seq_length()
        ids = torch.tensor(talk.ids)
        fresh = ids[None, known:]
        patches = talk.patches[-1] if known < len(ids) - 1 else None
        hidden = self.model.model(
            input_ids=fresh,
            position_ids=positions(self.model, ids)[..., known:],
            past_key_values=self.cache,
            pixel_values=patches,
            image_grid_thw=None if patches is None else torch.tensor([GRID]),
        ).last_hidden_state
        return self.model.lm_head(hidden[0, -1]).float().log_softmax(-1)

    def write(self, talk: Conversation) -> list[float]:
        """Sample one round into the conversation; return the log-probs."""
        found: list[float] = []
        while len(found) < MAX_NEW_TOKENS:
            log_probs = self.read(talk)
            chances = log_probs.exp()
            chances[list(NEVER_SAMPLED)] = 0.0
            token = int(torch.multinomial(chances, 1, generator=self.generator))
            found.append(float(log_probs[token]))
            talk.write([token])
            if token == IM_END:
                break
        return found


def shot(app: App) -> tuple[Image.Image, bytes]:
    """Return the screen as the agent sees it and as a small PNG: the same pixels."""
    picture = render(app.screen()).quantize(COLOURS)
    data = io.BytesIO()
    picture.save(data, "PNG", optimize=True)
    return picture.convert("RGB"), data.getvalue()


@torch.no_grad()
def roll_out(
    model: Qwen2_5_VLForConditionalGeneration,
    tokenizer: Tokenizer,
    app: App,
    seed: int,
    weight_version: int,
) -> Trajectory:
    """Let the model act until it says `finished()`, for 8 rounds at most."""
    sampler = Sampler(model, seed)
    picture, data = shot(app)
    talk = Conversation.start(tokenizer, app.task, picture)
    found = Trajectory(
        app.kind, app.task, talk, len(talk.ids), [], [data], weight_version
    )
    for round_ in range(MAX_ROUNDS):
        start = len(talk.ids)
        found.log_probs += [0.0] * (start - found.prompt_length - len(found.log_probs))
        found.log_probs += sampler.write(talk)
        text = tokenizer.decode(talk.ids[start:])
        action = parse(text)
        found.actions.append(text.rpartition("</think> ")[2])
        found.parsed.append(action is not None)
        if action is not None and action.verb == "finished":
            found.status = "solved" if app.is_solved() else "failed"
            break
        if action is not None:
            app.act(action)
        if round_ < MAX_ROUNDS - 1:
            picture, data = shot(app)
            talk.observe(tokenizer, picture)
            found.screenshots.append(data)
    found.reward = float(found.status == "solved")
    return found
