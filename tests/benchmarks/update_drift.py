"""Measure how far the updates of one step move the agent of the sample data.

    python -m tests.benchmarks.update_drift

PPO with a clip range of 0.2 on samples of `healthy.parquet`, whose policy is the agent:
AdamW, gradients clipped to a norm of 1, advantages within a group. A row is a learning
rate, a number of mini batches and of epochs; its numbers are those of
`rounddiag.findings.Range` for the pair `current`, `old`, and the share of ratios that
PPO clips. The range "update" of `rounddiag.findings.REFERENCE` rests on it.
"""

from __future__ import annotations

import copy
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rounddiag as rd
from rounddiag.core.divergence import MEASURES
from sample_data.synthetic.chat import PROCESSOR
from sample_data.synthetic.checkpoint import load_agent
from sample_data.synthetic.model import PATCHES
from sample_data.synthetic.score import token_log_probs

DATA = Path(__file__).parents[2] / "sample_data"
NUM_SAMPLES = 16
RATES = (1e-6, 1e-5, 5e-5, 2e-4, 1e-3)
UPDATES = ((1, 1), (4, 1), (4, 2))  # mini batches, epochs
CLIP = 0.2


class Step:
    """The samples of a step, and the policy that is trained on them."""

    def __init__(self) -> None:
        self.batch = rd.load(DATA / "healthy.parquet")
        self.model = load_agent(DATA / "model")
        self.advantages = self._advantages()
        self.inputs = {sample: self._inputs(sample) for sample in self.advantages}
        with torch.no_grad():
            self.old = {sample: self.score(sample) for sample in self.inputs}

    def _advantages(self) -> dict[int, float]:
        """Return those of groups whose rewards differ."""
        groups = np.array(self.batch.group_ids)
        assert self.batch.rewards is not None
        rewards = self.batch.rewards.numpy()
        found: dict[int, float] = {}
        for group in dict.fromkeys(groups.tolist()):
            rows = np.flatnonzero(groups == group)
            centred = rewards[rows] - rewards[rows].mean()
            if centred.any():
                scaled = centred / (rewards[rows].std() + 1e-4)
                found |= dict(zip(rows.tolist(), scaled.tolist(), strict=True))
        return dict([*found.items()][:NUM_SAMPLES])

    def _inputs(self, sample: int) -> tuple[Tensor, list[Tensor], int, Tensor]:
        one = self.batch[sample]
        assert one.prompt_ids is not None
        assert one.images is not None
        pictures = [shot.image().convert("RGB") for shot in one.images[0]]
        pixels = PROCESSOR(images=pictures, return_tensors="pt")["pixel_values"]
        ids = torch.cat([one.prompt_ids, one.require_ids()]).long()
        patches = list(pixels.split(PATCHES))
        return ids, patches, len(one.prompt_ids), one.response_mask.bool()

    def score(self, sample: int) -> Tensor:
        """Return the log-probs of the generated tokens of a sample."""
        ids, patches, start, mask = self.inputs[sample]
        return token_log_probs(self.model, ids, patches)[start:][mask]

    def update(self, rate: float, num_batches: int, num_epochs: int) -> None:
        """Do the updates of the step."""
        parameters = [*self.model.parameters()]
        optimiser = torch.optim.AdamW(parameters, rate, weight_decay=0)
        generator = np.random.default_rng(0)
        for _ in range(num_epochs):
            order = generator.permutation([*self.inputs])
            for part in np.array_split(order, num_batches):
                count = sum(len(self.old[sample]) for sample in part.tolist())
                for sample in part.tolist():
                    ratio = (self.score(sample) - self.old[sample]).exp()
                    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                    advantage = self.advantages[sample]
                    gain = torch.min(ratio * advantage, clipped * advantage)
                    (-gain.sum() / count).backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimiser.step()
                optimiser.zero_grad()

    @torch.no_grad()
    def drift(self) -> dict[str, float]:
        """Return the numbers of a `Range` for the policy after and before."""
        after = torch.cat([self.score(sample) for sample in self.inputs]).numpy()
        before = torch.cat([*self.old.values()]).numpy()
        diff = after - before
        probs = np.exp(after), np.exp(before)
        names = {
            "mean |diff|": "abs_diff",
            "kl": "k3",
            "mult_prob_error": "token_mult_prob_error",
            "clip_share": "clip_share",
        }
        means = {k: float(MEASURES[v].values(diff).mean()) for k, v in names.items()}
        prob_diff = float(np.abs(probs[0] - probs[1]).mean())
        return {**means, "prob_diff": prob_diff, "r": float(np.corrcoef(*probs)[0, 1])}


def main() -> None:
    torch.manual_seed(0)
    step = Step()
    start: Any = copy.deepcopy(step.model.state_dict())
    num_tokens = sum(map(len, step.old.values()))
    print(f"{len(step.inputs)} samples, {num_tokens:,} tokens")
    for rate, (num_batches, num_epochs) in product(RATES, UPDATES):
        step.model.load_state_dict(start)
        step.update(rate, num_batches, num_epochs)
        found = ", ".join(f"{name} {value:.4g}" for name, value in step.drift().items())
        print(
            f"rate {rate:g}, {num_batches} x {num_epochs} updates: {found}", flush=True
        )


if __name__ == "__main__":
    main()
