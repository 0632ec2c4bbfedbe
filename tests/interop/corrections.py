"""Compare `rounddiag.corrections` with the trainers' own weights, on 50 random batches.

    python corrections.py verl | skyrl | openrlhf | trl | martingale

Runs inside that framework's environment (`tests/interop/NAME`).
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import rounddiag as rd
from rounddiag.core.weights import token_weights
from rounddiag.schema import Correction

if TYPE_CHECKING:
    from collections.abc import Callable

BATCHES, CLOSE = 50, 1e-5  # their weights are float32: the exponential of 5 nats


@dataclass(frozen=True)
class Tensors:
    """One batch, padded."""

    old: torch.Tensor
    rollout: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor

    @property
    def log_ratio(self) -> torch.Tensor:
        """The log ratio of every position."""
        return self.old - self.rollout


def tensors(seed: int) -> Tensors:
    """Samples of several lengths and noises, so that each bound is crossed."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(16, 60, generator=generator) < 0.9).float()
    mask[:, 0] = 1
    old = torch.rand(16, 60, generator=generator).clamp(min=1e-4).log()
    size = 10 ** torch.empty(16, 1).uniform_(-4, 0, generator=generator)
    noise = size * torch.randn(16, 60, generator=generator)
    advantages = torch.randn(16, 60, generator=generator)
    return Tensors(old, (old - noise).clamp(max=-1e-6), mask, advantages)


def of_verl() -> dict[str, Callable[[Tensors], torch.Tensor]]:
    """Weights by verl, by the name of the correction."""
    from verl.trainer.ppo.rollout_corr_helper import (
        compute_rollout_correction_weights,
        compute_rollout_rejection_mask,
    )

    def weights(
        level: str, threshold: float | str
    ) -> Callable[[Tensors], torch.Tensor]:
        return lambda one: compute_rollout_correction_weights(
            one.log_ratio, one.mask, level, threshold
        )[0]

    def rejection(option: str, threshold: str) -> Callable[[Tensors], torch.Tensor]:
        return lambda one: compute_rollout_rejection_mask(
            one.log_ratio, one.mask, option, threshold
        )[0]

    kept, product = rejection("seq_sum_k1", "0.5_2.0"), weights("sequence", 2.0)
    return {
        "tis": weights("token", 2.0),
        "icepop": weights("token", "0.5_5.0"),
        "sequence_tis": product,
        "sequence_rejection": lambda one: kept(one) * product(one),
        "geometric": rejection("seq_mean_k1", "0.999_1.001"),
        "k3_rejection": rejection("seq_mean_k3", "0.01"),
    }


def of_skyrl() -> dict[str, Callable[[Tensors], torch.Tensor]]:
    """Weights by SkyRL, with the defaults of its `OffPolicyCorrectionConfig`."""
    theirs = _skyrl_module()
    config = SimpleNamespace(
        token_tis_ratio_clip_high=2.0,
        sequence_tis_ratio_clip_high=5.0,
        geo_mask_low=0.99,
        geo_mask_high=1.01,
        product_mask_low=0.5,
        product_mask_high=2.0,
        outlier_token_is_threshold_low=1e-4,
        outlier_token_is_threshold_high=100.0,
    )

    def call(name: str, *options: Any) -> Callable[[Tensors], torch.Tensor]:
        function = getattr(theirs, name)
        return lambda one: function(one.old, one.rollout, one.mask, *options, config)[
            0
        ].expand_as(one.old)

    return {
        "tis": call("compute_tis_ratio", "token"),
        "sequence_tis_skyrl": call("compute_tis_ratio", "sequence"),
        "product_mask_skyrl": call("compute_sequence_mask", "product"),
        "geometric_skyrl": call("compute_sequence_mask", "geometric"),
        "veto": call("compute_outlier_token_mask"),
    }


def _skyrl_module() -> Any:
    """Import SkyRL's file of corrections without what its packages import."""
    named_only = {"omegaconf": ["DictConfig"], "jaxtyping": ["Float", "Integer"]}
    for name, classes in named_only.items():  # in annotations
        stand_in: Any = ModuleType(name)
        for one in classes:
            setattr(stand_in, one, dict)
        sys.modules[name] = stand_in
    for name in ("skyrl", "skyrl.backends", "skyrl.backends.skyrl_train"):
        _as_bare_package(name)
    _as_bare_package("skyrl.backends.skyrl_train.utils")
    return importlib.import_module(
        "skyrl.backends.skyrl_train.utils.off_policy_correction_utils"
    )


def _as_bare_package(name: str) -> None:
    package = ModuleType(name)
    package.__path__ = [f"{one}/{name.replace('.', '/')}" for one in sys.path]
    sys.modules[name] = package


