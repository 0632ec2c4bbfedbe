"""Compare `rounddiag.corrections` with the trainers' own weights, on 50 random batches.

    python corrections.py verl | skyrl | openrlhf | trl | martingale

Runs inside that framework's environment (`tests/interop/NAME`). The batches have tokens
whose ratio is infinite, unknown or beyond 25 nats, and a `loss_mask`. Losses are
compared through their gradient, on finite batches. Defaults of presets are compared
with the trainer's own configuration.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import sys
import textwrap
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

import rounddiag as rd
from rounddiag.core.loss_ratio import trainers_rule
from rounddiag.core.weights import Ratios
from rounddiag.schema import CORRECTIONS, Correction, Edges

if TYPE_CHECKING:
    from collections.abc import Callable

BATCHES = 50
CLOSE, ROUNDING = 1e-6, 2.0**-22  # relative; times |log ratio|, of float32
SMALLEST = float(np.finfo(np.float32).tiny)  # below it float32 loses digits
ODD = (math.inf, -math.inf, math.nan, 25.0, -25.0, 40.0)


@dataclass(frozen=True)
class Tensors:
    """One batch, padded."""

    old: torch.Tensor
    rollout: torch.Tensor
    generated: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor

    @property
    def log_ratio(self) -> torch.Tensor:
        """The log ratio of every position."""
        return self.old - self.rollout

    def batch(self, *, is_update: bool, meta: dict[str, Any]) -> rd.Batch:
        """The batch; of an update, the ratio is that of current and old."""
        scores = {"current": self.old} if is_update else {}
        return rd.Batch.from_padded(
            response_ids=self.generated.long(),
            response_mask=self.generated,
            loss_mask=self.mask,
            rollout_log_probs=self.rollout - 1e-3 * is_update,
            old_log_probs=self.rollout if is_update else self.old,
            scores=scores,
            advantages=self.advantages,
            meta={"old_log_probs_source": "a pass of its own", **meta},
        )


Rule: TypeAlias = "Callable[[Tensors], torch.Tensor]"
# By the name of a preset, or with a record of its own: the trainer's weights.
Rules: TypeAlias = "list[tuple[str | Correction, Rule]]"


def tensors(seed: int, *, is_finite: bool) -> Tensors:
    """Samples of several lengths and noises, so that each bound is crossed."""
    generator = torch.Generator().manual_seed(seed)
    generated = (torch.rand(16, 60, generator=generator) < 0.9).float()
    mask = generated * (torch.rand(16, 60, generator=generator) < 0.9).float()
    generated[:, 0] = mask[:, 0] = 1
    old = torch.rand(16, 60, generator=generator).clamp(min=1e-4).log()
    size = 10 ** torch.empty(16, 1).uniform_(-4, 0, generator=generator)
    noise = size * torch.randn(16, 60, generator=generator)
    rollout = (old - noise).clamp(max=-1e-6)
    if not is_finite:
        # Odd tokens of one kind in a sample: inf - inf depends on the order of a sum.
        kind = torch.randint(0, 3 * len(ODD), (16,), generator=generator)
        is_odd = torch.rand(16, 60, generator=generator) < 0.05 * generated
        for row, column in is_odd.nonzero().tolist():
            if kind[row] < len(ODD):
                value = ODD[int(kind[row])]
                of_old = -60.0 if math.isfinite(value) else value
                old[row, column] = min(of_old, 0) if value < 0 else old[row, column]
                rollout[row, column] = old[row, column] - value
                if math.isnan(value):
                    old[row, column] = value
                elif value == -math.inf:
                    rollout[row, column] = -1.0
    advantages = torch.randn(16, 60, generator=generator)
    return Tensors(old, rollout, generated, mask, advantages)


def of_verl() -> Rules:
    """Weights by verl: each level of `rollout_is` and `rollout_rs`, and its losses."""
    from verl.trainer.config.algorithm import RolloutCorrectionConfig
    from verl.trainer.ppo.rollout_corr_helper import (
        SUPPORTED_ROLLOUT_RS_OPTIONS,
        compute_rollout_correction_weights,
        compute_rollout_rejection_mask,
    )

    presets = {
        "tis": RolloutCorrectionConfig.decoupled_token_is(),
        "icepop": RolloutCorrectionConfig.decoupled_token_icepop(),
        "sequence_tis": RolloutCorrectionConfig.decoupled_seq_is(),
        "sequence_rejection": RolloutCorrectionConfig.decoupled_seq_is_rs(),
        "geometric": RolloutCorrectionConfig.decoupled_geo_rs(),
        "k3_rejection": RolloutCorrectionConfig.decoupled_k3_rs(),
    }
    for name, preset in presets.items():
        own = replace(_rule_of(dict(vars(preset))), name=name)
        assert own == replace(CORRECTIONS[name], source=own.source), name

    def weights(level: str, threshold: float | str, *, is_normal: bool) -> Rule:
        return lambda one: compute_rollout_correction_weights(
            one.log_ratio, one.mask, level, threshold, is_normal
        )[0]

    def rejection(option: str, threshold: str) -> Rule:
        return lambda one: compute_rollout_rejection_mask(
            one.log_ratio, one.mask, option, threshold
        )[0]

    rules: Rules = []
    thresholds: tuple[float | str, ...] = (2.0, "0.5_5.0")
    levels = product(("token", "sequence"), thresholds, (False, True))
    for level, threshold, is_normal in levels:
        settings = {"rollout_is": level, "rollout_is_threshold": threshold}
        settings["rollout_is_batch_normalize"] = is_normal
        theirs = weights(level, threshold, is_normal=is_normal)
        rules.append((_rule_of(settings), theirs))
    both = "token_k1,seq_mean_k3"
    for option in (*sorted(SUPPORTED_ROLLOUT_RS_OPTIONS), both):
        threshold = "0.5_2.0" if option.endswith("k1") else "0.05"
        threshold = "0.5_2.0,0.05" if option == both else threshold
        settings = {"rollout_rs": option, "rollout_rs_threshold": threshold}
        rules.append((_rule_of(settings), rejection(option, threshold)))
    return [*rules, *_losses_of_verl()]


def _rule_of(settings: dict[str, Any]) -> Correction:
    """The rule that rounddiag reads from settings of a run."""
    batch = tensors(0, is_finite=True).batch(
        is_update=False, meta={"rollout_correction": settings}
    )
    rule = trainers_rule(batch)
    assert rule is not None, settings
    return replace(rule, name=str(settings))


def _losses_of_verl() -> Rules:
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config.actor import ActorConfig

    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    low, high = 3e-4, 4e-4

    def gradient(name: str, **settings: float) -> Rule:
        loss = get_policy_loss_fn(name)
        own = ActorConfig(
            strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **settings
        )
        return _gradient(
            lambda current, one: loss(
                one.rollout, current, one.advantages, one.mask, "token-mean", own
            )[0]
        )

    assert (config.clip_ratio_low, config.clip_ratio_high) == (0.2, 0.2)
    assert config.clip_ratio_c == CORRECTIONS["ppo_dual_clip"].mask[1].bounds[1]
    return [
        ("ppo_dual_clip", gradient("vanilla")),
        ("cispo", gradient("cispo")),
        ("gspo_clip_verl", gradient("gspo")),
        ("gspo_clip", gradient("gspo", clip_ratio_low=low, clip_ratio_high=high)),
        ("dppo_tv_verl", gradient("dppo_tv")),
        ("dppo_kl_verl", gradient("dppo_kl")),
    ]


def _gradient(loss: Callable[[torch.Tensor, Tensors], torch.Tensor]) -> Rule:
    """The weights of a loss that is a mean over tokens: its gradient over -A."""

    def weights(one: Tensors) -> torch.Tensor:
        current = one.old.clone().requires_grad_()
        loss(current, one).backward()
        assert current.grad is not None
        return -current.grad * one.mask.sum() / one.advantages

    return weights


def of_skyrl() -> Rules:
    """Weights by SkyRL, with the defaults of its `OffPolicyCorrectionConfig`."""
    theirs = _skyrl_module()
    defaults = _defaults_of_skyrl()
    config = SimpleNamespace(
        **defaults,
        outlier_token_is_threshold_low=1e-4,  # as its comment suggests
        outlier_token_is_threshold_high=100.0,
    )
    bounds = {name: rule.bounds for name, rule in CORRECTIONS.items()}
    expected = {
        "token_tis_ratio_clip_high": bounds["tis"][1],
        "sequence_tis_ratio_clip_high": bounds["sequence_tis_skyrl"][1],
        "geo_mask_low": bounds["geometric_skyrl"][0],
        "geo_mask_high": bounds["geometric_skyrl"][1],
        "product_mask_low": bounds["product_mask_skyrl"][0],
        "product_mask_high": bounds["product_mask_skyrl"][1],
    }
    assert defaults == expected, defaults

    def call(name: str, *options: Any) -> Rule:
        function = getattr(theirs, name)
        return lambda one: function(one.old, one.rollout, one.mask, *options, config)[
            0
        ].expand_as(one.old)

    return [
        ("tis", call("compute_tis_ratio", "token")),
        ("sequence_tis_skyrl", call("compute_tis_ratio", "sequence")),
        ("product_mask_skyrl", call("compute_sequence_mask", "product")),
        ("geometric_skyrl", call("compute_sequence_mask", "geometric")),
        ("veto", call("compute_outlier_token_mask")),
    ]


def _defaults_of_skyrl() -> dict[str, float]:
    """Read the defaults as text: its configuration imports all of SkyRL."""
    file = next(
        path
        for folder in sys.path
        if (path := Path(folder, "skyrl/train/config/config.py")).is_file()
    )
    text = file.read_text(encoding="utf-8")
    block = text[text.index("class OffPolicyCorrectionConfig") :].split("\n@", 1)[0]
    pairs = (
        line.replace(": float =", " ").split()
        for line in block.splitlines()
        if ": float =" in line
    )
    return {name: float(value) for name, value in pairs}


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


def of_openrlhf() -> Rules:
    """Weights by OpenRLHF's policy loss: its gradient where the update ratio is 1."""
    from openrlhf.models.loss import PolicyLoss

    settings = inspect.signature(PolicyLoss.__init__).parameters
    low, high = settings["is_correction_threshold"].default
    assert (low, high) == CORRECTIONS["geometric_openrlhf"].bounds
    clip = (1 - settings["clip_eps_low"].default, 1 + settings["clip_eps_high"].default)
    assert clip == CORRECTIONS["ppo_clip"].bounds

    def gradient(level: str) -> Rule:
        loss = PolicyLoss(is_correction_level=level)

        def weights(one: Tensors) -> torch.Tensor:
            current = torch.zeros_like(one.old, requires_grad=True)
            # The ratio of the update is e^0: an infinite log-prob has no gradient.
            ones, old = torch.ones_like(one.old), _Shifted(one.old, current)
            loss(current, old, ones, one.mask, one.rollout)[0].backward()
            assert current.grad is not None
            return -current.grad * one.mask.sum()

        return weights

    update = PolicyLoss()
    ppo = _gradient(
        lambda current, one: update(current, one.rollout, one.advantages, one.mask)[0]
    )
    unclamped = replace(CORRECTIONS["icepop"], edges=Edges(spreads=True))
    return [
        (unclamped, gradient("token")),
        ("geometric_openrlhf", gradient("seq")),
        ("ppo_clip", ppo),
    ]


