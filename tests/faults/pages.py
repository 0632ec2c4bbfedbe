"""The pages of `sample_data/synthetic` as an agent without eyes reads them."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer

from sample_data.synthetic.app import App
from sample_data.synthetic.chat import IM_END
from sample_data.synthetic.train import APPS

MOST_GOALS = 2


def draw_app(rng: np.random.Generator) -> App:
    """Draw one of the three pages with a task on it."""
    return APPS[rng.integers(len(APPS))](rng, MOST_GOALS)


def page_text(app: App) -> str:
    """List the widgets of a page with their middles."""
    screen = app.screen()
    lines = [screen.title]
    for item in screen.widgets:
        left, top, right, bottom = item.box
        state = " on" if item.is_on else ""
        place = f"({(left + right) // 2}, {(top + bottom) // 2})"
        lines.append(f"{item.name} {item.value}{state} {place}")
    return "\n".join(lines)


def prompt_ids(app: App, tokenizer: Tokenizer, page: str) -> list[int]:
    """Return the chat that asks for the first action."""
    text = f"<|im_start|>user\n{app.task}\n{page}<|im_end|>\n<|im_start|>assistant\n"
    return list(tokenizer.encode(text).ids)


def observation_ids(tokenizer: Tokenizer, page: str) -> list[int]:
    """Return what follows an action: the page that it led to."""
    text = f"\n<|im_start|>user\n{page}<|im_end|>\n<|im_start|>assistant\n"
    return list(tokenizer.encode(text).ids)


def teach_text(
    rng: np.random.Generator, tokenizer: Tokenizer
) -> tuple[list[int], list[int]]:
    """Return one trajectory of the teacher: ids, and 1 where the agent wrote."""
    app = draw_app(rng)
    ids = prompt_ids(app, tokenizer, page_text(app))
    mask = [0] * len(ids)
    while True:
        thought, action = app.teach(rng)
        text = f"<think>{thought}</think> {action}"
        written = [*tokenizer.encode(text).ids, IM_END]
        ids += written
        mask += [1] * len(written)
        if action.verb == "finished":
            return ids, mask
        app.act(action)
        seen = observation_ids(tokenizer, page_text(app))
        ids += seen
        mask += [0] * len(seen)
