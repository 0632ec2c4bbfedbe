"""Give the advantages of trainers' own functions to `rounddiag.check`, 50 batches each.

    python advantages.py verl | skyrl | openrlhf | trl

Runs with that framework in `sys.path` (`tests/interop/NAME`). Its functions are taken
from its files as text, since those import all of it.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import rounddiag as rd
from rounddiag.checks.advantages import KNOWN_ESTIMATOR
from rounddiag.checks.estimators import find_estimator
from rounddiag.core.groups import GroupedSamples

if TYPE_CHECKING:
    pass

BATCHES, GROUPS, OF_GROUP, WIDTH = 50, 6, 4, 30


class Rollouts:
    """Rewards of samples in groups, and a mask of their tokens."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        num = GROUPS * OF_GROUP
        kinds = (
            torch.randint(2, (num,), generator=generator).float(),
            torch.rand(num, generator=generator),
            0.95 * torch.randint(2, (num,), generator=generator).float(),
        )
        self.rewards = kinds[seed % len(kinds)]
        lengths = torch.randint(1, WIDTH, (num, 1), generator=generator)
        self.mask = (torch.arange(WIDTH) < lengths).float()
        self.index = np.repeat(np.arange(GROUPS), OF_GROUP)

    @property
    def scores(self) -> torch.Tensor:
        """The reward at the last token of each row."""
        scores = torch.zeros_like(self.mask)
        scores[torch.arange(len(scores)), self.mask.sum(1).long() - 1] = self.rewards
        return scores

    def batch(self, advantages: torch.Tensor) -> rd.Batch:
        """Return them with the advantages that a trainer gives."""
        return rd.Batch.from_padded(
            response_ids=torch.ones_like(self.mask, dtype=torch.long),
            response_mask=self.mask,
            advantages=advantages.expand_as(self.mask).contiguous(),
            rewards=self.rewards,
            group_ids=tuple(map(str, self.index)),
        )


def functions_of(file: str, *names: str, **given: Any) -> dict[str, Any]:
    """Run definitions of a framework's file, without their decorators."""
    path = next(p for folder in sys.path if (p := Path(folder, file)).is_file())
    text = path.read_text(encoding="utf-8")
    found = {
        node.name: node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name in names
    }
    own = {"torch": torch, "np": np, "defaultdict": defaultdict, **given}
    for name in names:
        node = found[name]
        node.decorator_list, node.returns = [], None
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        code = compile(ast.Module([node], []), str(path), "exec")
        exec(code, own)  # noqa: S102 the framework's own function
    return own


def of_verl() -> dict[str, Any]:
    """Return verl's estimators by the name that rounddiag has for them."""
    maths = functions_of(
        "verl/utils/torch_functional.py",
        *("masked_sum", "masked_mean", "masked_var", "masked_whiten"),
    )
    file = "verl/trainer/ppo/core_algos.py"
    names = {
        "GRPO": "compute_grpo_outcome_advantage",
        "Dr. GRPO": "compute_grpo_outcome_advantage",
        "RLOO": "compute_rloo_outcome_advantage",
        "REINFORCE++": "compute_reinforce_plus_plus_outcome_advantage",
        "REINFORCE++ with baseline": (
            "compute_reinforce_plus_plus_baseline_outcome_advantage"
        ),
    }
    theirs = functions_of(file, *{*names.values()}, verl_F=SimpleNamespace(**maths))

    def call(name: str) -> Any:
        more: dict[str, Any] = {"config": SimpleNamespace(gamma=1.0)}
        if "GRPO" in name:
            more = {"norm_adv_by_std_in_grpo": name == "GRPO"}
        if name != "REINFORCE++":
            return lambda one: theirs[names[name]](
                one.scores, one.mask, index=one.index, **more
            )[0]
        return lambda one: theirs[names[name]](one.scores, one.mask, **more)[0]

    return {name: call(name) for name in names}


def of_skyrl() -> dict[str, Any]:
    """Return SkyRL's estimators."""
    maths = functions_of(
        "skyrl/backends/skyrl_train/utils/torch_utils.py", "masked_mean"
    )
    theirs = functions_of(
        "skyrl/backends/skyrl_train/utils/ppo_utils.py",
        *("masked_var", "masked_whiten", "compute_grpo_outcome_advantage"),
        *("compute_reinforce_plus_plus_outcome_advantage",),
        masked_mean=maths["masked_mean"],
    )
    grpo = theirs["compute_grpo_outcome_advantage"]
    plus = theirs["compute_reinforce_plus_plus_outcome_advantage"]
    return {
        "GRPO": lambda one: grpo(one.scores, one.mask, one.index)[0],
        "Dr. GRPO": lambda one: grpo(
            one.scores, one.mask, one.index, grpo_norm_by_std=False
        )[0],
        "REINFORCE++": lambda one: plus(one.scores, one.mask, gamma=1.0)[0],
    }


