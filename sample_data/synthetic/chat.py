"""Text, tokens and screenshots: the chat format of Qwen's vision models."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
)

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PAD, IM_START, IM_END, VISION_START, VISION_END, IMAGE, VIDEO = range(len(SPECIAL))
NEVER_SAMPLED = (PAD, IM_START, VISION_START, VISION_END, IMAGE, VIDEO)
IMAGE_TOKENS = 12  # 112 x 84 pixels in patches of 14, four to a token
SCREENSHOT = f"<|vision_start|>{'<|image_pad|>' * IMAGE_TOKENS}<|vision_end|>"

PROCESSOR = Qwen2VLImageProcessorPil(min_pixels=112 * 84, max_pixels=112 * 84)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train a byte-level BPE tokenizer; digits stay single."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=768,
        min_frequency=5,
        show_progress=False,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken("<think>"), AddedToken("</think>")])
    return tokenizer


def pixels(screenshot: Image.Image) -> Tensor:
    """Return a screenshot as the model reads it: [patches, values] in bfloat16."""
    values = PROCESSOR(images=screenshot, return_tensors="pt")["pixel_values"]
    return cast("Tensor", values).to(torch.bfloat16)


@dataclass
class Conversation:
    """One trajectory as tokens; `mask` is 1 at generated tokens."""

    ids: list[int]
    mask: list[int]
    patches: list[Tensor] = field(default_factory=list)

    @classmethod
    def start(
        cls, tokenizer: Tokenizer, task: str, screenshot: Image.Image
    ) -> "Conversation":
        """Return the prompt: the first screenshot and the task."""
        text = (
            f"<|im_start|>user\n{SCREENSHOT}{task}<|im_end|>\n<|im_start|>assistant\n"
        )
        ids = tokenizer.encode(text).ids
        return cls(ids, [0] * len(ids), [pixels(screenshot)])

    def observe(self, tokenizer: Tokenizer, screenshot: Image.Image) -> None:
        """Add the next screenshot, the response to an action."""
        text = f"\n<|im_start|>user\n{SCREENSHOT}<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer.encode(text).ids
        self.ids += ids
        self.mask += [0] * len(ids)
        self.patches.append(pixels(screenshot))

    def write(self, ids: list[int]) -> None:
        """Add what the agent wrote in one round."""
        self.ids += ids
        self.mask += [1] * len(ids)