class _Shifted:
    """Log-probs before the update, which are those of the loss where it subtracts."""

    def __init__(self, values: torch.Tensor, current: torch.Tensor) -> None:
        self.values, self.current = values, current.detach()

    def __rsub__(self, current: torch.Tensor) -> torch.Tensor:
        return current - self.current

    def __sub__(self, other: torch.Tensor) -> torch.Tensor:
        return self.values - other


def of_trl() -> Rules:
    """Weights by TRL: the statements of its GRPO trainer, with the default bounds."""
    found = importlib.util.find_spec("trl")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(found.submodule_search_locations[0], "trainer")
    file = folder / "grpo_trainer.py"
    text = file.read_text(encoding="utf-8")
    start = text.index("                mask = completion_mask if tool_mask is None")
    stop = text.index(
        "            # Compute the per-token log probabilities for the ref"
    )
    code = compile(textwrap.dedent(text[start:stop]), str(file), "exec")
    config = (folder / "grpo_config.py").read_text(encoding="utf-8")
    for setting, value in {
        "vllm_importance_sampling_mode: str": '"sequence_mask"',
        "vllm_importance_sampling_clip_max: float | None": "3.0",
        "vllm_importance_sampling_clip_min: float | None": "None",
        "epsilon: float": "0.2",
        "off_policy_mask_threshold: float | None": "None",
    }.items():
        after = config[config.index(f"    {setting} = field(") :]
        assert after.split("default=", 1)[1].startswith(value), setting

    def call(mode: str) -> Rule:
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

    begin = text.index("    def get_off_policy_mask(")
    end = text.index("    @staticmethod", begin)
    own: dict[str, Any] = {"torch": torch}
    exec(textwrap.dedent(text[begin:end]), own)  # noqa: S102 TRL's own function

    def off_policy(one: Tensors) -> torch.Tensor:
        sign = one.advantages[:, :1].expand_as(one.old)
        mask: torch.Tensor = own["get_off_policy_mask"](
            sign, one.old, one.rollout, one.mask, 0.5
        )
        return mask

    return [
        ("tis_trl", call("token_truncate")),
        ("token_mask_trl", call("token_mask")),
        ("sequence_truncate_trl", call("sequence_truncate")),
        ("sequence_mask_trl", call("sequence_mask")),
        ("off_policy_mask_trl", off_policy),
    ]