def of_openrlhf() -> dict[str, Any]:
    """Return OpenRLHF's estimators, without a KL penalty."""
    reward = functions_of("openrlhf/models/utils.py", "compute_reward")
    theirs = functions_of(
        "openrlhf/trainer/ppo_utils/experience_maker.py",
        *("compute_advantages_and_returns", "get_cumulative_returns"),
        itertools=itertools,
        apply_length_penalties=lambda *_: None,
        compute_reward=reward["compute_reward"],
    )
    names = {
        "GRPO": "group_norm",
        "Dr. GRPO": "dr_grpo",
        "RLOO": "rloo",
        "REINFORCE++": "reinforce",
        "REINFORCE++ with baseline": "reinforce_baseline",
    }

    def call(estimator: str) -> Any:
        advantage = SimpleNamespace(estimator=estimator, gamma=1.0, no_std_norm=False)
        args = SimpleNamespace(
            algo=SimpleNamespace(advantage=advantage),
            rollout=SimpleNamespace(n_samples_per_prompt=OF_GROUP),
            reward=SimpleNamespace(clip_range=None),
        )
        maker = SimpleNamespace(
            strategy=SimpleNamespace(args=args),
            advantage_estimator=estimator,
            kl_ctl=SimpleNamespace(value=0.0),
            get_cumulative_returns=lambda *own: theirs["get_cumulative_returns"](
                None, *own
            ),
        )

        def give(one: Rollouts) -> torch.Tensor:
            experience = SimpleNamespace(
                rewards=one.rewards,
                index=[*range(len(one.rewards))],
                kl=torch.zeros_like(one.mask),
                action_mask=one.mask,
                info={},
            )
            theirs["compute_advantages_and_returns"](maker, [experience])
            advantages: torch.Tensor = experience.advantages
            return advantages

        return give

    return {name: call(theirs_name) for name, theirs_name in names.items()}


def of_trl() -> dict[str, Any]:
    """Return the statements of TRL's GRPO trainer, for each way to scale rewards."""
    file = "trl/trainer/grpo_trainer.py"
    path = next(p for folder in sys.path if (p := Path(folder, file)).is_file())
    tree = ast.parse(path.read_text(encoding="utf-8"))
    condition = "self.multi_objective_aggregation == 'sum_then_normalize'"
    node = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == condition
    )
    code = compile(ast.Module(node.body, []), str(path), "exec")
    own = functions_of("trl/trainer/utils.py", "nanstd")

    def call(scale: str) -> Any:
        def give(one: Rollouts) -> torch.Tensor:
            names: dict[str, Any] = {
                **own,
                "self": SimpleNamespace(
                    scale_rewards=scale, reward_weights=torch.ones(1)
                ),
                "device": "cpu",
                "num_generations": OF_GROUP,
                "rewards_per_func": one.rewards[:, None],
                "unscorable_mask": torch.zeros(len(one.rewards), dtype=torch.bool),
            }
            exec(code, names)  # noqa: S102 TRL's own statements
            advantages: torch.Tensor = names["advantages"]
            return advantages[:, None]

        return give

    return {
        "GRPO": call("group"),
        "Dr. GRPO": call("none"),
        "GRPO with the deviation of all rewards": call("batch"),
    }


FRAMEWORKS = {
    "verl": of_verl,
    "skyrl": of_skyrl,
    "openrlhf": of_openrlhf,
    "trl": of_trl,
}


def main(framework: str) -> int:
    """Print what is not known; return 1 if anything is."""
    estimators, num_other = FRAMEWORKS[framework](), 0
    for seed, (name, give) in itertools.product(range(BATCHES), estimators.items()):
        batch = Rollouts(seed).batch(give(Rollouts(seed)))
        samples = GroupedSamples.of(batch)
        match = find_estimator(samples, samples.low, torch.finfo(torch.float32).eps)
        is_trivial = not samples.weight.any()
        result = KNOWN_ESTIMATOR.check(batch)
        is_named = match is not None and match.estimator.name == name
        if result.status != "passed" or not (is_named or is_trivial):
            num_other += 1
            print(f"seed {seed}: {name} is {match and match.estimator}: {result}")
    print(
        f"{len(estimators)} estimators of {framework}, {BATCHES} batches each:"
        f" {num_other} not known"
    )
    return int(num_other > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
