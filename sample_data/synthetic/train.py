"""Behaviour cloning from a scripted teacher."""

import copy
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import Qwen2_5_VLForConditionalGeneration

from .action import Action
from .app import App, near_middle
from .chat import IM_END, PAD, Conversation
from .form import FIELDS, Form
from .model import GRID, PATCHES, positions
from .optimiser import optimisers
from .screen import Screen, render
from .settings import SWITCHES, Settings
from .shop import CODES, PRODUCTS, Shop

APPS: tuple[type[Settings | Shop | Form], ...] = (Settings, Shop, Form)
State = dict[str, Tensor]
MAX_ROUNDS = 8
LEARNING_RATE = 2e-3
# Weights of the few tokens on which all depends: names and values; the first word of
# a thought, and the leading digits of a place.
NAMED, LEADING = 5.0, 3.0


@dataclass(frozen=True)
class Lesson:
    """One trajectory of the teacher, ready for the model."""

    ids: Tensor
    weights: Tensor
    positions: Tensor
    patches: Tensor


def teacher_texts(rng: np.random.Generator, count: int) -> list[str]:
    """Return tasks and rounds as text, to train the tokenizer on."""
    texts = ["Find"] * 10
    for index in range(count):
        app = APPS[index % len(APPS)](rng)
        texts.append(app.task)
        for _ in range(MAX_ROUNDS):
            thought, action = app.teach(rng)
            texts.append(f"<think>{thought}</think> {action}")
            app.act(action)
    return texts


def teach(app: App, tokenizer: Tokenizer, rng: np.random.Generator) -> Conversation:
    """Let the teacher do a task from the first screen to `finished()`."""
    talk = Conversation.start(tokenizer, app.task, render(app.screen()))
    while True:
        thought, action = app.teach(rng)
        text = f"<think>{thought}</think> {action}"
        talk.write([*tokenizer.encode(text).ids, IM_END])
        if action.verb == "finished":
            return talk
        app.act(action)
        talk.observe(tokenizer, render(app.screen()))


def find(
    app: App, tokenizer: Tokenizer, rng: np.random.Generator, crowd: int
) -> Conversation:
    """Ask for one of a few widgets: a drill in where things are."""
    screen = app.screen()
    places = [item for item in screen.widgets if item.kind != "banner"]
    kept = [places[i] for i in rng.permutation(len(places))[:crowd]]
    item = kept[0]
    few = Screen(screen.title, screen.colour, tuple(kept))
    talk = Conversation.start(tokenizer, f"Find {item.name}", render(few))
    action = Action("click", near_middle(item, rng))
    text = f"<think>I click {item.name}.</think> {action}"
    talk.write([*tokenizer.encode(text).ids, IM_END])
    return talk


class Teacher:
    """Turns conversations into lessons."""

    def __init__(
        self, model: Qwen2_5_VLForConditionalGeneration, tokenizer: Tokenizer, seed: int
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.rng = np.random.default_rng(seed)
        self.named, self.digits, self.think = decisive_tokens(tokenizer)

    def drills(self, count: int, crowd: int) -> list[Lesson]:
        """Return single questions, with at most so many widgets on the screen."""
        apps = (APPS[index % len(APPS)](self.rng) for index in range(count))
        return [
            self.lesson(find(app, self.tokenizer, self.rng, crowd))
            for app in tqdm(apps, f"drills, {crowd} widgets", count)
        ]

    def tasks(self, count: int, most: int) -> list[Lesson]:
        """Return trajectories with at most so many goals in each."""
        apps = (APPS[index % len(APPS)](self.rng, most) for index in range(count))
        return [
            self.lesson(teach(app, self.tokenizer, self.rng))
            for app in tqdm(apps, f"tasks, {most} goals", count)
        ]

    def lesson(self, talk: Conversation) -> Lesson:
        """Weigh the tokens of a conversation."""
        ids, mask = torch.tensor(talk.ids), torch.tensor(talk.mask)
        is_digit = torch.isin(ids, self.digits)
        is_leading = (is_digit & is_digit.roll(-1)) | (ids.roll(1) == self.think)
        weights = torch.where(is_leading, LEADING, mask.float())
        weights[torch.isin(ids, self.named)] = NAMED
        places = positions(self.model, ids)[:, 0]
        return Lesson(ids, weights * mask, places, torch.cat(talk.patches))


def decisive_tokens(tokenizer: Tokenizer) -> tuple[Tensor, Tensor, int]:
    """Return the tokens that begin a name or a value, the digits, and `<think>`."""
    values = [text for _, texts in FIELDS.values() for text in texts]
    words = [*SWITCHES, *PRODUCTS, *FIELDS, *CODES, *values]
    starts = [
        tokenizer.encode(space + word).ids[0] for word in words for space in ("", " ")
    ]
    digits = [tokenizer.token_to_id(digit) for digit in "0123456789"]
    think = cast("int", tokenizer.token_to_id("<think>"))
    return torch.tensor(starts), torch.tensor(digits), think


def loss(model: Qwen2_5_VLForConditionalGeneration, batch: list[Lesson]) -> Tensor:
    """Return the mean cross entropy of what the teacher wrote, weighted."""
    pad = nn.utils.rnn.pad_sequence
    ids = pad([row.ids for row in batch], batch_first=True, padding_value=PAD)
    weights = pad([row.weights for row in batch], batch_first=True)[:, 1:]
    places = pad([row.positions.T for row in batch]).permute(2, 1, 0)
    patches = torch.cat([row.patches for row in batch]).float()
    hidden = model.model(
        input_ids=ids,
        position_ids=places,
        pixel_values=patches,
        image_grid_thw=torch.tensor([GRID]).repeat(len(patches) // PATCHES, 1),
    ).last_hidden_state
    wanted = weights > 0
    logits = model.lm_head(hidden[:, :-1][wanted])
    each = nn.functional.cross_entropy(logits, ids[:, 1:][wanted], reduction="none")
    return (each * weights[wanted]).sum() / weights.sum()


def rate(step: int, steps: int) -> float:
    """Return the factor on the learning rate: warm up, hold, come down to a tenth."""
    return min(step / 50, 1.0, 0.1 + 1.8 * (1 - step / steps))


def batches(
    rows: Sequence[Lesson], size: int, rng: np.random.Generator
) -> list[list[Lesson]]:
    """Shuffle, and put trajectories of like length together: less padding."""
    order = rng.permutation(len(rows))
    found = []
    for start in range(0, len(rows), 8 * size):
        chunk = sorted(
            (rows[i] for i in order[start : start + 8 * size]),
            key=lambda row: len(row.ids),
        )
        found += [chunk[i : i + size] for i in range(0, len(chunk), size)]
    return [found[i] for i in rng.permutation(len(found))]


def fit(
    model: Qwen2_5_VLForConditionalGeneration,
    plan: Sequence[list[Lesson]],
    kept: Container[int],
) -> dict[int, State]:
    """Train; return the weights after each of the `kept` numbers of steps to go."""
    both = optimisers(model, LEARNING_RATE)
    plans = [
        torch.optim.lr_scheduler.LambdaLR(one, lambda step: rate(step, len(plan)))
        for one in both
    ]
    found = {}
    bar = tqdm(plan, "training")
    for step, batch in enumerate(bar, 1):
        value = loss(model, batch)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one, schedule in zip(both, plans, strict=True):
            one.step()
            one.zero_grad()
            schedule.step()
        bar.set_postfix(loss=f"{value.item():.3f}")
        if len(plan) - step in kept:
            found[step] = copy.deepcopy(model.state_dict())
    return found
