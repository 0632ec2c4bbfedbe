"""Three kinds of small agents, each trained from a random start.

`dense` and `moe` read the widgets of the pages of `sample_data/synthetic` as text,
`vision` sees the screenshots. A name is a kind, a half and a number: `moe-test-0`. The
halves differ in their seeds, and so in weights, tasks and trajectories. Those of `vllm`
have shapes that vLLM's attention and its vocabulary allow (`vllm_engine.py`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tqdm.auto import tqdm
from transformers import (
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from sample_data.synthetic import train
from sample_data.synthetic.chat import IM_END, PAD
from sample_data.synthetic.model import build
from sample_data.synthetic.optimiser import optimisers
from tests.faults.pages import teach_text
from tests.faults.store import CACHE

if TYPE_CHECKING:
    from torch import Tensor, nn

TOKENIZER = Path("sample_data/tokenizer.json")
SEEDS = {"tune": 100, "test": 200, "vllm": 300, "fresh": 710}
LAGS = (5, 20, 60)  # training steps before the end whose weights are kept
STEPS = {"dense": 150, "moe": 80}
ROWS = 8
LEARNING_RATE = 3e-3
SHAPE: dict[str, Any] = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "initializer_range": 0.06,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "bos_token_id": PAD,
    "eos_token_id": IM_END,
    "pad_token_id": PAD,
}
OTHER_SHAPES: dict[str, dict[str, Any]] = {
    "vllm": {"head_dim": 32},
    "fresh": {"hidden_size": 112, "num_hidden_layers": 5, "head_dim": 28},
}


@dataclass
class Agent:
    """A trained model, with the weights that it had some training steps ago."""

    name: str
    seed: int
    net: Any
    tokenizer: Tokenizer
    older: dict[int, dict[str, Tensor]]

    @property
    def kind(self) -> str:
        """`dense`, `moe` or `vision`."""
        return self.name.split("-")[0]

    @property
    def split(self) -> str:
        """`tune`, `test` or `vllm`."""
        return self.name.split("-")[1]


def body(net: Any) -> Any:
    """Return the transformer without its head and without its vision encoder."""
    return getattr(net.model, "language_model", net.model)


def load_agent(name: str) -> Agent:
    """Return an agent from the cache, or train it."""
    kind, split, number = name.split("-")
    seed = SEEDS[split] + int(number)
    torch.manual_seed(seed)
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    size = tokenizer.get_vocab_size()
    if split == "vllm":
        size += -size % 8
    shape = SHAPE | OTHER_SHAPES.get(split, {})
    net: Any = build(size) if kind == "vision" else _text_model(kind, size, shape)
    path = CACHE / "agents" / f"{name}.pt"
    if path.exists():
        last, older = torch.load(path)
        net.load_state_dict(last)
    else:
        if kind == "vision":
            older = _fit_vision(net, tokenizer, seed)
        else:
            older = _fit_text(net, tokenizer, seed, STEPS[kind])
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save((net.state_dict(), older), path)
    net.eval()
    for value in net.parameters():
        value.requires_grad_(requires_grad=False)
    return Agent(name, seed, net, tokenizer, older)


def _text_model(kind: str, vocabulary: int, shape: dict[str, Any]) -> nn.Module:
    if kind == "dense":
        config = Qwen3Config(**shape, vocab_size=vocabulary, intermediate_size=288)
        return Qwen3ForCausalLM(config)
    config = Qwen3MoeConfig(
        **shape,
        vocab_size=vocabulary,
        intermediate_size=288,
        moe_intermediate_size=96,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
    )
    return Qwen3MoeForCausalLM(config)


def _fit_text(
    net: Any, tokenizer: Tokenizer, seed: int, steps: int
) -> dict[int, dict[str, Tensor]]:
    """Imitate the teacher's trajectories, written as text."""
    rng = np.random.default_rng(seed)
    both = optimisers(net, LEARNING_RATE)
    older = {}
    bar = tqdm(range(steps), "training", disable=None)
    for step in bar:
        rows = [teach_text(rng, tokenizer) for _ in range(ROWS)]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.full((ROWS, longest), PAD)
        wanted = torch.zeros(ROWS, longest)
        for row, (one, mask) in enumerate(rows):
            ids[row, : len(one)] = torch.tensor(one)
            wanted[row, : len(one)] = torch.tensor(mask).float() + 0.05
        logits = net(input_ids=ids).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none"
        )
        value = (each * wanted[:, 1:]).sum() / wanted[:, 1:].sum()
        value.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for one_of in both:
            for group in one_of.param_groups:
                group.setdefault("first", group["lr"])
                group["lr"] = group["first"] * train.rate(step + 1, steps)
            one_of.step()
            one_of.zero_grad()
        bar.set_postfix(loss=f"{value.item():.3f}")
        if steps - step - 1 in LAGS:
            older[steps - step - 1] = copy.deepcopy(net.state_dict())
    return older


def _fit_vision(
    net: Any, tokenizer: Tokenizer, seed: int
) -> dict[int, dict[str, Tensor]]:
    """Imitate the teacher on screenshots, more briefly than `sample_data` does."""
    teacher = train.Teacher(net, tokenizer, seed)
    plan = train.batches(teacher.drills(800, 1), 8, teacher.rng)
    plan += train.batches(teacher.tasks(900, 1), 6, teacher.rng)
    kept = train.fit(net, plan, kept=LAGS)
    return {len(plan) - step: weights for step, weights in kept.items()}
