"""Episodes of an agent: what it read and wrote, and the page that answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from sample_data.synthetic.action import parse
from sample_data.synthetic.app import App
from sample_data.synthetic.chat import IM_END, IMAGE, IMAGE_TOKENS, SCREENSHOT, pixels
from sample_data.synthetic.rollout import shot
from tests.faults import pages
from tests.faults.models import Agent

GROUP = 4
MAX_ROUNDS = 6
MAX_NEW_TOKENS = 40
IMAGE_WIDTH = 4  # tokens of a screenshot: three rows of four


@dataclass
class Episode:
    """One trajectory while it is made; `mask` is 1 where the agent wrote.

    `places` are the M-RoPE positions of its tokens, `num_image_tokens` how many image
    tokens stand up to each of them.
    """

    app: App
    tokenizer: Tokenizer
    sees: bool
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    start: int = 0
    log_probs: dict[int, float] = field(default_factory=dict)
    patches: list[Tensor] = field(default_factory=list)
    shots: list[bytes] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)
    num_image_tokens: list[int] = field(default_factory=list)
    num_rounds: int = 0
    num_written: int = 0
    status: str = "running"

    @classmethod
    def begin(cls, app: App, tokenizer: Tokenizer, *, sees: bool) -> Episode:
        """Show the first page."""
        found = cls(app, tokenizer, sees)
        if sees:
            text = (
                f"<|im_start|>user\n{found._look()}{app.task}<|im_end|>\n"
                "<|im_start|>assistant\n"
            )
            found._read(tokenizer.encode(text).ids)
        else:
            found._read(pages.prompt_ids(app, tokenizer, pages.page_text(app)))
        found.start = len(found.ids)
        return found

    def write(self, token: int, log_prob: float) -> None:
        """Add a token of the agent; at the end of a round let the page answer."""
        self.log_probs[len(self.ids)] = log_prob
        self._place([token])
        self.ids.append(token)
        self.mask.append(1)
        self.num_written += 1
        if token == IM_END or self.num_written == MAX_NEW_TOKENS:
            self._answer()

    def _answer(self) -> None:
        written = self.ids[len(self.ids) - self.num_written :]
        action = parse(self.tokenizer.decode(written))
        self.num_rounds += 1
        self.num_written = 0
        if action is not None and action.verb == "finished":
            self.status = "solved" if self.app.is_solved() else "failed"
        elif self.num_rounds == MAX_ROUNDS:
            self.status = "truncated"
        else:
            if action is not None:
                self.app.act(action)
            if self.sees:
                text = (
                    f"\n<|im_start|>user\n{self._look()}<|im_end|>\n"
                    "<|im_start|>assistant\n"
                )
                self._read(self.tokenizer.encode(text).ids)
            else:
                page = pages.page_text(self.app)
                self._read(pages.observation_ids(self.tokenizer, page))

    def _look(self) -> str:
        picture, data = shot(self.app)
        self.patches.append(pixels(picture))
        self.shots.append(data)
        return SCREENSHOT

    def _place(self, ids: list[int]) -> None:
        for token in ids:
            count = self.num_image_tokens[-1] if self.num_image_tokens else 0
            last = self.places[-1] if self.places else (-1, -1, -1)
            place = (max(last) + 1,) * 3
            if token == IMAGE:
                inside = count % IMAGE_TOKENS
                first = last[0] if inside else place[0]
                place = (
                    first,
                    first + inside // IMAGE_WIDTH,
                    first + inside % IMAGE_WIDTH,
                )
                count += 1
            elif last[0] != last[2]:  # after a picture: as wide as it is
                place = (last[0] + IMAGE_WIDTH,) * 3
            self.places.append(place)
            self.num_image_tokens.append(count)

    def _read(self, ids: list[int]) -> None:
        self._place(ids)
        self.ids += ids
        self.mask += [0] * len(ids)


def draw_episodes(agent: Agent, count: int, seed: int) -> list[Episode]:
    """Draw tasks, each tried by `GROUP` episodes."""
    return [
        Episode.begin(
            pages.draw_app(np.random.default_rng([agent.seed, seed, index // GROUP])),
            agent.tokenizer,
            sees=agent.kind == "vision",
        )
        for index in range(count)
    ]


def positions(ids: Tensor, *, sees: bool) -> Tensor:
    """Return the positions of one sequence, [3, length] as of M-RoPE.

    Where there are no images the three rows are equal. Equal to
    `sample_data.synthetic.model.positions`, which a test compares.
    """
    plain = torch.arange(len(ids))
    if not sees:
        return plain.expand(3, -1)
    is_image = ids == IMAGE
    inside = (is_image.cumsum(0) - 1) % IMAGE_TOKENS
    ends = is_image & (inside == IMAGE_TOKENS - 1)
    saved = (IMAGE_TOKENS - IMAGE_WIDTH) * (ends.cumsum(0) - ends.int())
    first = plain - saved - torch.where(is_image, inside, 0)
    zero = torch.zeros_like(plain)
    return first + torch.stack(
        [
            zero,
            torch.where(is_image, inside // IMAGE_WIDTH, zero),
            torch.where(is_image, inside % IMAGE_WIDTH, zero),
        ]
    )