def of_openrlhf() -> dict[str, Callable[[Tensors], torch.Tensor]]:
    """Weights by OpenRLHF's policy loss: its gradient where the update ratio is 1."""
    from openrlhf.models.loss import PolicyLoss

    def gradient(level: str) -> Callable[[Tensors], torch.Tensor]:
        loss = PolicyLoss(is_correction_level=level)

        def weights(one: Tensors) -> torch.Tensor:
            current = one.old.clone().requires_grad_()
            ones = torch.ones_like(one.old)
            loss(current, one.old, ones, one.mask, one.rollout)[0].backward()
            assert current.grad is not None
            return -current.grad * one.mask.sum()

        return weights

    return {"icepop": gradient("token"), "geometric_openrlhf": gradient("seq")}


def of_trl() -> dict[str, Callable[[Tensors], torch.Tensor]]:
    """Weights by TRL: the statements of its GRPO trainer, with the default bounds."""
    found = importlib.util.find_spec("trl")
    assert found is not None
    assert found.submodule_search_locations is not None
    file = Path(found.submodule_search_locations[0], "trainer", "grpo_trainer.py")
    text = file.read_text(encoding="utf-8")
    start = text.index("                mask = completion_mask if tool_mask is None")
    stop = text.index(
        "            # Compute the per-token log probabilities for the ref"
    )
    code = compile(textwrap.dedent(text[start:stop]), str(file), "exec")

    def call(mode: str) -> Callable[[Tensors], torch.Tensor]:
        def weights(one: Tensors) -> torch.Tensor:
            trainer = SimpleNamespace(
                vllm_importance_sampling_mode=mode,
                vllm_importance_sampling_clip_min=None,
                vllm_importance_sampling_clip_max=3.0,
            )
            names: dict[str, Any] = {
                "self": trainer,
                "math": math,
                "torch": torch,
                "tool_mask": None,
                "completion_mask": one.mask,
                "old_per_token_logps": one.old,
                "sampling_per_token_logps": one.rollout,
            }
            exec(code, names)  # noqa: S102 TRL's own statements
            ratio: torch.Tensor = names["vllm_importance_sampling_ratio"]
            return ratio.expand_as(one.old)

        return weights

    return {
        "tis_trl": call("token_truncate"),
        "sequence_mask_trl": call("sequence_mask"),
    }


def of_martingale() -> dict[str, Callable[[Tensors], torch.Tensor]]:
    """Weights by the references of martingale, with the bounds of our table.

    PPO's and CISPO's are of an update; here the ratio of both engines stands for it.
    """
    from martingale import corrections as theirs

    return {
        "tis": lambda one: theirs.truncated_is(one.old, one.rollout, 2.0),
        "tis_trl": lambda one: theirs.truncated_is(one.old, one.rollout, 3.0),
        "icepop": lambda one: theirs.masked_is(one.old, one.rollout, 0.5, 5.0),
        "mis_prime_rl": lambda one: theirs.masked_is(one.old, one.rollout, 0.125, 8.0),
        "ppo_clip": lambda one: theirs.ppo_clip_weight(
            one.old, one.rollout, one.advantages, 0.2
        ),
        "cispo": lambda one: theirs.cispo_weight(one.old, one.rollout, 0.2, 0.2),
    }


# What the table does not have.
OTHERS = {
    "cispo": Correction(
        name="cispo", meaning="token ratio, 0.8 to 1.2", source="", clip=(0.8, 1.2)
    )
}
FRAMEWORKS = {
    "verl": of_verl,
    "skyrl": of_skyrl,
    "openrlhf": of_openrlhf,
    "trl": of_trl,
    "martingale": of_martingale,
}


def main(framework: str) -> int:
    """Print what differs; return 1 if anything does."""
    theirs, far = FRAMEWORKS[framework](), 0
    for seed in range(BATCHES):
        one = tensors(seed)
        batch = rd.Batch.from_padded(
            response_ids=one.mask.long(),
            response_mask=one.mask,
            rollout_log_probs=one.rollout,
            old_log_probs=one.old,
        )
        update = rd.Batch.from_padded(  # the same ratio, of current and old
            response_ids=one.mask.long(),
            response_mask=one.mask,
            rollout_log_probs=one.rollout,
            old_log_probs=one.rollout,
            scores={"current": one.old},
            advantages=one.advantages,
        )
        for name, weights in theirs.items():
            expected = weights(one)[one.mask.bool()].numpy()
            of = update if name == "ppo_clip" else batch
            found = token_weights(of, OTHERS.get(name, name))
            if not np.allclose(found, expected, rtol=CLOSE, atol=1e-6):
                far += 1
                apart = np.abs(found - expected).max()
                print(f"seed {seed}: {name} differs from {framework} by {apart:.3g}")
    print(f"{len(theirs)} corrections of {framework}, {BATCHES} batches, {far} differ")
    return min(far, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