def of_martingale() -> Rules:
    """Weights by the references of martingale, which clamp nothing."""
    from martingale import corrections as theirs

    def exact(name: str) -> Correction:
        return replace(CORRECTIONS[name], edges=Edges())

    return [
        (exact("tis"), lambda one: theirs.truncated_is(one.old, one.rollout, 2.0)),
        (exact("tis_trl"), lambda one: theirs.truncated_is(one.old, one.rollout, 3.0)),
        (
            exact("icepop"),
            lambda one: theirs.masked_is(one.old, one.rollout, 0.5, 5.0),
        ),
        (
            exact("mis_prime_rl"),
            lambda one: theirs.masked_is(one.old, one.rollout, 0.125, 8.0),
        ),
        (
            exact("ppo_clip"),
            lambda one: theirs.ppo_clip_weight(
                one.old, one.rollout, one.advantages, 0.2
            ),
        ),
        (
            exact("cispo"),
            lambda one: theirs.cispo_weight(one.old, one.rollout, 0.2, 0.2),
        ),
    ]


FRAMEWORKS = {
    "verl": of_verl,
    "skyrl": of_skyrl,
    "openrlhf": of_openrlhf,
    "trl": of_trl,
    "martingale": of_martingale,
}


def find_difference(rule: Correction, theirs: Rule, seed: int) -> str:
    """Say where the weights of a batch differ; empty where they do not."""
    is_update = "update" in rule.ratios
    one = tensors(seed, is_finite=is_update)
    if rule.name == "off_policy_mask_trl":  # an advantage per sample, in TRL
        one = replace(one, advantages=one.advantages[:, :1].expand_as(one.old))
    expected = theirs(one)[one.mask.bool()].double().numpy()
    ratios = Ratios.of(one.batch(is_update=is_update, meta={}))
    found = ratios.weigh(rule).weight
    log_ratio = np.abs(ratios.log_ratios["update" if is_update else "mismatch"])
    log_ratio = np.nan_to_num(log_ratio, posinf=0.0)
    if any(part.level in ("sum", "mean") for part in rule.weight):
        # float32 rounds every sum on the way.
        log_ratio = np.bincount(ratios.sample, log_ratio)[ratios.sample]
    close = np.maximum(CLOSE, log_ratio * ROUNDING) * np.abs(expected) + SMALLEST
    with np.errstate(invalid="ignore"):
        is_far = np.abs(found - expected) > close
    is_far |= np.isnan(found) != np.isnan(expected)
    if not is_far.any():
        return ""
    at = int(is_far.argmax())
    return (
        f"seed {seed}: {rule.name} has {is_far.sum()} of {len(found)} weights that"
        f" differ, such as {found[at]!r}, not {expected[at]!r}"
    )


def main(framework: str) -> int:
    """Print what differs; return 1 if anything does."""
    rules, far = FRAMEWORKS[framework](), 0
    for seed in range(BATCHES):
        for name, theirs in rules:
            rule = CORRECTIONS[name] if isinstance(name, str) else name
            if text := find_difference(rule, theirs, seed):
                far += 1
                print(text)
    print(f"{len(rules)} corrections of {framework}, {BATCHES} batches, {far} differ")
    return min(far, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
