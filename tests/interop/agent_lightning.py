"""Write a batch of rollouts with released Agent-Lightning.

`AgentModeDaemon.get_train_data_batch` runs unmodified; the server around it is not
needed and not installed. The fields that verl computes are added here, and so are the
sampler's log-probabilities, which Agent-Lightning 0.3.0 does not keep.
Runs in verl's environment (see `run`). Usage: `python agent_lightning.py HOME FOLDER`,
where HOME has agentlightning, installed without its dependencies.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch

# What the daemon's module imports for its server.
UNUSED = (
    "flask",
    "requests",
    "agentlightning",
    "agentlightning.adapter",
    "agentlightning.adapter.triplet",
    "agentlightning.llm_proxy",
    "agentlightning.store",
    "agentlightning.store.base",
    "agentlightning.types",
)
# Rollouts: the token ids of prompt and response, step by step.
ROLLOUTS = {
    "rollout-b": [([1, 2], [5, 6, 7]), ([1, 2, 3], [8])],
    "rollout-a": [([4], [9, 9])],
}


def daemon(home: Path) -> Any:
    """Return a daemon that has finished these rollouts."""
    sys.modules.update({name: MagicMock() for name in UNUSED})
    path = home / "agentlightning" / "verl" / "daemon.py"
    spec = importlib.util.spec_from_file_location("daemon", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = object.__new__(module.AgentModeDaemon)
    made.is_train, made.pad_token_id, made.reward_fillna_value = True, 0, 0.0
    made._use_mrope, made.trace_aggregator = False, {"level": "transition"}
    made._total_tasks_queued = len(ROLLOUTS)
    made._completed_rollouts_v0 = {
        name: SimpleNamespace(
            rollout_id=name,
            final_reward=float(number),
            triplets=[
                SimpleNamespace(prompt={"token_ids": p}, response={"token_ids": r})
                for p, r in steps
            ],
        )
        for number, (name, steps) in enumerate(ROLLOUTS.items())
    }
    made._task_id_to_original_sample = {name: {"data_id": "task"} for name in ROLLOUTS}
    return made


def main(home: Path, folder: Path) -> None:
    """Write the batch, its rows in another order, as balancing leaves them."""
    data, _ = daemon(home).get_train_data_batch(4, 4, torch.device("cpu"), 7)
    data.non_tensor_batch["uid"] = data.non_tensor_batch["data_id_list"]
    mask = data.batch["attention_mask"][:, -4:]
    steps = torch.arange(1.0, 5.0) / 8
    data.batch["response_mask"] = mask
    data.batch["old_log_probs"] = -(steps + data.batch["responses"]) * mask
    data.batch["rollout_log_probs"] = -1.0 * data.batch["responses"] * mask
    data.meta_info["global_steps"] = 7
    data.reorder(torch.tensor([1, 2, 0]))
    found = {d.metadata["Name"]: d.version for d in distributions(path=[str(home)])}
    data.save_to_disk(
        folder / f"agentlightning-{found['agentlightning']}_transition.pkl"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
