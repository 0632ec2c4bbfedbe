"""Texts of the realistic steps: thoughts, actions and observations; their tokenizer."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Rng = np.random.Generator

APPLICATIONS = ("calc", "chrome", "gimp", "impress", "thunderbird", "vlc", "writer")
FORMATS = ("calls", "plain", "json", "think")
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|image_pad|>", "<|vision_end|>"),
)
_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
IMAGE = "<|image_pad|>"
# From common to rare in thoughts.
_THOUGHTS = """
the to I is now and of a in need on this that it should will can screen button menu
window open click next first then file so page text from with field search see has
which user at task click opened list settings but be not there already top left right
bottom name was result value cell row column tab toolbar dialog option icon save
type enter press select selected check box scroll down up drag here where after before
current shows image appears panel input document folder format change set new old
confirm close still yet step done looks visible line point area title label message
mail address link image view insert edit tools help export import copy paste color
layer slide table sum formula range chart date sort filter sheet font size bold style
volume play pause track video audio playlist download upload account password profile
bookmark history preferences default apply cancel okay continue instead because error
warning loading wait seems correct wrong different same more less another other last
one two three verify make sure proceed finish complete move cursor hover expand collapse
double middle corner edge header footer sidebar bar entry item choose drop number
required state finally also must try again maybe probably think find look figure
desktop browser session network print layout
"""
_ACTIONS = """
click left_click type scroll drag key wait press x y start end text direction amount
down up left right computer_use name arguments action coordinate seconds terminate
keys pixels Action
"""
# Only in typed text; the tokenizer divides them.
_TYPED = """
quarterly budget invoice meeting agenda holiday contract supplier reference summary
appendix passport itinerary concert warranty battery umbrella mountain
"""
_WORDS = np.array(_THOUGHTS.split(), dtype=object)
_TYPED_WORDS = np.array([*_TYPED.split(), *_WORDS[40:]], dtype=object)


@lru_cache(maxsize=1)
def tokenizer() -> Tokenizer:
    """A byte-level BPE whose merges are the words above, with digits one by one.

    Merges of words with a space come first and all begin with it, so that none of them
    can apply inside another word.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: i for i, sign in enumerate(alphabet)}
    merges: dict[tuple[str, str], None] = {}
    words = ["Ġ" + word for word in dict.fromkeys([*_WORDS, "Action"])]
    for word in [*words, *_ACTIONS.split(), '("', '")', '":', '",', "ĊĊ"]:
        for i in range(1, len(word)):
            merges.setdefault((word[:i], word[i]))
            vocabulary.setdefault(word[: i + 1], len(vocabulary))
    made = Tokenizer(models.BPE(vocabulary, list(merges)))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    made.add_tokens([AddedToken(name, special=False) for name in _TAGS])
    return made


@lru_cache(maxsize=1)
def _frequencies() -> np.ndarray[Any, Any]:
    weights = 1 / (3.0 + np.arange(len(_WORDS)))
    weights /= weights.sum()
    return weights


def thought(rng: Rng, low: int, high: int) -> str:
    """Sentences of `low` to `high` tokens, about."""
    num = int(rng.integers(low, high + 1))
    words = _WORDS[rng.choice(len(_WORDS), num, p=_frequencies())].tolist()
    place = int(rng.integers(6, 14))
    while place < num:
        words[place] += rng.choice([".", ",", ".", ":"])
        if rng.random() < 0.15:
            words[place] = f"{words[place][:-1]} {rng.integers(1, 60)}."
        place += int(rng.integers(6, 14))
    return " " + " ".join(words[: max(num - num // 12, 1)]) + "."


def _typed(rng: Rng) -> str:
    num = int(rng.integers(2, 9))
    return " ".join(rng.choice(_TYPED_WORDS, num))


def action(rng: Rng) -> tuple[str, dict[str, Any]]:
    """The name of an action and its arguments."""
    x, y, u, v = (int(value) for value in rng.integers(8, 1000, 4))
    draw = rng.random()
    if draw < 0.55:
        return "click", {"x": x, "y": y}
    if draw < 0.76:
        return "type", {"text": _typed(rng)}
    if draw < 0.87:
        return "scroll", {"x": x, "y": y, "direction": str(rng.choice(["up", "down"]))}
    if draw < 0.96:
        return "drag", {"start": [x, y], "end": [u, v]}
    return "wait", {"seconds": int(rng.integers(1, 6))}


def _call(name: str, arguments: dict[str, Any], *, keywords: bool) -> str:
    values = {key: json.dumps(value) for key, value in arguments.items()}
    inside = [f"{k}={v}" if keywords else v for k, v in values.items()]
    return f"{name}({', '.join(inside)})"


def round_text(rng: Rng, kind: str, low: int, high: int) -> str:
    """What the model writes in one round, with its end of turn."""
    say = thought(rng, low, high)
    name, arguments = action(rng)
    if kind == "calls":
        text = f"{say}\nAction: {_call(name, arguments, keywords=name != 'type')}"
    elif kind == "plain":
        text = f"{say}\n\n{_call(name, arguments, keywords=False)}"
    elif kind == "think":
        call = _call(name, arguments, keywords=True)
        text = f"<think>{say}</think>\n\n{call}"
    else:
        if "x" in arguments:
            arguments["coordinate"] = [arguments.pop("x"), arguments.pop("y")]
        call = json.dumps(
            {"name": "computer_use", "arguments": {"action": name, **arguments}}
        )
        text = f"{say}\n<tool_call>\n{call}\n</tool_call>"
    return f"{text}<|im_end|>"


def observation_text(rng: Rng, num_patches: int) -> str:
    """What the environment answers: a screenshot, and sometimes a line of text."""
    picture = f"<|vision_start|>{IMAGE * num_patches}<|vision_end|>"
    line = thought(rng, 3, 12) if rng.random() < 0.3 else ""
    return f"\n<|im_start|>user\n{picture}{line}<|im_end|>\n<|im_start|>assistant\n"


def prompt_text(rng: Rng, application: str, num_patches: int) -> str:
    """The prompt of a task: the same for all samples of its group."""
    picture = f"<|vision_start|>{IMAGE * num_patches}<|vision_end|>"
    return (
        f"<|im_start|>system\n You use {application}.{thought(rng, 30, 60)}<|im_end|>\n"
        f"<|im_start|>user\n{thought(rng, 12, 40)}{picture}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
